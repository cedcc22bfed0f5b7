//! Columns as ranges of keys, with boundaries from a sample; a key that is too frequent for one column gets several.

use fanfold::{Error, Result};

/// The first 16 bytes of a key as a number, so that comparing numbers compares keys; a shorter key counts as followed by
/// zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Key {
    /// The first eight bytes.
    pub high: u64,
    /// The other eight.
    pub low: u64,
}

impl Key {
    /// Of a key's bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut padded = [0; 16];
        let length = bytes.len().min(16);
        padded[..length].copy_from_slice(&bytes[..length]);
        Self::of_u128(u128::from_be_bytes(padded))
    }

    fn of_u128(number: u128) -> Self {
        Self { high: (number >> 64) as u64, low: number as u64 }
    }

    fn to_u128(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// Bits of a key that find its place in the table: as many entries as there are columns at most, or nearly.
const TABLE_BITS: u32 = 12;
const SLOTS: usize = 1 << TABLE_BITS;

/// Ranges of keys: column *c* has the keys from boundary *c - 1* (inclusive) to boundary *c* (exclusive).
///
/// Boundaries may repeat. A key that *n* boundaries equal is frequent: it is dealt over the *n - 1* columns between them
/// and the one after, so that concatenating the columns is still in order.
#[derive(Clone, Debug)]
pub struct Ranges {
    bounds: Vec<Key>,
    /// The first halves of these, and one more that is above all.
    highs: Vec<u64>,
    /// For each value of the first bits, how many boundaries are below all such keys.
    table: Box<[u32; SLOTS + 1]>,
    /// For each column, the first of the columns that share its lower boundary.
    first: Vec<u32>,
}

impl Ranges {
    /// Of ascending boundaries: one fewer than columns.
    ///
    /// # Errors
    /// `invalid` if they are not ascending.
    pub fn new(bounds: Vec<Key>) -> Result<Self> {
        if !bounds.is_sorted() {
            return Err(Error::invalid("the boundaries of key ranges must ascend"));
        }
        let below = |key: Key| bounds.partition_point(|bound| *bound < key) as u32;
        let mut table = Box::new([bounds.len() as u32; SLOTS + 1]);
        for (slot, start) in (0..SLOTS as u64).zip(table.iter_mut()) {
            *start = below(Key { high: slot << (64 - TABLE_BITS), low: 0 });
        }
        let mut first: Vec<u32> = vec![0];
        for (place, bound) in bounds.iter().enumerate() {
            let same = place > 0 && bounds[place - 1] == *bound;
            first.push(if same { first[place] } else { place as u32 + 1 });
        }
        let highs = bounds.iter().map(|bound| bound.high).chain([u64::MAX]).collect();
        Ok(Self { bounds, highs, table, first })
    }

    /// The boundaries that cut `sample` into `columns` parts of equal size. The sample is sorted on the way; an empty
    /// one puts everything into the last column.
    pub fn quantiles(sample: &mut [Key], columns: u32) -> Vec<Key> {
        sample.sort_unstable();
        let place = |column: u64| (column * sample.len() as u64 / u64::from(columns.max(1))) as usize;
        let bound = |column| sample.get(place(column)).copied().unwrap_or_default();
        (1..u64::from(columns)).map(bound).collect()
    }

    /// How many columns there are.
    pub fn columns(&self) -> u32 {
        self.bounds.len() as u32 + 1
    }

    /// The column of a key. `spread` is asked for the frequent ones only: a hash of something that differs between
    /// records of one key, and is equal whenever the same record is seen again.
    #[inline(always)]
    pub fn column(&self, key: Key, spread: impl FnOnce() -> u64) -> u32 {
        let slot = (key.high >> (64 - TABLE_BITS)) as usize;
        let (from, to) = (self.table[slot], self.table[slot + 1]);
        // Nearly all keys: at most one boundary has their first bits, and it differs within the first half. No processor foresees on
        // which side of it a key is, so that is no branch; where there is none, the next boundary is above the key.
        let high = self.highs[from as usize];
        if to - from <= 1 && high != key.high {
            return from + u32::from(high < key.high);
        }
        self.search(key, from as usize..to as usize, spread)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, key: Key, among: std::ops::Range<usize>, spread: impl FnOnce() -> u64) -> u32 {
        let from = among.start + self.bounds[among].partition_point(|bound| *bound <= key);
        let (column, first) = (from as u32, self.first[from]);
        if first == column || self.bounds[from - 1] != key {
            return column;
        }
        first + super::column_of(spread(), column - first + 1)
    }

    /// Whether a column is one of several that only one key fills: then it needs no sorting.
    pub fn is_one_key(&self, column: u32) -> bool {
        let column = column as usize;
        column > 0 && column < self.bounds.len() && self.bounds[column - 1] == self.bounds[column]
    }

    /// As bytes: 16 for each boundary.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bounds.iter().flat_map(|bound| bound.to_u128().to_be_bytes()).collect()
    }

    /// From [`Ranges::to_bytes`].
    ///
    /// # Errors
    /// `invalid` if these are no such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (bounds, rest) = bytes.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(Error::invalid("the boundaries of key ranges are 16 bytes each"));
        }
        Self::new(bounds.iter().map(|bytes| Key::of_u128(u128::from_be_bytes(*bytes))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn plain(bounds: &[Key], key: Key) -> u32 {
        bounds.iter().filter(|bound| **bound <= key).count() as u32
    }

    #[test]
    fn lookup_equals_counting_boundaries() {
        let mut random = Random::new(1, 1);
        for columns in [1, 2, 7, 500, 5_000] {
            for bits in [64, 20, 3] {
                let mut key = || Key { high: random.next_u64() << (64 - bits) >> 5, low: random.next_u64() };
                let mut sample: Vec<Key> = (0..20_000).map(|_| key()).collect();
                let ranges = Ranges::new(Ranges::quantiles(&mut sample, columns)).unwrap();
                let again = Ranges::from_bytes(&ranges.to_bytes()).unwrap();
                assert_eq!((ranges.columns(), &again.bounds), (columns, &ranges.bounds));
                for key in sample.iter().step_by(7).chain(&[Key::default(), Key::new(&[255; 16])]) {
                    assert_eq!(again.column(*key, || u64::MAX), plain(&ranges.bounds, *key));
                }
            }
        }
    }

    #[test]
    fn a_frequent_key_is_dealt_over_several_columns_in_order() {
        let key = |n| Key { high: n, low: 0 };
        // Nine of ten records have key 5.
        let mut sample: Vec<Key> = (0..100).map(|n| key(if n % 10 == 0 { n } else { 5 })).collect();
        let ranges = Ranges::new(Ranges::quantiles(&mut sample, 10)).unwrap();
        let mut random = Random::new(3, 3);
        let mut sizes = [0; 10];
        for _ in 0..1000 {
            sizes[ranges.column(key(5), || random.next_u64()) as usize] += 1;
        }
        let used: Vec<usize> = (0..10).filter(|column| sizes[*column] > 0).collect();
        assert!(used.len() >= 8 && used.windows(2).all(|pair| pair[1] == pair[0] + 1), "{sizes:?}");
        let (first, last) = (used[0] as u32, used[used.len() - 1] as u32);
        assert!(ranges.column(key(4), || 0) < first || first == 0);
        assert!(ranges.column(key(6), || 0) >= last);
        assert!((first..last).skip(1).all(|column| ranges.is_one_key(column)));
    }
}
