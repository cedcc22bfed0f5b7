//! The partitions in memory: who may go, who has to be uploaded first, and when.
//!
//! Pure bookkeeping under one lock, no I/O. Promises: an entry that only memory has is never evicted; an entry that
//! somebody reads is never evicted either, since that would free nothing.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use fanfold_protocol::{call::Durability, limit, value::StoredKey};
use fanfold_store::Index;

use super::{budget::Charge, segments::Segments};

/// How long a partition whose upload failed waits for the next one.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A partition in memory. Readers share it; it outlives its entry as long as one reads.
#[derive(Debug)]
pub struct Cached {
    /// Its bytes.
    pub segments: Segments,
    /// Its blocks.
    pub index: Index,
    charge: Charge,
}

impl Cached {
    /// Bytes and blocks that belong together; `charge` covers the bytes.
    pub fn new(segments: Segments, index: Index, charge: Charge) -> Self {
        Self { segments, index, charge }
    }
}

/// Where else an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copy {
    /// Nowhere. Due for upload from this moment on; `None`: only to make room.
    Nowhere(Option<Instant>),
    /// Nowhere yet, but on its way.
    Uploading,
    /// In the object store.
    Stored,
    /// At the executor that made it, and perhaps in the object store.
    Peer,
}

#[derive(Debug)]
struct Entry {
    data: Arc<Cached>,
    copy: Copy,
    /// Its key in `order`.
    touched: u64,
    /// Not to be tried before this moment, after a failed upload.
    not_before: Option<Instant>,
}

/// What became of a removed entry's copy in the object store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// There is none.
    Nothing,
    /// There may be one.
    Object,
    /// One is being written; whoever writes it finds the entry gone and removes it.
    Upload,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Tier {
    entries: HashMap<StoredKey, Entry>,
    /// Least recently used first.
    order: BTreeMap<u64, StoredKey>,
    /// Lazily stored ones in the order they become due; may name entries that are gone or stored by now.
    due: VecDeque<(Instant, StoredKey)>,
    clock: u64,
    uploading: usize,
}

impl Tier {
    /// Adds a partition that only this memory has.
    pub fn insert(&mut self, key: StoredKey, data: Arc<Cached>, durability: Durability, now: Instant) {
        let due = (durability == Durability::Lazy)
            .then(|| now + Duration::from_millis(limit::LAZY_UPLOAD_DELAY_MS));
        if let Some(due) = due {
            self.due.push_back((due, key));
        }
        self.put(key, data, Copy::Nowhere(due));
    }

    /// Adds a copy of a partition that the object store has.
    pub fn insert_stored(&mut self, key: StoredKey, data: Arc<Cached>) {
        self.put(key, data, Copy::Stored);
    }

    /// Adds a copy of a partition that another executor made.
    pub fn insert_peers(&mut self, key: StoredKey, data: Arc<Cached>) {
        self.put(key, data, Copy::Peer);
    }

    /// Partitions that were made here: each with whether the object store has it.
    pub fn made_here(&self) -> impl Iterator<Item = (StoredKey, bool)> + '_ {
        let own = |(key, entry): (&StoredKey, &Entry)| match entry.copy {
            Copy::Peer => None,
            Copy::Nowhere(_) | Copy::Uploading => Some((*key, false)),
            Copy::Stored => Some((*key, true)),
        };
        self.entries.iter().filter_map(own)
    }

    fn put(&mut self, key: StoredKey, data: Arc<Cached>, copy: Copy) {
        self.remove(key);
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.entries.insert(key, Entry { data, copy, touched: self.clock, not_before: None });
    }

    /// A partition, which becomes the most recently used one.
    pub fn get(&mut self, key: StoredKey) -> Option<Arc<Cached>> {
        let entry = self.entries.get_mut(&key)?;
        self.order.remove(&entry.touched);
        self.clock += 1;
        entry.touched = self.clock;
        self.order.insert(self.clock, key);
        Some(entry.data.clone())
    }

    /// Whether the object store has it, as far as this executor knows.
    pub fn stored(&self, key: StoredKey) -> bool {
        self.entries.get(&key).is_none_or(|entry| entry.copy == Copy::Stored)
    }

    /// Removes a partition.
    pub fn remove(&mut self, key: StoredKey) -> Left {
        let Some(entry) = self.entries.remove(&key) else { return Left::Object };
        self.order.remove(&entry.touched);
        match entry.copy {
            // Whoever made it has the object removed, too.
            Copy::Nowhere(_) | Copy::Peer => Left::Nothing,
            Copy::Stored => Left::Object,
            Copy::Uploading => {
                self.uploading -= 1;
                Left::Upload
            }
        }
    }

    /// Evicts what was not used for longest until `bytes` are freed or nothing is left to evict; the bytes freed.
    pub fn evict(&mut self, bytes: u64) -> u64 {
        let (mut freed, mut gone) = (0, Vec::new());
        for key in self.order.values() {
            if freed >= bytes {
                break;
            }
            let Some(entry) = self.entries.get(key) else { continue };
            if matches!(entry.copy, Copy::Stored | Copy::Peer) && Arc::strong_count(&entry.data) == 1 {
                freed += entry.data.charge.bytes();
                gone.push(*key);
            }
        }
        for key in gone {
            self.remove(key);
        }
        freed
    }

    /// Whether waiting may make room: something is being uploaded, or could be.
    pub fn can_shrink(&self, now: Instant) -> bool {
        self.uploading > 0 || self.entries.values().any(|entry| entry.may_upload(now))
    }

    /// The next partition to upload: one that is due, or, if memory is short, whatever was not used for longest. It
    /// counts as being uploaded until [`Tier::uploaded`].
    pub fn next_upload(&mut self, now: Instant, short: bool) -> Option<(StoredKey, Arc<Cached>)> {
        let key = self.next_due(now).or_else(|| {
            let may = |key: &&StoredKey| self.entries.get(key).is_some_and(|entry| entry.may_upload(now));
            if short { self.order.values().find(may).copied() } else { None }
        })?;
        Some((key, self.begin_upload(key)?))
    }

    /// Marks one as being uploaded; `None` where it is stored already or gone.
    pub fn begin_upload(&mut self, key: StoredKey) -> Option<Arc<Cached>> {
        let entry = self.entries.get_mut(&key)?;
        match entry.copy {
            Copy::Stored | Copy::Peer => return None,
            Copy::Uploading => {}
            Copy::Nowhere(_) => {
                entry.copy = Copy::Uploading;
                self.uploading += 1;
            }
        }
        Some(entry.data.clone())
    }

    fn next_due(&mut self, now: Instant) -> Option<StoredKey> {
        while let Some((at, key)) = self.due.front().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_front();
            // An entry of this key that was added later has its own place in the queue.
            let waits = |entry: &Entry| entry.copy == Copy::Nowhere(Some(at)) && entry.may_upload(now);
            if self.entries.get(&key).is_some_and(waits) {
                return Some(key);
            }
        }
        None
    }

    /// When the next one becomes due.
    pub fn next_due_at(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// An upload ended. Returns whether the partition is still wanted; if not, its object has to be removed.
    pub fn uploaded(&mut self, key: StoredKey, now: Instant, succeeded: bool) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        if entry.copy == Copy::Uploading {
            self.uploading -= 1;
        }
        if succeeded {
            entry.copy = Copy::Stored;
        } else if entry.copy != Copy::Stored {
            let again = now + RETRY_DELAY;
            entry.copy = Copy::Nowhere(Some(again));
            entry.not_before = Some(again);
            self.due.push_back((again, key));
        }
        true
    }
}

impl Entry {
    fn may_upload(&self, now: Instant) -> bool {
        matches!(self.copy, Copy::Nowhere(_)) && self.not_before.is_none_or(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanfold_protocol::{JobId, PartitionId, TaskId};

    use super::*;
    use crate::cache::budget::Budget;

    fn key(n: u32) -> StoredKey {
        let partition = PartitionId { task: TaskId([0; 16]), output: n };
        StoredKey { job: JobId(uuid::Uuid::nil()), partition, epoch: 1, attempt: 1 }
    }

    fn cached(budget: &Arc<Budget>, bytes: usize) -> Arc<Cached> {
        let data = Bytes::from(vec![7; bytes]);
        let index = Index::of(&data);
        Arc::new(Cached::new(data.into(), index, budget.take(bytes as u64).unwrap()))
    }

    #[test]
    fn only_stored_and_unread_partitions_are_evicted_oldest_first() {
        let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
        tier.insert(key(0), cached(&budget, 10), Durability::Lazy, now);
        for n in 1..5 {
            tier.insert_stored(key(n), cached(&budget, 10));
        }
        let reading = tier.get(key(2)).unwrap();
        drop(tier.get(key(1)));
        assert_eq!(tier.evict(15), 20, "3 and 4 go");
        assert!(tier.get(key(3)).is_none() && tier.get(key(4)).is_none());
        assert_eq!(tier.evict(100), 10, "then 1; 2 is read and 0 is only here");
        assert_eq!(budget.used(), 20);
        tier.remove(key(2));
        assert_eq!((budget.used(), reading.segments.bytes()), (20, 10), "a reader keeps a freed partition");
        drop(reading);
        assert_eq!(budget.used(), 10);
    }

    #[test]
    fn uploads_come_when_due_or_when_memory_is_short() {
        let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
        tier.insert(key(0), cached(&budget, 10), Durability::None, now);
        tier.insert(key(1), cached(&budget, 10), Durability::Lazy, now);
        tier.insert(key(2), cached(&budget, 10), Durability::Lazy, now);
        assert!(tier.next_upload(now, false).is_none());
        let due = tier.next_due_at().unwrap();
        assert_eq!(tier.remove(key(1)), Left::Nothing, "freed before its upload: nothing was written");
        assert_eq!(tier.next_upload(due, false).unwrap().0, key(2));
        assert!(tier.next_upload(due, false).is_none(), "each is uploaded once");
        assert_eq!(tier.next_upload(now, true).unwrap().0, key(0));
        assert_eq!(tier.remove(key(0)), Left::Upload);
        assert!(!tier.uploaded(key(0), now, true), "freed while it was uploaded: its object has to go");
        assert!(tier.uploaded(key(2), now, true) && tier.stored(key(2)));
    }

    #[test]
    fn a_failed_upload_is_tried_again_later() {
        let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
        tier.insert(key(0), cached(&budget, 10), Durability::None, now);
        tier.next_upload(now, true).unwrap();
        assert!(tier.uploaded(key(0), now, false));
        assert!(!tier.can_shrink(now) && tier.next_upload(now, true).is_none());
        let later = now + RETRY_DELAY;
        assert!(tier.can_shrink(later) && tier.next_upload(later, false).is_some());
    }
}
