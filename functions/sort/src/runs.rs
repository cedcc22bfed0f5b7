//! Sorting by merging: maps sort their splits, merges and reducers merge sorted runs.
//!
//! The classical way. A reducer holds one buffer per run, whatever the keys; each record is compared with as many others
//! as the number of runs has bits.

use fanfold::Result;
use fanfold_shuffle::{
    Blocks, Column, Columns, Exchange, Stream,
    kernel::{
        merge::{self, Run},
        record::{CHUNK_BYTES, Chunk, RECORD_BYTES, Record, key},
        sort::Sorter,
    },
    partition::Ranges,
    split::Split,
};

use crate::{
    output::{Part, PartWriter},
    read,
};

/// Bytes of buffers for all runs of a merge together.
const BUFFERS_BYTES: usize = 16 << 20;
/// Bytes of one run's buffer at least: reading less at a time costs more than it saves.
const BUFFER_BYTES_MIN: usize = 64_000;
const _: () = assert!(BUFFER_BYTES_MIN.is_multiple_of(RECORD_BYTES));

/// See the module.
pub struct Runs {
    /// The columns. Reducers and merges need none.
    pub ranges: Option<Ranges>,
    /// What the output's keys start with.
    pub output: String,
    /// Whether reducers compute checksums.
    pub checksum: bool,
}

impl Exchange for Runs {
    type Split = Split;
    type Reduced = Part;
    const WHOLE: bool = true;

    fn map(&self, split: Split, out: &mut Blocks) -> Result<()> {
        let ranges = self.ranges.as_ref().ok_or_else(|| fanfold::Error::guest("a map needs boundaries"))?;
        let mut chunks = Vec::new();
        read::chunks(split, out, |chunk| chunks.push(chunk))?;
        out.took(chunks.iter().map(|chunk| (chunk.len() / RECORD_BYTES) as u64).sum());
        let mut block = Block::new(out);
        for record in Sorter::default().sort(&chunks) {
            block.push(ranges.column(key(record), || 0), record)?;
        }
        block.finish()
    }

    fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()> {
        let number = column.number;
        out.took(column.bytes() / RECORD_BYTES as u64);
        let mut block = Block::new(out);
        merge::merge(buffered(column), |record| block.push(number, record))?;
        block.finish()
    }

    fn reduce(&self, reducer: u32, columns: &mut Columns) -> Result<Part> {
        let mut part = PartWriter::new(&self.output, reducer, self.checksum)?;
        let mut taken = 0;
        while let Some(column) = columns.next() {
            taken += column.bytes() / RECORD_BYTES as u64;
            merge::merge(buffered(column), |record| part.push(record))?;
        }
        let part = part.finish()?;
        columns.took(taken);
        columns.gave(part.records);
        Ok(part)
    }
}

/// Collects records of one block after the other before they are written.
struct Block<'a> {
    out: &'a mut Blocks,
    column: u32,
    chunk: Chunk,
}

impl<'a> Block<'a> {
    fn new(out: &'a mut Blocks) -> Self {
        Self { column: out.columns().start, out, chunk: Chunk::default() }
    }

    #[inline]
    fn push(&mut self, column: u32, record: &Record) -> Result<()> {
        if column != self.column || self.chunk.is_full() {
            self.flush()?;
            self.column = column;
        }
        self.chunk.push(record);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.chunk.records() == 0 {
            return Ok(());
        }
        self.out.write(self.column, self.chunk.bytes())?;
        self.out.gave(self.chunk.records() as u64);
        self.chunk.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()
    }
}

/// A block of sorted records, read in pieces of whole records.
struct Sorted<'a> {
    stream: Stream<'a>,
    buffer_bytes: usize,
}

impl Run for Sorted<'_> {
    fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        self.stream.chunk(self.buffer_bytes)
    }
}

fn buffered(column: Column<'_>) -> Vec<Sorted<'_>> {
    let share = BUFFERS_BYTES / column.streams.len().max(1) / RECORD_BYTES * RECORD_BYTES;
    let buffer_bytes = share.clamp(BUFFER_BYTES_MIN, CHUNK_BYTES);
    column.streams.into_iter().map(|stream| Sorted { stream, buffer_bytes }).collect()
}
