//! A reducer's output: one object of sorted records, written while they come.

use std::io::Write;

use fanfold::{Result, objects};
use fanfold_shuffle::kernel::record::{Chunk, Copies, Record, records};
use serde::{Deserialize, Serialize};

/// An object of the output.
#[derive(Serialize, Deserialize, Debug)]
pub struct Part {
    /// Its key.
    pub key: String,
    /// How many records it has.
    pub records: u64,
    /// The sum of their CRC-32s, if that was asked for.
    pub checksum: Option<u64>,
}

/// A part that is being written. Memory: one chunk.
pub struct PartWriter {
    object: objects::ObjectWriter,
    chunk: Chunk,
    part: Part,
}

impl PartWriter {
    /// Of reducer number `reducer`.
    ///
    /// # Errors
    /// Those of [`objects::create`].
    pub fn new(prefix: &str, reducer: u32, checksum: bool) -> Result<Self> {
        let key = format!("{prefix}part-{reducer:05}");
        Ok(Self {
            object: objects::create(&key)?,
            chunk: Chunk::default(),
            part: Part { key, records: 0, checksum: checksum.then_some(0) },
        })
    }

    /// Appends records.
    ///
    /// # Errors
    /// Those of writing.
    pub fn extend(&mut self, mut records: impl Copies) -> Result<()> {
        loop {
            self.chunk.fill(&mut records);
            if !self.chunk.is_full() {
                return Ok(());
            }
            self.flush()?;
        }
    }

    /// Appends a record.
    ///
    /// # Errors
    /// Those of writing.
    #[inline]
    pub fn push(&mut self, record: &Record) -> Result<()> {
        if self.chunk.is_full() {
            self.flush()?;
        }
        self.chunk.push(record);
        Ok(())
    }

    /// Completes the object.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<Part> {
        self.flush()?;
        self.object.finish()?;
        Ok(self.part)
    }

    fn flush(&mut self) -> Result<()> {
        self.part.records += self.chunk.records() as u64;
        if let Some(checksum) = &mut self.part.checksum {
            let records = records(self.chunk.bytes()).iter();
            *checksum += records.map(|record| u64::from(crc32fast::hash(record))).sum::<u64>();
        }
        self.object.write_all(self.chunk.bytes())?;
        self.chunk.clear();
        Ok(())
    }
}
