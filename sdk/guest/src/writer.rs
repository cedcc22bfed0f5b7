//! Writing a partition, block by block.

use std::io::{self, Write};

use crate::{
    Partition, Result,
    buffer::Buffer,
    host,
    raw::{PartitionId, Payload},
};

/// Writes one output of the running task as a partition of ordered blocks.
///
/// The partition becomes visible when the task commits. A writer that is dropped leaves nothing. Small writes are
/// collected; the host makes the task wait while its executor is short of memory.
///
/// ```
/// use std::io::Write;
/// use fanfold::{Partition, Writer};
///
/// /// One block per input line.
/// #[fanfold::task]
/// fn lines(text: String) -> fanfold::Result<Partition> {
///     let mut writer = Writer::new()?;
///     for line in text.lines() {
///         writer.write_all(line.as_bytes())?;
///         writer.end_block()?;
///     }
///     writer.finish()
/// }
///
/// # fn main() -> fanfold::Result<()> {
/// let partition = lines("to be\nor not".into())?;
/// assert_eq!(partition.open()?.block(1)?, b"or not");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer {
    raw: host::Writer,
    buffer: Buffer,
}

impl Writer {
    /// Starts the task's only (or first) output.
    ///
    /// # Errors
    /// `invalid` if that output was started already, `platform` where the executor has no room.
    pub fn new() -> Result<Self> {
        Self::for_output(0)
    }

    /// Starts output number `output`. In a generator: the next one to be sent, whatever the number.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn for_output(output: u32) -> Result<Self> {
        Ok(Self { raw: host::create(output)?, buffer: Buffer::default() })
    }

    /// Ends the current block (which may be empty) and returns its number.
    ///
    /// # Errors
    /// `limit` where the task has written more than it may, `platform` where storage failed.
    pub fn end_block(&mut self) -> Result<u32> {
        self.send()?;
        Ok(self.raw.end_block()?)
    }

    /// The host's side of it, after everything that was written so far.
    pub(crate) fn host(&mut self) -> Result<&host::Writer> {
        self.send()?;
        Ok(&self.raw)
    }

    /// Notes that the bytes name partition `id`, so that it stays as long as this one.
    ///
    /// # Errors
    /// `invalid` if the task may not name it.
    pub fn add_ref(&mut self, id: PartitionId) -> Result<()> {
        Ok(self.raw.add_ref(id)?)
    }

    /// Completes the partition. Bytes after the last [`Writer::end_block`] form a last block. Return the result from
    /// the task, or send it from a generator.
    ///
    /// # Errors
    /// As [`Writer::end_block`].
    pub fn finish(mut self) -> Result<Partition> {
        self.send()?;
        Ok(Partition::new(host::finish(self.raw)?, None))
    }

    /// A partition with one payload as its content.
    pub(crate) fn of(output: u32, payload: Payload) -> Result<Partition> {
        let mut writer = Self::for_output(output)?;
        writer.append(&payload.bytes)?;
        for id in payload.refs {
            writer.add_ref(id)?;
        }
        writer.finish()
    }

    /// Sends what was collected.
    fn send(&mut self) -> Result<()> {
        Ok(self.buffer.send(|bytes| self.raw.write(bytes))?)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.buffer.append(bytes, |bytes| self.raw.write(bytes))?)
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.send()?)
    }
}
