//! Sorting records that are in memory.
//!
//! Not the records are sorted but 16 bytes for each: the key, and where its record is. One pass of radix sort, on as many
//! of the first differing bits as there are records, leaves groups of a few entries, which are sorted by comparison; then
//! every record is copied once, to where it belongs. For a million random keys that is a third of the comparisons' time;
//! for keys that are mostly equal it is no worse than comparing.

use super::record::{CHUNK_BYTES, RECORD_BYTES, Record, prefix, records, tail};

/// Groups of the radix pass, as a power of two: their counters stay in the first-level cache.
const RADIX_BITS_MAX: u32 = 13;
/// If no group is larger, they are sorted by insertion.
const INSERTION_MAX: usize = 20;
/// Bits of an entry's position that count records within a chunk: as many as a chunk has.
const INDEX_BITS: u32 = 14;
const _: () = assert!(CHUNK_BYTES / RECORD_BYTES <= 1 << INDEX_BITS);

/// A key, and where its record is. Comparing entries compares keys, then positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Entry {
    /// The first eight bytes of the key.
    prefix: u64,
    /// From the top: the last two bytes of the key, the number of the chunk, the number of the record in it.
    rest: u64,
}

impl Entry {
    #[inline]
    fn new(record: &Record, chunk: usize, index: usize) -> Self {
        let position = (chunk as u64) << INDEX_BITS | index as u64;
        Self { prefix: prefix(record), rest: u64::from(tail(record)) << 48 | position }
    }

    #[inline]
    fn record<'a>(&self, chunks: &[&'a [Record]]) -> &'a Record {
        let position = self.rest & ((1 << 48) - 1);
        &chunks[(position >> INDEX_BITS) as usize][(position & ((1 << INDEX_BITS) - 1)) as usize]
    }

    fn same_key(&self, other: &Self) -> bool {
        self.prefix == other.prefix && self.rest >> 48 == other.rest >> 48
    }
}

/// Sorts; its memory (32 bytes per record of the largest sort) is used again for the next one.
#[derive(Default, Debug)]
pub struct Sorter {
    entries: Vec<Entry>,
    scratch: Vec<Entry>,
    counts: Vec<u32>,
    /// The least and the greatest prefix.
    range: (u64, u64),
}

impl Sorter {
    /// The records of `chunks` (of at most [`CHUNK_BYTES`] each) in order of their keys. Records of equal keys are in the
    /// order of all their bytes, so that the result depends on nothing but the records.
    pub fn sort<'a>(&'a mut self, chunks: &'a [Vec<u8>]) -> impl Iterator<Item = &'a Record> {
        let chunks: Vec<&[Record]> = chunks.iter().map(|chunk| records(chunk)).collect();
        self.load(&chunks);
        if self.order() {
            order_equal(&mut self.entries, &chunks);
        }
        self.entries.iter().map(move |entry| entry.record(&chunks))
    }

    /// Makes the entries and finds the range of their keys. (The steps are functions of their own, and are not inlined:
    /// WebAssembly's compilers run out of registers in large functions sooner than native ones.)
    #[inline(never)]
    fn load(&mut self, chunks: &[&[Record]]) {
        self.entries.clear();
        self.entries.reserve(chunks.iter().map(|chunk| chunk.len()).sum());
        self.range = (u64::MAX, 0);
        for (number, chunk) in chunks.iter().enumerate() {
            let (mut least, mut most) = self.range;
            let entry = |(n, record): (usize, &Record)| {
                let entry = Entry::new(record, number, n);
                (least, most) = (least.min(entry.prefix), most.max(entry.prefix));
                entry
            };
            self.entries.extend(chunk.iter().enumerate().map(entry));
            self.range = (least, most);
        }
    }

    /// Sorts the entries; whether some of their keys may be equal.
    fn order(&mut self) -> bool {
        let (least, most) = self.range;
        if self.entries.len() <= INSERTION_MAX || least == most {
            self.entries.sort_unstable();
            return true;
        }
        let bits = self.entries.len().ilog2().min(RADIX_BITS_MAX);
        // The highest bit in which keys differ is the highest that counts.
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(bits);
        self.counts.clear();
        self.counts.resize((1 << bits) + 1, 0);
        self.scratch.resize(self.entries.len(), Entry::default());
        let largest = count(&self.entries, least, shift, &mut self.counts);
        deal(&self.entries, least, shift, &mut self.counts, &mut self.scratch);
        std::mem::swap(&mut self.entries, &mut self.scratch);
        if largest as usize <= INSERTION_MAX {
            // Nothing moves further than its group is long, so this needs not know where groups are.
            return insertion_sort(&mut self.entries);
        }
        // Each counter is now where its group ends.
        let mut start = 0;
        for end in &self.counts[..1 << bits] {
            self.entries[start..*end as usize].sort_unstable();
            start = *end as usize;
        }
        true
    }
}

/// Where each group starts; returns the size of the largest.
#[inline(never)]
fn count(entries: &[Entry], least: u64, shift: u32, counts: &mut [u32]) -> u32 {
    entries.iter().for_each(|entry| counts[((entry.prefix - least) >> shift) as usize + 1] += 1);
    let (mut sum, mut largest) = (0, 0);
    for count in counts {
        largest = largest.max(*count);
        sum += *count;
        *count = sum;
    }
    largest
}

/// Moves each entry to its group.
#[inline(never)]
fn deal(entries: &[Entry], least: u64, shift: u32, starts: &mut [u32], to: &mut [Entry]) {
    for entry in entries {
        let start = &mut starts[((entry.prefix - least) >> shift) as usize];
        to[*start as usize] = *entry;
        *start += 1;
    }
}

/// Puts entries with equal keys in the order of their records.
#[inline(never)]
fn order_equal(entries: &mut [Entry], chunks: &[&[Record]]) {
    let mut start = 0;
    while let Some(next) = entries[start..].windows(2).position(|pair| pair[0].same_key(&pair[1])) {
        start += next;
        let first = entries[start];
        let count = entries[start..].iter().take_while(|other| other.same_key(&first)).count();
        entries[start..start + count].sort_by(|a, b| a.record(chunks).cmp(b.record(chunks)));
        start += count;
    }
}

/// Sorts entries that are nearly in order; whether some of their keys may be equal.
#[inline(never)]
fn insertion_sort(entries: &mut [Entry]) -> bool {
    let mut equal = false;
    for at in 1..entries.len() {
        let entry = entries[at];
        let mut to = at;
        while let Some(before) = to.checked_sub(1).map(|place| entries[place]) {
            equal |= before.prefix == entry.prefix;
            if before <= entry {
                break;
            }
            entries[to] = before;
            to -= 1;
        }
        entries[to] = entry;
    }
    equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::record::tests::{make, shapes};

    #[test]
    fn sorting_equals_the_standard_sort_whatever_the_keys() {
        let mut sorter = Sorter::default();
        for (shape, count) in shapes() {
            let bytes = make(shape, count, 7);
            // Chunks of several sizes, one of them empty.
            let (head, tail) = bytes.split_at(count / 3 * RECORD_BYTES);
            let chunks: Vec<Vec<u8>> =
                [head, &[], tail].iter().flat_map(|part| part.chunks(CHUNK_BYTES)).map(Vec::from).collect();
            let mut expected = records(&bytes).to_vec();
            expected.sort_unstable();
            let sorted: Vec<Record> = sorter.sort(&chunks).copied().collect();
            assert!(sorted == expected, "{count} records, {shape:?}");
        }
    }
}
