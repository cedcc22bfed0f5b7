//! One hash table of groups: open addressing, linear probing, a power of two of slots.
//!
//! Keys are their own fingerprints, so nothing else is compared or kept: a slot is a key and its state, on one or two
//! cache lines.

use super::accumulator::Accumulator;

/// The key of an empty slot. A group with this key is kept apart, by the [`Aggregator`](super::Aggregator).
pub(super) const EMPTY: i64 = i64::MIN;
/// Slots of a new table.
const SLOTS: usize = 1 << 6;

#[derive(Clone, Copy, Debug)]
struct Slot<A> {
    key: i64,
    state: A,
}

/// Groups by key.
#[derive(Debug)]
pub(super) struct Table<A> {
    slots: Vec<Slot<A>>,
    used: usize,
}

/// Mixes a key so that both its high bits (columns, tables) and its low bits (slots) depend on all of it: the finaliser
/// of MurmurHash3. Stored data depends on it: it must never change.
#[inline]
pub fn hash(key: i64) -> u64 {
    let mut h = key as u64;
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

impl<A: Accumulator> Table<A> {
    pub(super) fn new() -> Self {
        Self { slots: vec![Slot { key: EMPTY, state: A::NEW }; SLOTS], used: 0 }
    }

    /// Groups in it.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// The state of a key other than [`EMPTY`], made if there is none.
    #[inline(always)]
    pub(super) fn state(&mut self, key: i64, hash: u64) -> &mut A {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].key != key {
            if self.slots[at].key == EMPTY {
                at = self.insert(at, key, hash);
                break;
            }
            at = (at + 1) & mask;
        }
        &mut self.slots[at].state
    }

    /// Every group, in the order of the slots.
    pub(super) fn each(&self, visit: &mut impl FnMut(i64, &A)) {
        self.slots.iter().filter(|slot| slot.key != EMPTY).for_each(|slot| visit(slot.key, &slot.state));
    }

    /// Puts a new group into the free slot `at`, or elsewhere if the table has to grow, and returns where.
    #[cold]
    #[inline(never)]
    fn insert(&mut self, at: usize, key: i64, hash: u64) -> usize {
        let mut at = at;
        if (self.used + 1) * 2 > self.slots.len() {
            let larger = vec![Slot { key: EMPTY, state: A::NEW }; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, larger);
            for slot in old.into_iter().filter(|slot| slot.key != EMPTY) {
                let free = self.free(super::hash(slot.key));
                self.slots[free] = slot;
            }
            at = self.free(hash);
        }
        self.slots[at].key = key;
        self.used += 1;
        at
    }

    fn free(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].key != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }
}
