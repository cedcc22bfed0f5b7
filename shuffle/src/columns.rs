//! What a merge or reduce task reads: for each column, a stream from every map or merge output.

use std::{
    cell::Cell,
    io::{self, BufRead, Read},
    ops::Range,
};

use fanfold::{Inputs, Partition, Reader, Result};

use crate::{
    Blocks,
    tally::{Stage, Tally, check},
};

/// Bytes a stream buffers unless told otherwise: a thousand of them still fit into a small instance.
const BUFFER_BYTES: usize = 256 << 10;
/// The largest read of the host.
const READ_BYTES_MAX: u64 = 1 << 20;

/// The columns of a task, in order; each once.
#[derive(Debug)]
pub struct Columns {
    range: Range<u32>,
    next: u32,
    inputs: Vec<Input>,
    /// Bytes read by all streams.
    read: Cell<u64>,
    records_in: u64,
    records_out: u64,
}

/// One map's or merge's output, as far as this task reads it.
#[derive(Debug)]
struct Input {
    reader: Reader,
    /// Where the blocks of the columns are.
    blocks: Vec<Range<u64>>,
}

impl Columns {
    /// Opens inputs that have a block for each of `range`.
    pub(crate) fn open(range: Range<u32>, inputs: &Inputs<Partition>) -> Result<Self> {
        let inputs = inputs.iter().map(|input| Input::open(input, range.len())).collect::<Result<_>>()?;
        let next = range.start;
        Ok(Self { range, next, inputs, read: Cell::new(0), records_in: 0, records_out: 0 })
    }

    /// Which columns there are in all.
    pub fn range(&self) -> Range<u32> {
        self.range.clone()
    }

    /// Bytes of all columns together.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.reader.size()).sum()
    }

    /// The next column.
    #[allow(
        clippy::should_implement_trait,
        reason = "a column borrows from this, which an iterator's item cannot"
    )]
    pub fn next(&mut self) -> Option<Column<'_>> {
        if self.next == self.range.end {
            return None;
        }
        let place = (self.next - self.range.start) as usize;
        let number = self.next;
        self.next += 1;
        let streams = self.inputs.iter().filter_map(|input| input.stream(place, &self.read)).collect();
        Some(Column { number, streams })
    }

    /// Counts records that were read.
    pub fn took(&mut self, records: u64) {
        self.records_in += records;
    }

    /// Counts records that are in the result.
    pub fn gave(&mut self, records: u64) {
        self.records_out += records;
    }

    /// What was counted, once all has been read.
    pub(crate) fn finish(self, stage: Stage) -> Result<Tally> {
        check(stage, "bytes of its blocks", self.bytes(), self.read.get())?;
        check(stage, "records", self.records_in, self.records_out)?;
        let (records_in, records_out) = (self.records_in, self.records_out);
        Ok(Tally { records_in, records_out, bytes_in: self.read.get(), bytes_out: 0 })
    }
}

impl Input {
    fn open(partition: &Partition, columns: usize) -> Result<Self> {
        let reader = partition.open()?;
        let blocks = reader.blocks();
        // Data without bytes may come without an index.
        if blocks.len() != columns && reader.size() > 0 {
            return Err(fanfold::Error::invalid(format!(
                "an input has {} blocks for {columns} columns",
                blocks.len()
            )));
        }
        Ok(Self { reader, blocks })
    }

    /// The block at `place`, unless it is empty.
    fn stream<'a>(&'a self, place: usize, read: &'a Cell<u64>) -> Option<Stream<'a>> {
        let range = self.blocks.get(place).filter(|range| !range.is_empty())?.clone();
        Some(Stream { reader: &self.reader, range, read, buffer: Vec::new(), consumed: 0 })
    }
}

/// One column: the blocks that are not empty, in the order of the maps (or merges) that wrote them.
#[derive(Debug)]
pub struct Column<'a> {
    /// Which.
    pub number: u32,
    /// A stream for each block.
    pub streams: Vec<Stream<'a>>,
}

impl Column<'_> {
    /// Bytes that have not been read yet.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(Stream::remaining).sum()
    }

    /// Copies the blocks one after the other: the merge of an exchange whose blocks are bags of records, of
    /// `record_bytes` each.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub fn concatenate(self, record_bytes: u64, out: &mut Blocks) -> Result<()> {
        let records = self.bytes() / record_bytes.max(1);
        for mut stream in self.streams {
            while let Some(chunk) = stream.chunk(READ_BYTES_MAX as usize)? {
                out.write(self.number, &chunk)?;
            }
        }
        out.took(records);
        out.gave(records);
        Ok(())
    }
}

/// One block, read from its start to its end.
#[derive(Debug)]
pub struct Stream<'a> {
    reader: &'a Reader,
    /// What has not been read.
    range: Range<u64>,
    read: &'a Cell<u64>,
    buffer: Vec<u8>,
    consumed: usize,
}

impl Stream<'_> {
    /// Bytes that have not been read yet, those in the buffer of [`BufRead`] aside.
    pub fn remaining(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The next `bytes_max` bytes (at most 1 MiB), fewer at the end, nothing after it. The vector is as the host filled
    /// it: no byte was copied in between.
    ///
    /// # Errors
    /// `lost` where data is gone for good.
    pub fn chunk(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        let length = self.remaining().min(bytes_max as u64).min(READ_BYTES_MAX);
        if length == 0 {
            return Ok(None);
        }
        let chunk = self.reader.range(self.range.start..self.range.start + length)?;
        if chunk.is_empty() {
            return Err(fanfold::Error::new(fanfold::ErrorKind::Lost, "a block ended before its size"));
        }
        self.range.start += chunk.len() as u64;
        self.read.set(self.read.get() + chunk.len() as u64);
        Ok(Some(chunk))
    }

    /// All that is left, what [`BufRead`] holds aside.
    ///
    /// # Errors
    /// `limit` if it does not fit into this instance's memory, `lost` where data is gone for good.
    pub fn rest(&mut self) -> Result<Vec<u8>> {
        let all = self.reader.range(self.range.clone())?;
        self.read.set(self.read.get() + all.len() as u64);
        self.range.start = self.range.end;
        Ok(all)
    }
}

impl BufRead for Stream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.consumed == self.buffer.len() {
            self.buffer = self.chunk(BUFFER_BYTES)?.unwrap_or_default();
            self.consumed = 0;
        }
        Ok(&self.buffer[self.consumed..])
    }

    fn consume(&mut self, amount: usize) {
        self.consumed = self.buffer.len().min(self.consumed + amount);
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let n = available.len().min(out.len());
        out[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }
}
