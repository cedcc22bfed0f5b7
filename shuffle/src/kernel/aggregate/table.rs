//! One hash table of groups: open addressing, linear probing from a pair of slots, a power of two of them.
//!
//! Keys are their own fingerprints, so nothing else is compared or kept: a slot is a key and its state, on one or two
//! cache lines.

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
    /// With fewer slots than these it has three of four free, so that nearly every key is in the pair to which it belongs; with
    /// more, half of them.
    sparse_below: usize,
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
    /// An empty one. As long as it has fewer slots than `sparse_below` it takes twice the memory, for speed.
    pub(super) fn new(sparse_below: usize) -> Self {
        Self { slots: vec![Slot { key: EMPTY, state: A::NEW }; SLOTS], used: 0, sparse_below }
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
        let mut found = Found { places: [0; STEP_ROWS], missed: [0; STEP_ROWS / WORD_ROWS] };
        for (keys, values) in keys.chunks(STEP_ROWS).zip(values.chunks(STEP_ROWS)) {
            let mut slots = 0;
            // Places are those of a table of one size: if it grew, they are looked up once more.
            while slots != self.slots.len() {
                slots = self.slots.len();
                locate(&self.slots, keys, &key, &mut found);
                self.find_missed(keys, &key, &mut found);
            }
            add_at(&mut self.slots, &found.places, values, &value);
        }
    }

    /// Finds, or makes, the slots of the keys that [`locate`] missed.
    #[inline(never)]
    fn find_missed<K>(&mut self, keys: &[K], key: impl Fn(&K) -> i64, found: &mut Found) {
        let words = found.places.chunks_mut(WORD_ROWS).zip(&found.missed);
        for (keys, (places, missed)) in keys.chunks(WORD_ROWS).zip(words) {
            let mut left = *missed;
            while left != 0 {
                let row = keys.len() - 1 - left.trailing_zeros() as usize;
                let key = key(&keys[row]);
                places[row] = self.find(key, hash(key)) as u32;
                left &= left - 1;
            }
        }
    }

    /// The state of a key other than [`EMPTY`], made if there is none.
    pub(super) fn state(&mut self, key: i64, hash: u64) -> &mut A {
        let at = self.find(key, hash);
        &mut self.slots[at].state
    }

    /// Where a key is; made if there is none.
    #[inline(always)]
    fn find(&mut self, key: i64, hash: u64) -> usize {
        let (mask, mut at) = (self.slots.len() - 1, self.start(hash));
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
        let spare = if self.slots.len() < self.sparse_below { 4 } else { 2 };
        if (self.used + 1) * spare > self.slots.len() {
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

    /// The first slot of the pair to which a key belongs.
    fn start(&self, hash: u64) -> usize {
        2 * pair_of(hash, self.slots.len() / 2)
    }

    fn free(&self, hash: u64) -> usize {
        let (mask, mut at) = (self.slots.len() - 1, self.start(hash));
        while self.slots[at].key != EMPTY {
            at = (at + 1) & mask;
        }
        at
    }
}

/// Rows of one word of [`Found::missed`].
const WORD_ROWS: usize = 64;

/// What [`locate`] found. One value, so that a loop needs one register for all of it.
struct Found {
    /// Where the group of each row is.
    places: [u32; STEP_ROWS],
    /// A bit for each row, the last one lowest: whether that was not found at a glance, and its place means nothing.
    missed: [u64; STEP_ROWS / WORD_ROWS],
}

/// The pair of slots to which a key with this hash belongs; if both are taken, those after it are next.
#[inline(always)]
fn pair_of(hash: u64, pairs: usize) -> usize {
    hash as usize & (pairs - 1)
}

/// Finds the slots of keys that are where they belong.
#[inline(never)]
fn locate<A, K>(slots: &[Slot<A>], keys: &[K], key: impl Fn(&K) -> i64, found: &mut Found) {
    let pairs = slots.as_chunks::<2>().0;
    let words = found.places.chunks_mut(WORD_ROWS).zip(&mut found.missed);
    for (keys, (places, missed)) in keys.chunks(WORD_ROWS).zip(words) {
        let mut word = 0;
        in_turns_to(keys, places, |item, place| {
            let key = key(item);
            let pair = pair_of(hash(key), pairs.len());
            let [first, second] = &pairs[pair];
            let (in_first, in_second) = (first.key == key, second.key == key);
            *place = 2 * pair as u32 + u32::from(!in_first);
            word = word << 1 | u64::from(!in_first & !in_second);
        });
        *missed = word;
    }
}

/// Adds each value to the state in its place.
#[inline(never)]
fn add_at<A: Accumulator, V>(
    slots: &mut [Slot<A>],
    places: &[u32; STEP_ROWS],
    values: &[V],
    value: impl Fn(&V) -> A::Value,
) {
    let mask = slots.len() - 1;
    in_turns_with(values, places, |item, place| slots[*place as usize & mask].state.add(value(item)));
}
