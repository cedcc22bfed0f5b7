//! The records of `gensort`, the generator of the sort benchmarks (<http://www.ordinal.com/gensort.html>).
//!
//! The binary format of its versions up to 1.2, which Hadoop's TeraGen writes too: a key of 10 random bytes, `00 11`,
//! the record's number as 32 hexadecimal digits, `88 99 AA BB`, twelve random hexadecimal digits four times each,
//! `CC DD EE FF`. Versions since 1.3 have the same keys and fill the rest with random bytes. The random numbers are those of
//! all versions: a linear congruential generator modulo 2¹²⁸ that can skip ahead, so any range of records can be made
//! on its own.

use fanfold_shuffle::kernel::record::Record;

/// The generator's multiplier and increment.
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const INCREMENT: u128 = 0x4a69_6d47_7261_7952_4950_2020_2020_2001;
/// Bits of a key that skew may replace, as with `gensort -s`.
const SKEW_BITS_MAX: u32 = 48;
const KEY_BITS: u32 = 80;

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Makes records one after the other.
#[derive(Clone, Debug)]
pub struct Generator {
    random: u128,
    number: u64,
    skew: bool,
}

impl Generator {
    /// Whose first record is number `first`, counted from 0.
    ///
    /// With `skew` it follows the rule of `gensort -s` (version 1.5): of three in four records up to 48 leading bits of the
    /// key are those of a constant, one constant for each power of two that a record's number reaches. The constants
    /// are our own, so skewed keys are distributed as `gensort`'s, but are not the same.
    pub fn new(first: u64, skew: bool) -> Self {
        Self { random: skip(first), number: first, skew }
    }

    /// Writes the next record.
    pub fn next(&mut self, record: &mut Record) {
        self.random = step(self.random);
        let key = if self.skew { self.skewed_key() } else { self.random >> (128 - KEY_BITS) };
        record[..10].copy_from_slice(&key.to_be_bytes()[6..]);
        record[10..12].copy_from_slice(&[0x00, 0x11]);
        record[12..28].fill(b'0');
        for (n, digit) in record[28..44].iter_mut().enumerate() {
            *digit = hexadecimal(self.number >> (60 - 4 * n));
        }
        record[44..48].copy_from_slice(&[0x88, 0x99, 0xaa, 0xbb]);
        for (n, four) in record[48..96].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *four = [hexadecimal((self.random >> (44 - 4 * n)) as u64); 4];
        }
        record[96..].copy_from_slice(&[0xcc, 0xdd, 0xee, 0xff]);
        self.number += 1;
    }

    /// The key with some of its leading bits replaced.
    fn skewed_key(&self) -> u128 {
        let bits = (self.random >> 32) as u32 & 0x3f;
        let bits = if bits > SKEW_BITS_MAX { 0 } else { bits };
        let row = u128::from(u64::BITS - self.number.leading_zeros()) + 1;
        let constant = row.wrapping_mul(MULTIPLIER) >> (128 - KEY_BITS);
        let kept = (1 << (KEY_BITS - bits)) - 1;
        (constant & !kept) | ((self.random >> (128 - KEY_BITS)) & kept)
    }
}

fn hexadecimal(nibble: u64) -> u8 {
    DIGITS[nibble as usize & 0xf]
}

fn step(random: u128) -> u128 {
    random.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT)
}

/// The random number after `steps` steps from 0: one step doubled as often as `steps` has bits.
fn skip(mut steps: u64) -> u128 {
    let (mut random, mut multiplier, mut increment) = (0u128, MULTIPLIER, INCREMENT);
    while steps > 0 {
        if steps & 1 == 1 {
            random = random.wrapping_mul(multiplier).wrapping_add(increment);
        }
        increment = multiplier.wrapping_add(1).wrapping_mul(increment);
        multiplier = multiplier.wrapping_mul(multiplier);
        steps >>= 1;
    }
    random
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generator: &mut Generator) -> Record {
        let mut record = [0; 100];
        generator.next(&mut record);
        record
    }

    #[test]
    fn the_first_records_are_the_published_ones() {
        let mut generator = Generator::new(0, false);
        let first = record(&mut generator);
        // The increment spells a name: the first key of every version of gensort.
        assert_eq!(&first[..12], b"JimGrayRIP\x00\x11");
        assert_eq!(&first[12..44], b"00000000000000000000000000000000");
        assert_eq!(first[44..48], [0x88, 0x99, 0xaa, 0xbb]);
        assert_eq!(&first[48..96], b"222200002222000022220000222200002222000000001111");
        assert_eq!(first[96..], [0xcc, 0xdd, 0xee, 0xff]);
        let second = record(&mut generator);
        assert_eq!(&second[28..44], b"0000000000000001");
    }

    #[test]
    fn any_range_can_be_made_on_its_own() {
        for skew in [false, true] {
            let mut all = Generator::new(0, skew);
            for number in 0..300 {
                let expected = record(&mut all);
                assert_eq!(record(&mut Generator::new(number, skew)), expected, "{number}");
            }
        }
    }

    #[test]
    fn skew_makes_three_of_four_keys_alike() {
        let (mut plain, mut skewed) = (Generator::new(1 << 20, false), Generator::new(1 << 20, true));
        let mut changed = 0;
        let mut prefixes = std::collections::HashMap::new();
        for _ in 0..4_000 {
            let (a, b) = (record(&mut plain), record(&mut skewed));
            assert_eq!(a[10..], b[10..]);
            changed += u32::from(a != b);
            *prefixes.entry(b[..2].to_vec()).or_insert(0) += 1;
        }
        assert!((2_700..3_100).contains(&changed), "{changed}");
        assert!(prefixes.values().any(|n| *n > 1_500), "two bytes are the same in half of them");
    }
}
