//! What a shuffle computes, apart from how it is submitted.

use std::io::Write;

use fanfold::{Error, Partition, Result, Writer};

use crate::hash::{column_of, hash};

/// A map from splits to columns, and a fold of each column.
///
/// Both sides are deterministic: the platform runs them again when data was lost, and compares.
pub trait Exchange {
    /// A share of the input.
    type Split;
    /// What becomes of one column.
    type Reduced;

    /// Maps a split: appends to the columns.
    ///
    /// # Errors
    /// Its own, and those of reading the input.
    fn map(&self, split: Self::Split, columns: &mut Columns) -> Result<()>;

    /// Folds one column, given each map's block of it, in the order of the splits.
    ///
    /// # Errors
    /// Its own, and those of reading the blocks (pass them on).
    fn reduce(&self, column: u32, blocks: impl Iterator<Item = Result<Vec<u8>>>) -> Result<Self::Reduced>;
}

/// The columns that one map fills. They are in memory until the map ends, because a partition is written block after
/// block while keys come in any order: a map's output must fit.
#[derive(Debug)]
pub struct Columns {
    buffers: Vec<Vec<u8>>,
}

impl Columns {
    /// Empty columns.
    ///
    /// # Errors
    /// `invalid` for no columns at all.
    pub fn new(count: u32) -> Result<Self> {
        if count == 0 {
            return Err(Error::invalid("a shuffle needs at least one column"));
        }
        Ok(Self { buffers: (0..count).map(|_| Vec::new()).collect() })
    }

    /// The column of a key: append to it.
    pub fn of_key(&mut self, key: &[u8]) -> &mut Vec<u8> {
        let column = column_of(hash(key), self.buffers.len() as u32);
        &mut self.buffers[column as usize]
    }

    /// Each column's bytes, in order.
    pub fn into_buffers(self) -> Vec<Vec<u8>> {
        self.buffers
    }

    /// Writes the columns as the running task's output: one partition, one block a column.
    ///
    /// # Errors
    /// As [`Writer`].
    pub fn write(self) -> Result<Partition> {
        let mut writer = Writer::new()?;
        for column in self.buffers {
            writer.write_all(&column)?;
            writer.end_block()?;
        }
        writer.finish()
    }
}
