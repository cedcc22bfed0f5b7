//! Counting words: a hash table made for short keys.
//!
//! A word of up to 16 bytes is its own key, as two little-endian numbers filled up with zeros (no byte of a word is
//! zero, so the length need not be stored): looking it up compares two numbers and follows no pointer. Longer words,
//! a few in a hundred, go to an ordinary map.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

use fanfold::{Error, Result};

use crate::Row;

/// Bytes of the longest word that is its own key.
const SHORT_BYTES: usize = 16;
/// Slots of a new table: a power of two.
const SLOTS: usize = 1 << 12;

type Key = [u64; 2];

/// For each length of a short word, the bits of its key. A table, because WebAssembly has no 128-bit shifts.
const KEEP: [Key; SHORT_BYTES + 1] = {
    let mut keep = [[0; 2]; SHORT_BYTES + 1];
    let mut byte = 0;
    while byte < SHORT_BYTES {
        keep[byte + 1] = keep[byte];
        keep[byte + 1][byte / 8] |= 0xff << (byte % 8 * 8);
        byte += 1;
    }
    keep
};

/// Words and how often each was added.
pub struct Counts {
    /// Open addressing, linear probing; a count of 0 marks an empty slot.
    slots: Vec<(Key, u64)>,
    used: usize,
    long: HashMap<Box<[u8]>, u64, BuildHasherDefault<LongHasher>>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { slots: vec![([0; 2], 0); SLOTS], used: 0, long: HashMap::default() }
    }
}

impl Counts {
    /// Counts the word `text[from..to]` once.
    #[inline]
    pub fn add(&mut self, text: &[u8], from: usize, to: usize) {
        match short_key(text, from, to) {
            Some(key) => self.add_short(key, 1),
            None => self.add_long(&text[from..to], 1),
        }
    }

    /// Adds the entries of a block that [`encode`] made.
    ///
    /// # Errors
    /// `guest` if it is not such a block.
    pub fn merge(&mut self, mut block: &[u8]) -> Result<()> {
        while !block.is_empty() {
            let (word, count) =
                decode(&mut block).ok_or_else(|| Error::guest("a column's block is damaged"))?;
            match short_key(word, 0, word.len()) {
                Some(key) => self.add_short(key, count),
                None => self.add_long(word, count),
            }
        }
        Ok(())
    }

    /// Each word with its count, in an order that depends on the words and the order they came in only.
    pub fn each(&self, mut visit: impl FnMut(&[u8], u64)) {
        for (key, count) in self.slots.iter().filter(|(_, count)| *count > 0) {
            let bytes = bytes_of(key);
            let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(SHORT_BYTES);
            visit(&bytes[..length], *count);
        }
        for (word, count) in &self.long {
            visit(word, *count);
        }
    }

    #[inline]
    fn add_short(&mut self, key: Key, count: u64) {
        let mask = self.slots.len() - 1;
        let mut at = mix(key) as usize & mask;
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.1 == 0 {
                break;
            }
            if slot.0 == key {
                slot.1 += count;
                return;
            }
            at += 1;
        }
        self.insert(at & mask, key, count);
    }

    #[cold]
    fn insert(&mut self, at: usize, key: Key, count: u64) {
        self.slots[at] = (key, count);
        self.used += 1;
        if self.used * 2 > self.slots.len() {
            let larger = vec![([0; 2], 0); self.slots.len() * 4];
            let old = std::mem::replace(&mut self.slots, larger);
            self.used = 0;
            old.into_iter()
                .filter(|(_, count)| *count > 0)
                .for_each(|(key, count)| self.add_short(key, count));
        }
    }

    fn add_long(&mut self, word: &[u8], count: u64) {
        match self.long.get_mut(word) {
            Some(n) => *n += count,
            None => {
                self.long.insert(word.into(), count);
            }
        }
    }
}

/// The key of a short word.
#[inline]
fn short_key(text: &[u8], from: usize, to: usize) -> Option<Key> {
    let length = to - from;
    if length == 0 || length > SHORT_BYTES {
        return None;
    }
    // Nearly always there are sixteen bytes to load; those behind the word are cleared below.
    let bytes = text[from..].first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; SHORT_BYTES];
        bytes[..length].copy_from_slice(&text[from..to]);
        bytes
    });
    let all = u128::from_le_bytes(bytes);
    let [low, high] = KEEP[length];
    Some([all as u64 & low, (all >> 64) as u64 & high])
}

fn bytes_of(key: &Key) -> [u8; SHORT_BYTES] {
    (u128::from(key[1]) << 64 | u128::from(key[0])).to_le_bytes()
}

#[inline]
fn mix([low, high]: Key) -> u64 {
    let h = (low ^ high.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ h >> 32
}

/// A hash of long words, eight bytes at a time. Equal in every run, so that a map's output is too.
#[derive(Default)]
pub struct LongHasher(u64);

impl Hasher for LongHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = mix([u64::from_le_bytes(word), self.0]);
        }
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Appends an entry to a block: count and length as LEB128, then the word.
pub fn encode(word: &[u8], count: u64, block: &mut Vec<u8>) {
    for mut n in [count, word.len() as u64] {
        while n > 0x7f {
            block.push(n as u8 | 0x80);
            n >>= 7;
        }
        block.push(n as u8);
    }
    block.extend_from_slice(word);
}

/// Takes an entry off a block.
fn decode<'a>(block: &mut &'a [u8]) -> Option<(&'a [u8], u64)> {
    let count = number(block)?;
    let length = usize::try_from(number(block)?).ok()?;
    let (word, rest) = block.split_at_checked(length)?;
    *block = rest;
    (count > 0 && length > 0).then_some((word, count))
}

fn number(block: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = block.split_first()?;
        *block = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The most frequent of the words it is offered: by falling count, then by word.
pub struct Top {
    size: usize,
    /// The least of them on top. A word may be put in once.
    least: BinaryHeap<Reverse<Rank>>,
}

/// Orders words: a larger count is larger, and of equal counts the earlier word.
type Rank = (u64, Reverse<Box<[u8]>>);

impl Top {
    /// For `size` words.
    pub fn new(size: usize) -> Self {
        Self { size, least: BinaryHeap::new() }
    }

    /// Considers a word.
    pub fn offer(&mut self, word: &[u8], count: u64) {
        if self.least.len() == self.size {
            match self.least.peek() {
                Some(Reverse((least, Reverse(last)))) if better((count, word), (*least, last)) => {
                    self.least.pop();
                }
                _ => return,
            }
        }
        self.least.push(Reverse((count, Reverse(word.into()))));
    }

    /// The words, the most frequent first.
    pub fn into_rows(self) -> Vec<Row> {
        let sorted = self.least.into_sorted_vec().into_iter();
        sorted
            .map(|Reverse((count, Reverse(word)))| Row { word: String::from_utf8_lossy(&word).into(), count })
            .collect()
    }
}

/// Whether the first of two words with their counts comes first.
fn better((count, word): (u64, &[u8]), (other_count, other): (u64, &[u8])) -> bool {
    (count, Reverse(word)) > (other_count, Reverse(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(words: &[&str]) -> Counts {
        let mut counts = Counts::default();
        // A common text, so that words are loaded with others behind them.
        let text = words.join(" ");
        let mut at = 0;
        for word in words {
            counts.add(text.as_bytes(), at, at + word.len());
            at += word.len() + 1;
        }
        counts
    }

    fn rows(counts: &Counts) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        counts.each(|word, count| rows.push((String::from_utf8_lossy(word).into(), count)));
        rows.sort();
        rows
    }

    #[test]
    fn words_of_every_length_are_told_apart_and_survive_growth_and_exchange() {
        let many: Vec<String> =
            (0..30_000).map(|n: u32| format!("{}{n}", "w".repeat(n as usize % 40))).collect();
        let mut words: Vec<&str> = many.iter().map(String::as_str).collect();
        words.extend(many.iter().step_by(3).map(String::as_str));
        let counts = counted(&words);
        let mut expected = std::collections::BTreeMap::new();
        words.iter().for_each(|word| *expected.entry((*word).to_owned()).or_insert(0u64) += 1);
        let expected: Vec<_> = expected.into_iter().collect();
        assert!(rows(&counts) == expected);

        let mut block = Vec::new();
        counts.each(|word, count| encode(word, count, &mut block));
        let mut merged = Counts::default();
        merged.merge(&block).unwrap();
        merged.merge(&block).unwrap();
        assert!(rows(&merged).iter().zip(&expected).all(|(a, b)| a.0 == b.0 && a.1 == 2 * b.1));
    }

    #[test]
    fn damaged_blocks_are_refused() {
        for block in [&[1][..], &[1, 2, b'a'], &[0x80; 11], &[1, 0], &[0, 1, b'a']] {
            assert!(Counts::default().merge(block).is_err(), "{block:?}");
        }
    }

    #[test]
    fn top_orders_by_count_then_word() {
        let mut top = Top::new(3);
        for (word, count) in [("b", 2), ("z", 9), ("c", 2), ("a", 2), ("y", 1)] {
            top.offer(word.as_bytes(), count);
        }
        let rows: Vec<_> = top.into_rows().into_iter().map(|row| (row.word, row.count)).collect();
        assert_eq!(rows, [("z".into(), 9), ("a".into(), 2), ("b".into(), 2)]);
        let mut none = Top::new(0);
        none.offer(b"a", 1);
        assert!(none.into_rows().is_empty());
    }
}
