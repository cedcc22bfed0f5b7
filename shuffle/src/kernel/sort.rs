//! Sorting records that are in memory.
//!
//! Not the records are sorted but 16 bytes for each: the key, and where its record is. One pass of radix sort, on as many
//! of the first differing bits as there are records, leaves groups of a few entries, which are sorted by comparison; then
//! every record is copied once, to where it belongs. For a million random keys that is a third of the comparisons' time;
//! for keys that are mostly equal it is no worse than comparing.

use fanfold::Result;

use super::record::{CHUNK_BYTES, RECORD_BYTES, Record, prefix, records, tail};

/// Groups of the radix pass, as a power of two: their counters stay in the first-level cache.
const RADIX_BITS_MAX: u32 = 12;
/// Groups up to this size are sorted by insertion.
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
}

impl Sorter {
    /// Calls `emit` with the records of `chunks` (of at most [`CHUNK_BYTES`] each) in order of their keys. Records of equal
    /// keys are in the order of all their bytes, so that the result depends on nothing but the records.
    ///
    /// # Errors
    /// The first of `emit`.
    pub fn sort(&mut self, chunks: &[Vec<u8>], mut emit: impl FnMut(&Record) -> Result<()>) -> Result<()> {
        let chunks: Vec<&[Record]> = chunks.iter().map(|chunk| records(chunk)).collect();
        self.entries.clear();
        self.entries.reserve(chunks.iter().map(|chunk| chunk.len()).sum());
        for (number, chunk) in chunks.iter().enumerate() {
            let entries = chunk.iter().enumerate().map(|(n, record)| Entry::new(record, number, n));
            self.entries.extend(entries);
        }
        self.order();
        let mut start = 0;
        while start < self.entries.len() {
            let first = self.entries[start];
            let same = self.entries[start + 1..].iter().take_while(|other| other.same_key(&first)).count();
            let run = &mut self.entries[start..=start + same];
            if same > 0 {
                run.sort_by(|a, b| a.record(&chunks).cmp(b.record(&chunks)));
            }
            run.iter().try_for_each(|entry| emit(entry.record(&chunks)))?;
            start += same + 1;
        }
        Ok(())
    }

    /// Sorts the entries.
    fn order(&mut self) {
        let Self { entries, scratch, counts } = self;
        let bits = entries.len().checked_ilog2().unwrap_or(0).min(RADIX_BITS_MAX);
        let (least, most) = entries
            .iter()
            .fold((u64::MAX, 0), |(least, most), entry| (least.min(entry.prefix), most.max(entry.prefix)));
        if entries.len() <= INSERTION_MAX || least == most {
            entries.sort_unstable();
            return;
        }
        // The highest bit in which keys differ is the highest that counts.
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(bits);
        let group = |entry: &Entry| ((entry.prefix - least) >> shift) as usize;
        counts.clear();
        counts.resize((1 << bits) + 1, 0);
        entries.iter().for_each(|entry| counts[group(entry) + 1] += 1);
        for n in 1..counts.len() {
            counts[n] += counts[n - 1];
        }
        scratch.clear();
        scratch.resize(entries.len(), Entry::default());
        for entry in entries.iter() {
            let place = &mut counts[group(entry)];
            scratch[*place as usize] = *entry;
            *place += 1;
        }
        std::mem::swap(entries, scratch);
        // Each counter is now where its group ends.
        let mut start = 0;
        for end in &counts[..1 << bits] {
            sort_group(&mut entries[start..*end as usize]);
            start = *end as usize;
        }
    }
}

#[inline]
fn sort_group(group: &mut [Entry]) {
    if group.len() > INSERTION_MAX {
        group.sort_unstable();
        return;
    }
    for at in 1..group.len() {
        let entry = group[at];
        let mut to = at;
        while to > 0 && group[to - 1] > entry {
            group[to] = group[to - 1];
            to -= 1;
        }
        group[to] = entry;
    }
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
            let mut sorted = Vec::new();
            let emit = |record: &Record| {
                sorted.push(*record);
                Ok(())
            };
            sorter.sort(&chunks, emit).unwrap();
            assert!(sorted == expected, "{count} records, {shape:?}");
        }
    }
}
