//! Sorting records that are in memory.
//!
//! Not the records are sorted but 16 bytes for each: the key, and where its record is. One pass of radix sort, on as many
//! of the first differing bits as there are records, leaves groups of a few entries, which are sorted by comparison; then
//! every record is copied once, to where it belongs. For a million random keys that is a third of the comparisons' time;
//! for keys that are mostly equal it is no worse than comparing.

use std::hint::select_unpredictable;

use super::{
    TURN, in_turns, in_turns_to,
    record::{CHUNK_BYTES, Copies, RECORD_BYTES, Record, copy, prefix, records, tail},
};

/// Groups of the radix pass, as a power of two: 64 KiB of counters. Half as many left more entries to exchange afterwards,
/// and were slower for 20,000 records.
const RADIX_BITS_MAX: u32 = 14;
const GROUPS_MAX: usize = 1 << RADIX_BITS_MAX;
/// More entries than this are first split by so many bits, into parts that are sorted in the cache.
const ONE_PASS_MAX: usize = 1 << 16;
const SPLIT_BITS: u32 = 8;
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
    counts: Counts,
}

impl Sorter {
    /// The records of `chunks` (of at most [`CHUNK_BYTES`] each) in order of their keys. Records of equal keys are in the
    /// order of all their bytes, so that the result depends on nothing but the records.
    pub fn sort<'a>(&'a mut self, chunks: &'a [Vec<u8>]) -> Sorted<'a> {
        let chunks: Vec<&[Record]> = chunks.iter().map(|chunk| records(chunk)).collect();
        let range = self.load(&chunks);
        if self.order(range) {
            order_equal(&mut self.entries, &chunks);
        }
        Sorted { chunks, entries: &self.entries }
    }

    /// Makes the entries; returns the least and the greatest prefix.
    fn load(&mut self, chunks: &[&[Record]]) -> (u64, u64) {
        let count = chunks.iter().map(|chunk| chunk.len()).sum();
        self.entries.resize(count, Entry::default());
        self.scratch.resize(count, Entry::default());
        let mut left = &mut self.entries[..];
        let (mut least, mut most) = (u64::MAX, 0);
        for (number, chunk) in (0..).zip(chunks) {
            let (entries, rest) = left.split_at_mut(chunk.len());
            let range = make_entries(chunk, number << INDEX_BITS, entries);
            (least, most) = (least.min(range.0), most.max(range.1));
            left = rest;
        }
        (least, most)
    }

    /// Sorts the entries; whether some of their keys may be equal.
    fn order(&mut self, (least, most): (u64, u64)) -> bool {
        let Some(span) = most.checked_sub(least).and_then(u64::checked_ilog2) else {
            // All have one prefix, or there are none.
            self.entries.sort_unstable();
            return true;
        };
        let all = Range { least, bits: span + 1 };
        if self.entries.len() <= ONE_PASS_MAX {
            let equal = order(&mut self.entries, all, &mut self.scratch, &mut self.counts);
            std::mem::swap(&mut self.entries, &mut self.scratch);
            return equal;
        }
        let radix = all.radix(SPLIT_BITS);
        radix.count(&self.entries, &mut self.counts);
        radix.deal(&self.entries, &mut self.counts, &mut self.scratch);
        let ends = self.counts.0[..radix.groups].to_vec();
        let (mut equal, mut start) = (false, 0);
        for (number, end) in (0..).zip(ends) {
            let part = start..end as usize;
            let (from, to) = (&mut self.scratch[part.clone()], &mut self.entries[part]);
            equal |= order(from, radix.range(number), to, &mut self.counts);
            start = end as usize;
        }
        equal
    }
}

/// Sorted records: an iterator over them, which also copies many at once.
#[derive(Debug)]
pub struct Sorted<'a> {
    chunks: Vec<&'a [Record]>,
    entries: &'a [Entry],
}

impl<'a> Iterator for Sorted<'a> {
    type Item = &'a Record;

    #[inline]
    fn next(&mut self) -> Option<&'a Record> {
        let (entry, rest) = self.entries.split_first()?;
        self.entries = rest;
        Some(entry.record(&self.chunks))
    }
}

impl Copies for Sorted<'_> {
    fn copy_to(&mut self, room: &mut [Record]) -> usize {
        let length = room.len().min(self.entries.len());
        let (now, later) = self.entries.split_at(length);
        let ((turns, rest), (turns_to, rest_to)) = (now.as_chunks(), room.as_chunks_mut());
        turns.iter().zip(turns_to).for_each(|(turn, to)| copy_turn(turn, &self.chunks, to));
        rest.iter().zip(rest_to).for_each(|(entry, to)| copy(to, entry.record(&self.chunks)));
        self.entries = later;
        length
    }
}

/// Copies a few records. Not inlined, because only places that are counted from an argument become constants of
/// WebAssembly's loads and stores; in a loop each would be computed.
#[inline(never)]
fn copy_turn(entries: &[Entry; TURN], chunks: &[&[Record]], to: &mut [Record; TURN]) {
    entries.iter().zip(to).for_each(|(entry, to)| copy(to, entry.record(chunks)));
}

// The steps are functions of their own, and are not inlined: WebAssembly's compilers run out of registers in large
// functions sooner than native ones.

/// Makes the entries of a chunk whose first record has the position `first`; returns the least and the greatest prefix.
#[inline(never)]
fn make_entries(chunk: &[Record], first: u64, entries: &mut [Entry]) -> (u64, u64) {
    let (mut least, mut most, mut position) = (u64::MAX, 0, first);
    in_turns_to(chunk, entries, |record, entry| {
        let prefix = prefix(record);
        (least, most) = (least.min(prefix), most.max(prefix));
        *entry = Entry { prefix, rest: u64::from(tail(record)) << 48 | position };
        position += 1;
    });
    (least, most)
}

/// Sorts `from`, whose prefixes are in `range`, into `to`, which has the same length; whether some of the keys may be
/// equal.
fn order(from: &mut [Entry], range: Range, to: &mut [Entry], counts: &mut Counts) -> bool {
    if from.len() <= INSERTION_MAX {
        from.sort_unstable();
        to.copy_from_slice(from);
        return true;
    }
    let radix = range.radix(from.len().ilog2().min(RADIX_BITS_MAX));
    let largest = radix.count(from, counts);
    radix.deal(from, counts, to);
    if largest as usize <= INSERTION_MAX {
        // Nothing moves further than its group is long, so this needs not know where groups are.
        return insertion_sort(to);
    }
    // Each counter is now where its group ends.
    let mut start = 0;
    for end in &counts.0[..radix.groups] {
        to[start..*end as usize].sort_unstable();
        start = *end as usize;
    }
    true
}

/// Numbers that are `least` or more, and less than 2 to the power of `bits` more than that.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: u64,
    bits: u32,
}

impl Range {
    /// A radix of its highest `bits` bits, or of all that there are.
    fn radix(self, bits: u32) -> Radix {
        let bits = bits.min(self.bits);
        Radix { least: self.least, shift: self.bits - bits, groups: 1 << bits }
    }
}

/// For each group, how many entries it has; then, where the next one goes.
#[derive(Debug)]
struct Counts(Box<[u32; GROUPS_MAX]>);

impl Default for Counts {
    fn default() -> Self {
        Self(Box::new([0; GROUPS_MAX]))
    }
}

/// Which group an entry is in: its bits from `shift` on, counted from the least entry.
#[derive(Clone, Copy, Debug)]
struct Radix {
    least: u64,
    shift: u32,
    groups: usize,
}

impl Radix {
    /// What can be in a group.
    fn range(&self, group: u64) -> Range {
        Range { least: self.least + (group << self.shift), bits: self.shift }
    }

    /// The mask changes nothing; it is why nothing need be checked where this is an index of [`Counts`].
    #[inline(always)]
    fn group(&self, entry: &Entry) -> usize {
        ((entry.prefix - self.least) >> self.shift) as usize % GROUPS_MAX
    }

    /// Where each group starts; returns the size of the largest.
    #[inline(never)]
    fn count(&self, entries: &[Entry], counts: &mut Counts) -> u32 {
        let counts = &mut *counts.0;
        counts[..self.groups].fill(0);
        in_turns(entries, |entry| counts[self.group(entry)] += 1);
        starts(&mut counts[..self.groups])
    }

    /// Moves each entry to its group.
    #[inline(never)]
    fn deal(&self, entries: &[Entry], starts: &mut Counts, to: &mut [Entry]) {
        let starts = &mut *starts.0;
        in_turns(entries, |entry| {
            let start = &mut starts[self.group(entry)];
            to[*start as usize] = *entry;
            *start += 1;
        });
    }
}

/// Replaces each count by the sum of those before it; returns the largest.
#[inline(never)]
fn starts(counts: &mut [u32]) -> u32 {
    let (mut sum, mut largest) = (0, 0);
    for turn in counts.chunks_mut(TURN) {
        for count in turn {
            largest = largest.max(*count);
            sum += std::mem::replace(count, sum);
        }
    }
    largest
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
fn insertion_sort(entries: &mut [Entry]) -> bool {
    let (mut equal, mut at) = (false, 1);
    while at < entries.len() {
        at = exchange(entries, at);
        if at < entries.len() {
            equal |= sink(entries, at);
            at += 1;
        }
    }
    equal
}

/// Sorts on from `at`, which is at least 1, as long as exchanging neighbours is enough; returns the place of the first
/// entry for which it is not, or that may have an equal, or that is one of the last few.
///
/// Which of two neighbours is less no processor foresees, so they are exchanged without a branch. No step waits for
/// memory that the one before it wrote, and nothing is called.
#[inline(never)]
fn exchange(entries: &mut [Entry], mut at: usize) -> usize {
    let mut before = at.checked_sub(2).map_or(0, |place| entries[place].prefix);
    let mut last = entries[at - 1];
    while let Some(turn) = entries.get_mut(at - 1..).and_then(<[_]>::first_chunk_mut::<{ TURN + 1 }>) {
        for n in 0..TURN {
            let entry = turn[n + 1];
            let swap = entry.prefix < last.prefix;
            let less = select_unpredictable(swap, entry, last);
            last = select_unpredictable(swap, last, entry);
            turn[n] = less;
            if less.prefix <= before || last.prefix == less.prefix {
                turn[n + 1] = last;
                return at + n;
            }
            before = less.prefix;
        }
        turn[TURN] = last;
        at += TURN;
    }
    at
}

/// Moves the entries at `at - 1` and `at` to where they belong among those before them; whether one of them has an equal
/// prefix.
#[inline(never)]
fn sink(entries: &mut [Entry], at: usize) -> bool {
    let mut equal = false;
    for mut at in [at - 1, at] {
        let entry = entries[at];
        while let Some(before) = at.checked_sub(1).map(|place| entries[place]) {
            equal |= before.prefix == entry.prefix;
            if before <= entry {
                break;
            }
            entries[at] = before;
            at -= 1;
        }
        entries[at] = entry;
    }
    equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::record::tests::{Shape, make, shapes};

    #[test]
    fn sorting_equals_the_standard_sort_whatever_the_keys() {
        let mut sorter = Sorter::default();
        // Some are so many that they are split first.
        let large = [Shape::Random, Shape::Tail, Shape::Skewed].map(|shape| (shape, ONE_PASS_MAX + 30_000));
        for (shape, count) in shapes().chain(large) {
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
