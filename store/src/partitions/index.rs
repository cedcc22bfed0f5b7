//! What a reader must know of a partition: where its blocks are, what they refer to, and checksums.

use std::ops::Range;

use fanfold_protocol::{PartitionId, value::PartitionMeta};

use super::combine;

/// Bytes of data under one checksum, at most: what a read of one byte costs, and the reason why four bytes of index
/// per quarter of a megabyte are enough.
pub const UNIT_BYTES: u64 = 256 << 10;

/// A block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Bytes of the partition before it.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Checksum of its data.
    pub crc32c: u32,
}

/// A run of data under one checksum; a block is made of whole ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit {
    pub(super) end: u64,
    pub(super) crc32c: u32,
}

/// The blocks of a partition, in order and without gaps, and the partitions its data refers to.
///
/// Memory: 8 bytes a block and 16 per unit of at most [`UNIT_BYTES`], each non-empty block having at least one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    pub(super) block_ends: Vec<u64>,
    pub(super) units: Vec<Unit>,
    pub(super) refs: Vec<PartitionId>,
    pub(super) crc32c: u32,
}

impl Index {
    /// Starts the index of a new partition.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The index of data that is one block (none where it is empty).
    pub fn of(data: &[u8]) -> Self {
        let mut builder = Builder::default();
        builder.write(data);
        builder.finish()
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.block_ends.last().copied().unwrap_or(0)
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.block_ends.len()
    }

    /// Whether there are no blocks, hence no data.
    pub fn is_empty(&self) -> bool {
        self.block_ends.is_empty()
    }

    /// Where block `n` is; `None` past the last.
    pub fn block_range(&self, n: usize) -> Option<Range<u64>> {
        let end = *self.block_ends.get(n)?;
        Some(n.checked_sub(1).map_or(0, |before| self.block_ends[before])..end)
    }

    /// Block `n`; `None` past the last.
    pub fn block(&self, n: usize) -> Option<Block> {
        let range = self.block_range(n)?;
        let first = self.units.partition_point(|unit| unit.end <= range.start);
        let (mut at, mut crc) = (range.start, 0);
        for unit in self.units[first..].iter().take_while(|unit| unit.end <= range.end) {
            crc = combine(crc, unit.crc32c, unit.end - at);
            at = unit.end;
        }
        Some(Block { offset: range.start, length: range.end - range.start, crc32c: crc })
    }

    /// All blocks, in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = Block> + '_ {
        (0..self.len()).map(|n| self.block(n).unwrap_or(Block { offset: 0, length: 0, crc32c: 0 }))
    }

    /// Where blocks `first..first + count` are together; `None` where there are not so many.
    pub fn blocks_range(&self, first: u32, count: u32) -> Option<Range<u64>> {
        let last = (first as usize).checked_add(count as usize)?.checked_sub(1)?;
        Some(self.block_range(first as usize)?.start..self.block_range(last)?.end)
    }

    /// Partitions that the data refers to.
    pub fn refs(&self) -> &[PartitionId] {
        &self.refs
    }

    /// Bytes of memory that it takes, about.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of_val(self.block_ends.as_slice())
            + size_of_val(self.units.as_slice())
            + size_of_val(self.refs.as_slice())
    }

    /// Shape and checksum, as records have them.
    pub fn meta(&self) -> PartitionMeta {
        PartitionMeta { bytes: self.bytes(), blocks: self.len() as u32, crc32c: self.crc32c }
    }

    /// `range` widened to whole units: what must be read so that all of it can be verified.
    pub fn units_around(&self, range: Range<u64>) -> Range<u64> {
        let first = self.units.partition_point(|unit| unit.end <= range.start);
        let last = self.units.partition_point(|unit| unit.end < range.end);
        let start = first.checked_sub(1).map_or(0, |before| self.units[before].end);
        start..self.units.get(last).map_or(self.bytes(), |unit| unit.end)
    }

    /// Verifies `bytes`, which begin at `offset`, as far as they hold whole units.
    ///
    /// # Errors
    /// Says which block is damaged.
    pub fn verify(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let first = self.units.partition_point(|unit| unit.end <= offset);
        let mut start = first.checked_sub(1).map_or(0, |before| self.units[before].end);
        let end = offset + bytes.len() as u64;
        for unit in self.units[first..].iter().take_while(|unit| unit.end <= end) {
            if start >= offset {
                let data = &bytes[(start - offset) as usize..(unit.end - offset) as usize];
                if crc32c::crc32c(data) != unit.crc32c {
                    let block = self.block_ends.partition_point(|end| *end <= start);
                    return Err(format!(
                        "bytes {start} to {} (of block {block}) have another checksum",
                        unit.end
                    ));
                }
            }
            start = unit.end;
        }
        Ok(())
    }

    pub(super) fn push_unit(&mut self, length: u64, crc32c: u32) {
        let start = self.units.last().map_or(0, |unit| unit.end);
        self.units.push(Unit { end: start + length, crc32c });
        self.crc32c = combine(self.crc32c, crc32c, length);
    }
}

/// Makes an index while the data is written: every byte is looked at once.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    index: Index,
    /// Bytes and checksum of the unit being written.
    unit: (u64, u32),
    /// Whether bytes were written since the last block ended.
    open: bool,
}

impl Builder {
    /// More data of the current block.
    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.open = true;
            let room = (UNIT_BYTES - self.unit.0).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(room as usize);
            self.unit = (self.unit.0 + room, crc32c::crc32c_append(self.unit.1, now));
            if self.unit.0 == UNIT_BYTES {
                self.end_unit();
            }
            bytes = later;
        }
    }

    /// Ends the current block, which may be empty; its number.
    pub fn end_block(&mut self) -> u32 {
        self.end_unit();
        self.open = false;
        self.index.block_ends.push(self.index.units.last().map_or(0, |unit| unit.end));
        self.index.block_ends.len() as u32 - 1
    }

    /// A whole block; its number.
    pub fn push_block(&mut self, bytes: &[u8]) -> u32 {
        self.write(bytes);
        self.end_block()
    }

    /// Names a partition that the data refers to.
    pub fn add_ref(&mut self, id: PartitionId) {
        self.index.refs.push(id);
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.index.units.last().map_or(0, |unit| unit.end) + self.unit.0
    }

    /// Blocks ended so far.
    pub fn blocks(&self) -> u32 {
        self.index.block_ends.len() as u32
    }

    /// The index. Data after the last ended block is a block of its own.
    pub fn finish(mut self) -> Index {
        if self.open {
            self.end_block();
        }
        self.index
    }

    fn end_unit(&mut self) {
        let (length, crc) = std::mem::take(&mut self.unit);
        if length > 0 {
            self.index.push_unit(length, crc);
        }
    }
}
