//! What is kept of the words read: some megabytes while they are counted and a hundred kilobytes to be sent, however many
//! there were.
//!
//! Distinct words: HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) over a 64-bit hash, with linear counting while
//! registers are empty. Frequent words: the summary of Misra and Gries (1982), which merges without losing its bound
//! (Agarwal et al., Mergeable Summaries, PODS 2012): a count is never too large, and too small by at most `missed`.
//! Two words of one hash count as one; at a billion different words that has a chance of one in forty.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use fanfold::{Error, Result};

/// Bits of the hash that choose a register.
const REGISTER_BITS: u32 = 14;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// Words whose counts are sent on.
const COUNTERS: usize = 4_096;
/// Words that are counted at a time: pruning is rare, and most words of a text find their counter.
const COUNTERS_MAX: usize = 1 << 16;

/// What is kept.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// All words.
    pub words: u64,
    /// By how much a count may be too small.
    pub missed: u64,
    registers: Vec<u8>,
    counters: Counters,
}

type Counters = HashMap<u64, (Box<[u8]>, u64), BuildHasherDefault<Identity>>;

/// Keys are hashes already.
#[derive(Clone, Default, Debug)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = fanfold_shuffle::hash(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self { words: 0, missed: 0, registers: vec![0; REGISTERS], counters: Counters::default() }
    }
}

impl Sketch {
    /// Adds one word, given its hash.
    #[inline]
    pub fn add(&mut self, hash: u64, word: &[u8]) {
        self.words += 1;
        match self.counters.get_mut(&hash) {
            Some((_, count)) => *count += 1,
            None => self.admit(hash, word),
        }
    }

    /// Notes a hash. The low bits choose the register: the high ones choose columns.
    #[inline]
    fn see(&mut self, hash: u64) {
        let rank = ((hash >> REGISTER_BITS).trailing_zeros() as u8).min(64 - REGISTER_BITS as u8) + 1;
        let register = &mut self.registers[hash as usize % REGISTERS];
        *register = rank.max(*register);
    }

    #[cold]
    fn admit(&mut self, hash: u64, word: &[u8]) {
        // A word that has a counter was here before.
        self.see(hash);
        self.counters.insert(hash, (word.into(), 1));
        if self.counters.len() >= COUNTERS_MAX {
            self.prune();
        }
    }

    /// Takes the count of the first word that is too many off every count; those with nothing left go.
    fn prune(&mut self) {
        let mut counts: Vec<u64> = self.counters.values().map(|(_, count)| *count).collect();
        if counts.len() <= COUNTERS {
            return;
        }
        let (_, cut, _) = counts.select_nth_unstable_by(COUNTERS, |a, b| b.cmp(a));
        let cut = *cut;
        self.counters.retain(|_, (_, count)| {
            *count = count.saturating_sub(cut);
            *count > 0
        });
        self.missed += cut;
    }

    /// Adds all that another sketch has seen.
    pub fn merge(&mut self, other: Self) {
        self.words += other.words;
        self.missed += other.missed;
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers) {
            *mine = theirs.max(*mine);
        }
        for (hash, (word, count)) in other.counters {
            self.counters.entry(hash).or_insert((word, 0)).1 += count;
        }
        if self.counters.len() >= COUNTERS_MAX {
            self.prune();
        }
    }

    /// About how many different words there were. The standard error is [`Sketch::error`].
    pub fn distinct(&self) -> f64 {
        let registers = REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.registers.iter().filter(|rank| **rank == 0).count();
        if raw <= 2.5 * registers && empty > 0 { registers * (registers / empty as f64).ln() } else { raw }
    }

    /// The relative standard error of [`Sketch::distinct`].
    pub fn error() -> f64 {
        1.04 / (REGISTERS as f64).sqrt()
    }

    /// The most frequent words: by falling count, then by word.
    pub fn top(&self, size: usize) -> Vec<(Vec<u8>, u64)> {
        let mut all: Vec<_> = self.counters.values().map(|(word, count)| (word.to_vec(), *count)).collect();
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(size);
        all
    }

    /// As bytes, the same for equal sketches: words, missed, registers, then each counter as count, length and word.
    pub fn encode(mut self) -> Vec<u8> {
        self.prune();
        let mut bytes = Vec::with_capacity(16 + REGISTERS + self.counters.len() * 24);
        bytes.extend(self.words.to_le_bytes());
        bytes.extend(self.missed.to_le_bytes());
        bytes.extend(&self.registers);
        for (word, count) in self.top(usize::MAX) {
            bytes.extend(count.to_le_bytes());
            bytes.extend((word.len() as u32).to_le_bytes());
            bytes.extend(word);
        }
        bytes
    }

    /// Reads what [`Sketch::encode`] made.
    ///
    /// # Errors
    /// `guest` if it is anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or_else(|| Error::guest("a column's block is no sketch"))
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut take = |length: usize| {
            let (head, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            Some(head)
        };
        let number = |bytes: &[u8]| bytes.first_chunk().map(|chunk| u64::from_le_bytes(*chunk));
        let (words, missed) = (number(take(8)?)?, number(take(8)?)?);
        let registers = take(REGISTERS)?.to_vec();
        let mut counters = Counters::default();
        while let Some(count) = take(8) {
            let length = u32::from_le_bytes(*take(4)?.first_chunk()?);
            let word = take(length as usize)?;
            counters.insert(fanfold_shuffle::hash(word), (word.into(), number(count)?));
        }
        Some(Self { words, missed, registers, counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketched(words: impl Iterator<Item = u64>) -> Sketch {
        let mut sketch = Sketch::default();
        for word in words {
            let word = word.to_string();
            sketch.add(fanfold_shuffle::hash(word.as_bytes()), word.as_bytes());
        }
        sketch
    }

    #[test]
    fn distinct_is_within_three_errors_from_none_to_hundreds_of_thousands() {
        for distinct in [0, 1, 100, 10_000, 30_000, 60_000, 300_000] {
            let sketch = sketched((0..distinct).chain(0..distinct / 2));
            let off = (sketch.distinct() - distinct as f64).abs();
            assert!(off <= 3.0 * Sketch::error() * distinct as f64, "{distinct}: {}", sketch.distinct());
        }
    }

    #[test]
    fn merged_counts_keep_their_bound() {
        // Word n comes 60,000 / n times, in two halves that see them in other orders.
        let times = |n: u64| 60_000 / n;
        let words = || (1..20_000u64).flat_map(move |n| (0..times(n)).map(move |_| n));
        let mut whole = sketched(words().step_by(2));
        let other: Vec<u64> = words().skip(1).step_by(2).collect();
        whole.merge(Sketch::decode(&sketched(other.into_iter().rev()).encode()).unwrap());
        assert_eq!(whole.words, words().count() as u64);
        assert!(whole.missed > 0 && whole.missed <= whole.words / COUNTERS as u64, "{}", whole.missed);
        for (n, (word, count)) in (1..).zip(whole.top(20)) {
            assert_eq!(word, n.to_string().as_bytes());
            assert!(count <= times(n) && count + whole.missed >= times(n), "{n}: {count}");
        }
        assert!({
            let bytes = whole.encode();
            Sketch::decode(&bytes[..bytes.len() - 1]).is_err()
        });
    }
}
