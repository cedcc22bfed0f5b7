//! Randomness that is equal on every run: for shuffles whose point is disorder.
//!
//! SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): eight bytes of state, so a seed per task costs nothing, and every seed
//! is a good one.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed and a place in the job: say an epoch and a mapper's number. Other places, other streams.
    pub fn new(seed: u64, place: u64) -> Self {
        let mut random = Self(seed);
        let base = random.next_u64();
        Self(base ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`: 0 if that is 0. The bias is below 2⁻³² for bounds below 2³².
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u32
    }

    /// Puts items in random order: every order is as likely (Fisher and Yates).
    pub fn permute<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_complete_even_and_repeatable() {
        let mut first = [0u32; 5];
        for place in 0..5_000 {
            let mut items = [0, 1, 2, 3, 4];
            Random::new(7, place).permute(&mut items);
            first[items[0]] += 1;
            let mut sorted = items;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            let mut again = [0, 1, 2, 3, 4];
            Random::new(7, place).permute(&mut again);
            assert_eq!(items, again);
        }
        assert!(first.iter().all(|n| (850..1150).contains(n)), "{first:?}");
        assert_eq!(Random::new(1, 1).below(0), 0);
    }
}
