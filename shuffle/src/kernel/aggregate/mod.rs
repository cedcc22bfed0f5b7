//! Hash aggregation: rows of an `i64` key and a number become one state per key.
//!
//! It is what both sides of a group-by run: a map aggregates its split and sends one entry per group; a reducer merges
//! the entries. The alternative, to send every row to its reducer and aggregate only there, moves all of the input
//! through partitions; with a hundred rows per key and splits of millions of rows, aggregating first moves a tenth of
//! it. Where keys hardly repeat nothing is gained by it, so a map looks at what it has gained and may stop.
//!
//! What it costs is decided by the cache. Measured natively on a core with 1 MiB of level-2 cache, 16 M rows of `f64`,
//! count and sum, in ns of one thread per row (page faults of a fresh instance included), once, on a machine that was not quiet: only the
//! order of the figures is meant.
//!
//! | groups | one table | 256 tables, rows collected by table |
//! |---|---|---|
//! | 100 | 4 | |
//! | 10 k | 5 | 8 |
//! | 100 k | 7 | 10 |
//! | 1 M | 30 | 21 |
//!
//! So it starts with one table, and spreads over 256 at [`SMALL_GROUPS`]. From then on rows are first copied to the lane
//! of their table; a full lane of [`LANE_ROWS`] is added at once, while its table is in the cache. (64 tables, or lanes
//! of half the size, were slower at a million groups; lanes of twice the size gained nothing.)
//!
//! Everything is deterministic: the same rows in the same order give the same states, bit for bit, and the same order
//! of groups.

mod accumulator;
mod table;

use fanfold::{Error, Result};

pub use accumulator::{Accumulator, Number, Spread, Sum, Totals};
pub use table::hash;

use accumulator::word;
use table::{EMPTY, Table};

/// Groups that one table may have before there are many.
const SMALL_GROUPS: usize = 1 << 16;
/// Slots up to which one table is sparse: it is in the cache anyway. Many are not.
const SPARSE_SLOTS: usize = 1 << 12;
/// Rows that a table adds at once, and between two looks at how many groups there are.
const STEP_ROWS: usize = 1 << 10;
/// Bits of the hash, its highest, that say which table.
const RADIX_BITS: u32 = 8;
const RADIX: usize = 1 << RADIX_BITS;
/// Rows that are collected for a table before they are added.
const LANE_ROWS: usize = 1 << 13;

/// States by key.
///
/// ```
/// use fanfold_shuffle::kernel::aggregate::{Aggregator, Sum};
///
/// let mut groups = Aggregator::<Sum<f64>>::default();
/// groups.add(&[7, 8, 7], &[0.5, 1.0, 2.0]);
/// let mut totals = Vec::new();
/// groups.each(|_, key, state| totals.push((key, state.totals().sum)));
/// totals.sort_by_key(|(key, _)| *key);
/// # use fanfold_shuffle::kernel::aggregate::Accumulator;
/// assert_eq!(totals, [(7, 2.5), (8, 1.0)]);
/// ```
#[derive(Debug)]
pub struct Aggregator<A: Accumulator> {
    /// The group whose key marks empty slots in tables.
    apart: Option<A>,
    /// One, or [`RADIX`] of them.
    tables: Vec<Table<A>>,
    /// Rows on their way to one of many tables: [`LANE_ROWS`] places for each table.
    lanes: Vec<(i64, A::Value)>,
    /// Places taken in each lane: none of them is ever full when a row arrives.
    filled: Vec<usize>,
}

impl<A: Accumulator> Default for Aggregator<A> {
    fn default() -> Self {
        Self { apart: None, tables: vec![Table::new(SPARSE_SLOTS)], lanes: Vec::new(), filled: Vec::new() }
    }
}

impl<A: Accumulator> Aggregator<A> {
    /// Bytes of one encoded entry: the key, then the state.
    pub const ENTRY_BYTES: usize = 8 + A::BYTES;

    /// Adds a batch of rows: `values[n]` to the group of `keys[n]`. What one slice has more than the other is not
    /// looked at.
    pub fn add(&mut self, keys: &[i64], values: &[A::Value]) {
        let rows = keys.len().min(values.len());
        let (keys, values) = (&keys[..rows], &values[..rows]);
        let done = if self.tables.len() == 1 { self.add_to_one(keys, values) } else { 0 };
        if done < rows {
            self.add_to_many(&keys[done..], &values[done..]);
        }
    }

    /// Makes the group of a key unless it is there.
    pub fn touch(&mut self, key: i64) {
        self.merge_state(key, &A::NEW);
    }

    /// Adds the entries that [`encode`] appended to a block; returns how many values are in them.
    ///
    /// # Errors
    /// `guest` if the block's length is not a whole number of entries.
    pub fn merge(&mut self, block: &[u8]) -> Result<u64> {
        if !block.len().is_multiple_of(Self::ENTRY_BYTES) {
            let message =
                format!("{} bytes are no whole number of {}-byte entries", block.len(), Self::ENTRY_BYTES);
            return Err(Error::guest(message));
        }
        let mut values = 0;
        for entry in block.chunks_exact(Self::ENTRY_BYTES) {
            let state = A::of(&entry[8..]);
            values += state.totals().count;
            self.merge_state(word(entry, 0) as i64, &state);
        }
        Ok(values)
    }

    /// Groups so far. Rows that wait in lanes may add some: [`Aggregator::each`] sees those too.
    pub fn groups(&self) -> usize {
        self.tables.iter().map(Table::len).sum::<usize>() + usize::from(self.apart.is_some())
    }

    /// Visits every group: the hash of its key, the key, the state. Those of equal high bits of the hash come together.
    pub fn each(&mut self, mut visit: impl FnMut(u64, i64, &A)) {
        for lane in 0..self.filled.len() {
            self.drain(lane);
        }
        if let Some(state) = &self.apart {
            visit(hash(EMPTY), EMPTY, state);
        }
        let mut visit = |key, state: &A| visit(hash(key), key, state);
        self.tables.iter().for_each(|table| table.each(&mut visit));
    }

    /// Adds rows to the only table; returns how many before there were too many groups for it.
    fn add_to_one(&mut self, keys: &[i64], values: &[A::Value]) -> usize {
        let steps = keys.chunks(STEP_ROWS).zip(values.chunks(STEP_ROWS));
        let mut done = 0;
        for (keys, values) in steps {
            if keys.contains(&EMPTY) {
                self.add_each(keys, values);
            } else {
                self.tables[0].add(keys, |key| *key, values, |value| *value);
            }
            done += keys.len();
            if self.tables[0].len() > SMALL_GROUPS {
                self.spread();
                break;
            }
        }
        done
    }

    /// Adds rows to the only table, or apart.
    #[cold]
    fn add_each(&mut self, keys: &[i64], values: &[A::Value]) {
        for (key, value) in keys.iter().zip(values) {
            match *key {
                EMPTY => self.apart.get_or_insert(A::NEW).add(*value),
                key => self.tables[0].state(key, hash(key)).add(*value),
            }
        }
    }

    fn add_to_many(&mut self, keys: &[i64], values: &[A::Value]) {
        if self.lanes.is_empty() {
            // Whatever value: it marks nothing, `filled` says what is there.
            self.lanes = vec![(0, values[0]); RADIX * LANE_ROWS];
        }
        for (key, value) in keys.iter().zip(values) {
            if *key == EMPTY {
                self.apart.get_or_insert(A::NEW).add(*value);
                continue;
            }
            let lane = radix(hash(*key));
            let filled = &mut self.filled[lane];
            self.lanes[lane * LANE_ROWS + *filled] = (*key, *value);
            *filled += 1;
            if *filled == LANE_ROWS {
                self.drain(lane);
            }
        }
    }

    /// Adds the rows of one lane to its table.
    #[inline(never)]
    fn drain(&mut self, lane: usize) {
        let filled = std::mem::take(&mut self.filled[lane]);
        let start = (lane * LANE_ROWS).min(self.lanes.len());
        let rows = &self.lanes[start..start + filled];
        self.tables[lane].add(rows, |row| row.0, rows, |row| row.1);
    }

    /// Merges one state. States do not wait in lanes: blocks come in the order of the tables already.
    fn merge_state(&mut self, key: i64, state: &A) {
        if key == EMPTY {
            return self.apart.get_or_insert(A::NEW).merge(state);
        }
        let hash = hash(key);
        let table = if self.tables.len() == 1 { 0 } else { radix(hash) };
        self.tables[table].state(key, hash).merge(state);
        if self.tables.len() == 1 && self.tables[0].len() > SMALL_GROUPS {
            self.spread();
        }
    }

    /// From one table to many.
    #[cold]
    fn spread(&mut self) {
        let many = (0..RADIX).map(|_| Table::new(0)).collect();
        self.filled = vec![0; RADIX];
        for table in std::mem::replace(&mut self.tables, many) {
            table.each(&mut |key, state| {
                let hash = hash(key);
                self.tables[radix(hash)].state(key, hash).merge(state);
            });
        }
    }
}

/// Appends an entry to a block: the key, then the state; [`Aggregator::ENTRY_BYTES`] little-endian bytes.
pub fn encode<A: Accumulator>(key: i64, state: &A, block: &mut Vec<u8>) {
    let start = block.len();
    block.extend_from_slice(&key.to_le_bytes());
    block.resize(start + Aggregator::<A>::ENTRY_BYTES, 0);
    state.put(&mut block[start + 8..]);
}

fn radix(hash: u64) -> usize {
    (hash >> (u64::BITS - RADIX_BITS)) as usize
}

#[cfg(test)]
mod tests;
