//! What a map or merge task writes: one partition, one block a column, in the order of the columns.

use std::{io::Write, ops::Range};

use fanfold::{Error, Outputs, Partition, Result, Writer};

use crate::{
    partition::{column_of, hash},
    tally::{Stage, Tally, check},
};

/// What a map or merge task returns: its partition, and what it counted.
pub type Output = Outputs<(Partition, Tally)>;

/// A partition that is being written, block after block. Nothing but the writer's buffer is in memory.
#[derive(Debug)]
pub struct Blocks {
    stage: Stage,
    writer: Writer,
    columns: Range<u32>,
    /// The column whose block is open.
    at: u32,
    tally: Tally,
}

impl Blocks {
    pub(crate) fn new(stage: Stage, columns: Range<u32>) -> Result<Self> {
        Ok(Self { stage, writer: Writer::new()?, at: columns.start, columns, tally: Tally::default() })
    }

    /// The columns it has blocks for.
    pub fn columns(&self) -> Range<u32> {
        self.columns.clone()
    }

    /// Appends to the block of `column`, which must not come before a column already written to.
    ///
    /// # Errors
    /// `guest` for a column out of order or out of range; those of [`Writer`].
    pub fn write(&mut self, column: u32, bytes: &[u8]) -> Result<()> {
        if column < self.at || column >= self.columns.end {
            let (at, columns) = (self.at, &self.columns);
            return Err(Error::guest(format!("wrote to column {column} of {columns:?} after column {at}")));
        }
        self.end_blocks(column)?;
        self.tally.bytes_out += bytes.len() as u64;
        Ok(self.writer.write_all(bytes)?)
    }

    /// Counts bytes of input. Only a map says this: what a merge reads is counted as it is read.
    pub fn read(&mut self, bytes: u64) {
        self.tally.bytes_in += bytes;
    }

    /// Counts records that were taken in.
    pub fn took(&mut self, records: u64) {
        self.tally.records_in += records;
    }

    /// Counts records that were written.
    pub fn gave(&mut self, records: u64) {
        self.tally.records_out += records;
    }

    fn end_blocks(&mut self, column: u32) -> Result<()> {
        while self.at < column {
            self.writer.end_block()?;
            self.at += 1;
        }
        Ok(())
    }

    /// Completes the partition. With `whole`, as many bytes must have been written as were taken.
    pub(crate) fn finish(mut self, whole: bool) -> Result<Output> {
        check(self.stage, "records", self.tally.records_in, self.tally.records_out)?;
        if whole {
            check(self.stage, "bytes", self.tally.bytes_in, self.tally.bytes_out)?;
        }
        self.end_blocks(self.columns.end)?;
        Ok(Outputs((self.writer.finish()?, self.tally)))
    }
}

/// Blocks that are filled in any order: in memory until [`Buffers::write`].
#[derive(Debug)]
pub struct Buffers {
    columns: Range<u32>,
    buffers: Vec<Vec<u8>>,
}

impl Buffers {
    /// Empty ones, for the columns of `blocks`.
    pub fn of(blocks: &Blocks) -> Self {
        let columns = blocks.columns();
        Self { buffers: columns.clone().map(|_| Vec::new()).collect(), columns }
    }

    /// The buffer of a key's column, where columns are shares of `of` columns by hash.
    ///
    /// # Errors
    /// `guest` if its column is not among these.
    pub fn of_key(&mut self, key: &[u8], of: u32) -> Result<&mut Vec<u8>> {
        self.column(column_of(hash(key), of))
    }

    /// The buffer of a column.
    ///
    /// # Errors
    /// `guest` if it is not among these.
    pub fn column(&mut self, column: u32) -> Result<&mut Vec<u8>> {
        let columns = &self.columns;
        let place = column.checked_sub(columns.start).map(|n| n as usize);
        place
            .and_then(|n| self.buffers.get_mut(n))
            .ok_or_else(|| Error::guest(format!("column {column} is not among {columns:?}")))
    }

    /// Writes them.
    ///
    /// # Errors
    /// As [`Blocks::write`].
    pub fn write(self, blocks: &mut Blocks) -> Result<()> {
        self.columns.zip(&self.buffers).try_for_each(|(column, bytes)| blocks.write(column, bytes))
    }
}
