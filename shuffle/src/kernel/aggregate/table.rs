//! One hash table of groups: open addressing, linear probing, a power of two of slots.
//!
//! Keys are their own fingerprints, so nothing else is compared or kept: a slot is a key and its state, on one or two
//! cache lines.

use std::hint::select_unpredictable;

use super::{STEP_ROWS, accumulator::Accumulator};
use crate::kernel::{in_turns_to, in_turns_with};

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

    /// Adds rows, as many as there are of both keys and values; their keys are other than [`EMPTY`].
    ///
    /// In steps, each in three loops: where the groups of the keys are, the keys for which that was not found at a glance,
    /// and what is added. The first and the last have no branch that depends on data, so rows wait neither for each other
    /// nor for a wrong guess of the processor.
    pub(super) fn add<K, V>(
        &mut self,
        keys: &[K],
        key: impl Fn(&K) -> i64,
        values: &[V],
        value: impl Fn(&V) -> A::Value,
    ) {
        let (mut places, mut missed) = ([0; STEP_ROWS], [0; STEP_ROWS]);
        for (keys, values) in keys.chunks(STEP_ROWS).zip(values.chunks(STEP_ROWS)) {
            let mut slots = 0;
            // Places are those of a table of one size: if it grew, they are looked up once more.
            while slots != self.slots.len() {
                slots = self.slots.len();
                let misses = locate(&self.slots, keys, &key, &mut places, &mut missed);
                for row in &missed[..misses] {
                    let key = key(&keys[*row as usize]);
                    places[*row as usize] = self.find(key, hash(key)) as u32;
                }
            }
            add_at(&mut self.slots, &places, values, &value);
        }
    }

    /// The state of a key other than [`EMPTY`], made if there is none.
    pub(super) fn state(&mut self, key: i64, hash: u64) -> &mut A {
        let at = self.find(key, hash);
        &mut self.slots[at].state
    }

    /// Where a key is; made if there is none.
    #[inline(never)]
    fn find(&mut self, key: i64, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].key != key {
            if self.slots[at].key == EMPTY {
                return self.insert(at, key, hash);
            }
            at = (at + 1) & mask;
        }
        at
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

/// Finds the slots of keys that are where they belong, or right after; returns of how many keys this is not so. Their
/// numbers are then in `missed`, and their places mean nothing.
#[inline(never)]
fn locate<A, K>(
    slots: &[Slot<A>],
    keys: &[K],
    key: impl Fn(&K) -> i64,
    places: &mut [u32; STEP_ROWS],
    missed: &mut [u32; STEP_ROWS],
) -> usize {
    let (mut misses, mut row) = (0, 0);
    in_turns_to(keys, places, |item, place| {
        let key = key(item);
        let first = hash(key) as usize & (slots.len() - 1);
        let second = (first + 1) & (slots.len() - 1);
        let (in_first, in_second) = (slots[first].key == key, slots[second].key == key);
        *place = select_unpredictable(in_first, first, second) as u32;
        // Overwritten by the next one unless it counts.
        missed[misses % STEP_ROWS] = row;
        misses += usize::from(!in_first & !in_second);
        row += 1;
    });
    misses
}

/// Adds each value to the state in its place.
#[inline(never)]
fn add_at<A: Accumulator, V>(
    slots: &mut [Slot<A>],
    places: &[u32; STEP_ROWS],
    values: &[V],
    value: impl Fn(&V) -> A::Value,
) {
    in_turns_with(values, places, |item, place| slots[*place as usize].state.add(value(item)));
}
