//! The bytes of a partition in memory: segments of one size, so that an offset finds its segment by division and a
//! growing partition is never moved.
//!
//! Promises: a slice within one segment shares its memory; only one that crosses a border is copied. A whole segment is a huge page,
//! where the system has them, and its memory is used again.

use std::{mem, ops::Range};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::limit::{HOST_CALL_BYTES_MAX, READ_AHEAD_ALL_BYTES_MAX};
use fanfold_store::memory::{HUGE_BYTES, Pool, Pooled, READS};

/// Size of every segment but the last. A multiple of the largest read, so that a reader who reads in full steps from the
/// start never pays for a copy.
pub const SEGMENT_BYTES: usize = HUGE_BYTES;
const _: () = assert!(SEGMENT_BYTES.is_multiple_of(HOST_CALL_BYTES_MAX));

/// Smallest allocation of a growing segment: most partitions are either tiny or many segments long.
const FIRST_ALLOCATION: usize = 4 << 10;

/// Memory of whole segments: what partitions give back when they were spilled, and objects when they were written, the next ones take.
static POOL: Pool = Pool::new(OBJECTS_BYTES);
/// Of it, for objects that are being written.
const OBJECTS_BYTES: usize = 64 << 20;

/// Has pools keep no more, with what is in use, than an executor with `cache_memory` bytes for partitions needs: beside these there are
/// objects that are written; what tasks may have read ahead is half as much, and half of that again is read without being counted.
/// Pools are the process's: where it has several executors, the last one says.
pub fn bound_pools(cache_memory: u64) {
    let memory = usize::try_from(cache_memory).unwrap_or(usize::MAX);
    POOL.bound(memory.saturating_add(OBJECTS_BYTES.min(memory / 4)));
    READS.bound(READ_AHEAD_ALL_BYTES_MAX.min(memory / 4 * 3));
}

/// Immutable bytes.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    list: Vec<Bytes>,
    bytes: u64,
}

impl Segments {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segments in order.
    pub fn chunks(&self) -> &[Bytes] {
        &self.list
    }

    /// The bytes of `range`, cut at the end of the data, as slices of the segments.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Bytes> + '_ {
        let (start, end) = (range.start.min(self.bytes), range.end.min(self.bytes));
        let segments = if start < end { segment_of(start)..segment_of(end - 1) + 1 } else { 0..0 };
        segments.map(move |number| {
            let (segment, base) = (&self.list[number], number as u64 * SEGMENT_BYTES as u64);
            let from = start.saturating_sub(base) as usize;
            segment.slice(from..((end - base) as usize).min(segment.len()))
        })
    }

    /// The bytes of `range`, cut at the end of the data. Copies only where the range crosses a segment's border.
    pub fn slice(&self, range: Range<u64>) -> Bytes {
        let (start, end) = (range.start.min(self.bytes), range.end.min(self.bytes));
        if start >= end {
            return Bytes::new();
        }
        let (first, last) = (segment_of(start), segment_of(end - 1));
        if first == last {
            let base = first as u64 * SEGMENT_BYTES as u64;
            return self.list[first].slice((start - base) as usize..(end - base) as usize);
        }
        let mut joined = BytesMut::with_capacity((end - start) as usize);
        for (number, segment) in self.list[first..=last].iter().enumerate() {
            let base = (first + number) as u64 * SEGMENT_BYTES as u64;
            let from = start.saturating_sub(base) as usize;
            let to = ((end - base) as usize).min(segment.len());
            joined.extend_from_slice(&segment[from..to]);
        }
        joined.freeze()
    }
}

/// Splits without copying.
impl From<Bytes> for Segments {
    fn from(mut whole: Bytes) -> Self {
        let bytes = whole.len() as u64;
        let mut list = Vec::with_capacity(whole.len().div_ceil(SEGMENT_BYTES));
        while !whole.is_empty() {
            list.push(whole.split_to(whole.len().min(SEGMENT_BYTES)));
        }
        Self { list, bytes }
    }
}

fn segment_of(offset: u64) -> usize {
    (offset / SEGMENT_BYTES as u64) as usize
}

/// Segments that still grow.
#[derive(Debug, Default)]
pub struct Growing {
    full: Vec<Bytes>,
    tail: Tail,
    /// Whether a segment was filled: what has one is long, and its later segments are made at once, not grown.
    long: bool,
}

impl Growing {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        (self.full.len() * SEGMENT_BYTES + self.tail.length()) as u64
    }

    /// How much memory appending `more` bytes will take beyond what is taken now.
    pub fn growth(&self, more: usize) -> usize {
        let room = self.tail.capacity() - self.tail.length();
        if more <= room { 0 } else { self.reserved_for(more) - self.tail.capacity() }
    }

    /// Memory of the tail and the segments after it once `more` bytes are appended.
    fn reserved_for(&self, more: usize) -> usize {
        let wanted = self.tail.length() + more;
        let (full, rest) = (wanted / SEGMENT_BYTES, wanted % SEGMENT_BYTES);
        full * SEGMENT_BYTES + if rest == 0 { 0 } else { allocation(rest, self.long || full > 0) }
    }

    /// Appends a copy of `bytes`.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min(SEGMENT_BYTES - self.tail.length());
            let wanted = self.tail.length() + take;
            if wanted > self.tail.capacity() {
                self.tail.grow(allocation(wanted, self.long));
            }
            self.tail.append(&bytes[..take]);
            bytes = &bytes[take..];
            if self.tail.length() == SEGMENT_BYTES {
                self.full.push(mem::take(&mut self.tail).shared());
                self.long = true;
            }
        }
    }

    /// Takes out the segments that are full.
    pub fn take_full(&mut self) -> Vec<Bytes> {
        mem::take(&mut self.full)
    }

    /// What is in the last segment, however much memory it has.
    pub fn into_tail(self) -> Bytes {
        self.tail.shared()
    }

    /// The finished bytes. A last segment that uses under three quarters of its memory is moved to a fitting one.
    pub fn finish(mut self) -> Segments {
        let bytes = self.bytes();
        if self.tail.length() > 0 {
            let capacity = self.tail.capacity();
            let wasteful = (capacity - self.tail.length()) * 4 > capacity;
            let tail = self.tail.shared();
            self.full.push(if wasteful { Bytes::copy_from_slice(&tail) } else { tail });
        }
        Segments { list: self.full, bytes }
    }
}

/// The segment that grows.
#[derive(Debug)]
enum Tail {
    /// In memory that fits, more or less.
    Fitting(Vec<u8>),
    /// In memory of a whole segment, and how much of that is used.
    Whole(Pooled, usize),
}

impl Default for Tail {
    fn default() -> Self {
        Self::Fitting(Vec::new())
    }
}

impl Tail {
    fn length(&self) -> usize {
        match self {
            Self::Fitting(bytes) => bytes.len(),
            Self::Whole(_, used) => *used,
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Fitting(bytes) => bytes.capacity(),
            Self::Whole(..) => SEGMENT_BYTES,
        }
    }

    /// Gives it memory of exactly `bytes`.
    fn grow(&mut self, bytes: usize) {
        let Self::Fitting(fitting) = self else { return };
        if bytes == SEGMENT_BYTES
            && let Ok(mut memory) = POOL.take(bytes)
        {
            memory.as_mut()[..fitting.len()].copy_from_slice(fitting);
            *self = Self::Whole(memory, fitting.len());
            return;
        }
        fitting.reserve_exact(bytes - fitting.len());
    }

    /// Appends bytes for which there is room.
    fn append(&mut self, bytes: &[u8]) {
        match self {
            Self::Fitting(fitting) => fitting.extend_from_slice(bytes),
            Self::Whole(memory, used) => {
                memory.as_mut()[*used..][..bytes.len()].copy_from_slice(bytes);
                *used += bytes.len();
            }
        }
    }

    /// The bytes, without copying.
    fn shared(self) -> Bytes {
        match self {
            Self::Fitting(bytes) => bytes.into(),
            Self::Whole(mut memory, used) => {
                memory.truncate(used);
                Bytes::from_owner(memory)
            }
        }
    }
}

/// The capacity of a segment that holds `bytes`; of something `long`, that of every segment.
fn allocation(bytes: usize, long: bool) -> usize {
    if long { SEGMENT_BYTES } else { bytes.next_power_of_two().clamp(FIRST_ALLOCATION, SEGMENT_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 7 % 251) as u8).collect()
    }

    #[test]
    fn every_slice_equals_the_flat_bytes() {
        let flat = pattern(2 * SEGMENT_BYTES + 5000);
        let mut growing = Growing::default();
        for piece in flat.chunks(70_001) {
            growing.append(piece);
        }
        let grown = growing.finish();
        let split = Segments::from(Bytes::from(flat.clone()));
        let edge = SEGMENT_BYTES as u64;
        let ranges = [
            0..0,
            0..1,
            0..edge,
            1..edge + 1,
            edge - 1..edge + 1,
            edge..2 * edge,
            3..u64::MAX,
            1 << 40..1 << 41,
        ];
        for range in ranges {
            let (start, end) = (range.start.min(flat.len() as u64), range.end.min(flat.len() as u64));
            let expected = &flat[start as usize..end as usize];
            assert_eq!(grown.slice(range.clone()), expected, "{range:?} of grown");
            assert_eq!(split.slice(range.clone()), expected, "{range:?} of split");
        }
    }

    #[test]
    fn aligned_reads_share_memory() {
        let mut growing = Growing::default();
        growing.append(&pattern(SEGMENT_BYTES + 10));
        let segments = growing.finish();
        let slice = segments.slice(100..SEGMENT_BYTES as u64);
        assert_eq!(slice.as_ptr(), segments.chunks()[0][100..].as_ptr());
    }

    #[test]
    fn growth_is_what_is_allocated() {
        let mut growing = Growing::default();
        let mut charged = 0;
        for piece in [1, 4095, 1, 100_000, SEGMENT_BYTES, 3 * SEGMENT_BYTES + 17] {
            charged += growing.growth(piece);
            growing.append(&vec![1; piece]);
            let held = growing.full.len() * SEGMENT_BYTES + growing.tail.capacity();
            assert_eq!(charged, held, "after appending {piece}");
        }
    }
}
