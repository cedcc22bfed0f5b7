//! The record of the sort benchmarks: 100 bytes, of which the first 10 are the key. Format: <http://www.ordinal.com/gensort.html>.

use crate::partition::Key;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 100;
/// Bytes of its key.
pub const KEY_BYTES: usize = 10;
/// Bytes of the largest read or write that consists of whole records (at most 1 MiB).
pub const CHUNK_BYTES: usize = (1 << 20) / RECORD_BYTES * RECORD_BYTES;

/// One record.
pub type Record = [u8; RECORD_BYTES];

/// The records in `bytes`; what is left over at the end is left out.
#[inline]
pub fn records(bytes: &[u8]) -> &[Record] {
    bytes.as_chunks().0
}

/// The first eight bytes of a record's key, as a number in the order of the keys.
#[inline]
pub fn prefix(record: &Record) -> u64 {
    u64::from_be_bytes(*record.first_chunk().unwrap_or(&[0; 8]))
}

/// The two bytes after these.
#[inline]
pub fn tail(record: &Record) -> u16 {
    u16::from_be_bytes([record[8], record[9]])
}

/// The whole key.
#[inline]
pub fn key(record: &Record) -> Key {
    Key { high: prefix(record), low: u64::from(tail(record)) << 48 }
}

/// Something that differs between records of one key: the bytes after the key, mixed.
pub fn payload_hash(record: &Record) -> u64 {
    crate::hash(&record[KEY_BYTES..])
}

/// Copies a record. In steps of a known size, because for a hundred bytes at once the compiler makes a call, which in
/// WebAssembly costs more than the copy.
#[inline]
pub fn copy(to: &mut Record, from: &Record) {
    let ((to, to_end), (from, from_end)) = (to.as_chunks_mut::<16>(), from.as_chunks::<16>());
    if let ([a, b, c, d, e, f], [p, q, r, s, t, u]) = (to, from) {
        (*a, *b, *c, *d, *e, *f) = (*p, *q, *r, *s, *t, *u);
    }
    to_end.copy_from_slice(from_end);
}

/// Records that can be copied many at once, which is faster than one after the other.
pub trait Copies {
    /// Copies the next records to the beginning of `room`; how many. Fewer than there is room for are the last ones.
    fn copy_to(&mut self, room: &mut [Record]) -> usize;
}

/// A buffer of [`CHUNK_BYTES`] that records are copied into.
#[derive(Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    length: usize,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { bytes: vec![0; CHUNK_BYTES], length: 0 }
    }
}

impl Chunk {
    /// Appends a record; one that is full must be cleared first.
    ///
    /// # Panics
    /// If it is full.
    #[inline]
    pub fn push(&mut self, record: &Record) {
        copy(&mut self.bytes.as_chunks_mut().0[self.length], record);
        self.length += 1;
    }

    /// Appends records until it is full or there are no more.
    pub fn fill(&mut self, records: &mut impl Copies) {
        let room = &mut self.bytes.as_chunks_mut().0[self.length..];
        self.length += records.copy_to(room);
    }

    /// Whether it has no room left.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.length == CHUNK_BYTES / RECORD_BYTES
    }

    /// How many records it has.
    pub fn records(&self) -> usize {
        self.length
    }

    /// The records' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length * RECORD_BYTES]
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.length = 0;
    }
}

const _: () = assert!(KEY_BYTES == 10 && CHUNK_BYTES <= 1 << 20);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::random::Random;

    /// How keys are distributed.
    #[derive(Clone, Copy, Debug)]
    pub enum Shape {
        Random,
        Equal,
        /// Keys that differ in the last byte only.
        Tail,
        Sorted,
        Reversed,
        /// Nine of ten records have one key, and pairs of records are equal throughout.
        Skewed,
    }

    /// Every shape with sizes around the thresholds.
    pub fn shapes() -> impl Iterator<Item = (Shape, usize)> {
        use Shape::{Equal, Random, Reversed, Skewed, Sorted, Tail};
        let shapes = [Random, Equal, Tail, Sorted, Reversed, Skewed];
        shapes.into_iter().flat_map(|shape| [0, 1, 2, 21, 1_000, 30_000].map(|count| (shape, count)))
    }

    /// `count` records.
    pub fn make(shape: Shape, count: usize, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed, count as u64);
        let mut bytes = Vec::with_capacity(count * RECORD_BYTES);
        for n in 0..count as u64 {
            let mut record = [0; RECORD_BYTES];
            let (prefix, tail) = match shape {
                Shape::Random => (random.next_u64(), random.next_u64() as u16),
                Shape::Equal => (5, 5),
                Shape::Tail => (5, random.below(256) as u16),
                Shape::Sorted => (n << 20, 0),
                Shape::Reversed => ((count as u64 - n) << 20, 0),
                Shape::Skewed if random.below(10) > 0 => (1 << 60, 1),
                Shape::Skewed => (random.next_u64(), 2),
            };
            record[..8].copy_from_slice(&prefix.to_be_bytes());
            record[8..10].copy_from_slice(&tail.to_be_bytes());
            let payload =
                if matches!(shape, Shape::Skewed) { random.below(3) } else { random.below(1 << 30) };
            record[90..94].copy_from_slice(&payload.to_be_bytes());
            bytes.extend(record);
        }
        bytes
    }
}
