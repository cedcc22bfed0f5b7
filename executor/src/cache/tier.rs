//! The partitions of the cache: where each is, who may go, what has to move first, and when.
//!
//! Pure bookkeeping under one lock, no I/O. Promises: bytes that are nowhere else are never evicted; what somebody reads
//! is never evicted either, since that would free nothing.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use fanfold_protocol::{call::Durability, limit, value::StoredKey};
use fanfold_store::Index;

use super::{
    budget::Charge,
    disk::{Found, Spilled},
    segments::Segments,
};

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

/// A partition of this executor.
#[derive(Clone, Debug)]
pub enum Here {
    /// In memory.
    Memory(Arc<Cached>),
    /// In a file.
    Disk(Arc<Spilled>),
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
    /// `None`: the only copy was damaged. The entry stays until it is freed, so that nobody takes it for stored.
    here: Option<Here>,
    copy: Copy,
    /// Its key in `order` or `spare`.
    touched: u64,
    /// Being written to a file.
    spilling: bool,
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
    /// Those in memory, least recently used first.
    order: BTreeMap<u64, StoredKey>,
    /// Those on disk that the object store has, in the same order.
    spare: BTreeMap<u64, StoredKey>,
    /// Lazily stored ones in the order they become due; may name entries that are gone or stored by now.
    due: VecDeque<(Instant, StoredKey)>,
    clock: u64,
}

impl Tier {
    /// Adds a partition that only this memory has.
    pub fn insert(&mut self, key: StoredKey, data: Arc<Cached>, durability: Durability, now: Instant) {
        let due = (durability == Durability::Lazy)
            .then(|| now + Duration::from_millis(limit::LAZY_UPLOAD_DELAY_MS));
        self.put_alone(key, Here::Memory(data), due);
    }

    /// Adds a partition that an earlier process of this executor wrote to its disk.
    pub fn insert_found(&mut self, Found { file, lazy }: Found, now: Instant) {
        self.put_alone(file.key, Here::Disk(file), lazy.then_some(now));
    }

    /// Adds a partition that is nowhere else.
    fn put_alone(&mut self, key: StoredKey, here: Here, due: Option<Instant>) {
        if let Some(due) = due {
            self.due.push_back((due, key));
        }
        self.put(key, here, Copy::Nowhere(due));
    }

    /// Adds a copy of a partition that the object store has.
    pub fn insert_stored(&mut self, key: StoredKey, data: Arc<Cached>) {
        self.put(key, Here::Memory(data), Copy::Stored);
    }

    /// Adds a copy of a partition that another executor made.
    pub fn insert_peers(&mut self, key: StoredKey, data: Arc<Cached>) {
        self.put(key, Here::Memory(data), Copy::Peer);
    }

    /// Partitions that were made here: each with whether the object store has it.
    pub fn made_here(&self) -> impl Iterator<Item = (StoredKey, bool)> + '_ {
        let own = |(key, entry): (&StoredKey, &Entry)| match entry.copy {
            _ if entry.here.is_none() => None,
            Copy::Peer => None,
            Copy::Nowhere(_) | Copy::Uploading => Some((*key, false)),
            Copy::Stored => Some((*key, true)),
        };
        self.entries.iter().filter_map(own)
    }

    fn put(&mut self, key: StoredKey, here: Here, copy: Copy) {
        self.remove(key);
        let entry = Entry { here: Some(here), copy, touched: 0, spilling: false, not_before: None };
        self.entries.insert(key, entry);
        self.touch(key);
    }

    /// Makes an entry the most recently used one.
    fn touch(&mut self, key: StoredKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        self.order.remove(&entry.touched);
        self.spare.remove(&entry.touched);
        self.clock += 1;
        entry.touched = self.clock;
        self.list(key);
    }

    /// Puts an entry into the list where it belongs by now.
    fn list(&mut self, key: StoredKey) {
        let Some(Entry { here, copy, touched, .. }) = self.entries.get(&key) else { return };
        self.order.remove(touched);
        self.spare.remove(touched);
        match (here, copy) {
            (Some(Here::Memory(_)), _) => self.order.insert(*touched, key),
            (Some(Here::Disk(_)), Copy::Stored) => self.spare.insert(*touched, key),
            _ => None,
        };
    }

    /// A partition, which becomes the most recently used one.
    pub fn get(&mut self, key: StoredKey) -> Option<Here> {
        let here = self.entries.get(&key)?.here.clone()?;
        self.touch(key);
        Some(here)
    }

    /// Whether the object store has it, as far as this executor knows.
    pub fn stored(&self, key: StoredKey) -> bool {
        self.entries.get(&key).is_none_or(|entry| entry.copy == Copy::Stored)
    }

    /// Removes a partition.
    pub fn remove(&mut self, key: StoredKey) -> Left {
        let Some(entry) = self.entries.remove(&key) else { return Left::Object };
        self.order.remove(&entry.touched);
        self.spare.remove(&entry.touched);
        match entry.copy {
            // Whoever made it has the object removed, too.
            Copy::Nowhere(_) | Copy::Peer => Left::Nothing,
            Copy::Stored => Left::Object,
            Copy::Uploading => Left::Upload,
        }
    }

    /// Evicts what was not used for longest until `bytes` of memory are freed or nothing is left to evict.
    pub fn evict(&mut self, bytes: u64) -> u64 {
        let (mut freed, mut gone) = (0, Vec::new());
        for key in self.order.values() {
            if freed >= bytes {
                break;
            }
            let Some(Entry { here: Some(Here::Memory(data)), copy, .. }) = self.entries.get(key) else {
                continue;
            };
            if matches!(copy, Copy::Stored | Copy::Peer) && Arc::strong_count(data) == 1 {
                freed += data.charge.bytes();
                gone.push(*key);
            }
        }
        for key in gone {
            self.remove(key);
        }
        freed
    }

    /// Files that the object store has, too, least recently used first, until they are `bytes` long together; `None`
    /// where there are not so many.
    pub fn spare(&self, bytes: u64) -> Option<Vec<StoredKey>> {
        let (mut found, mut keys) = (0, Vec::new());
        let mut unread =
            self.spare.values().filter_map(|key| match self.entries.get(key)?.here.as_ref()? {
                Here::Disk(file) if Arc::strong_count(file) == 1 => Some((*key, file.index.bytes())),
                _ => None,
            });
        while found < bytes {
            let (key, bytes) = unread.next()?;
            found += bytes;
            keys.push(key);
        }
        Some(keys)
    }

    /// Whether memory becomes free without further doing: something in it is on its way to somewhere else.
    pub fn is_moving(&self) -> bool {
        let moves = |entry: &Entry| entry.spilling || entry.copy == Copy::Uploading;
        self.order.values().any(|key| self.entries.get(key).is_some_and(moves))
    }

    /// The partition in memory, nowhere else and not being read, that was not used for longest.
    pub fn oldest_spillable(&self) -> Option<(StoredKey, Arc<Cached>)> {
        self.order.values().find_map(|key| match self.entries.get(key)? {
            Entry { here: Some(Here::Memory(data)), copy: Copy::Nowhere(_), spilling: false, .. }
                if Arc::strong_count(data) == 1 =>
            {
                Some((*key, data.clone()))
            }
            _ => None,
        })
    }

    /// Marks one as being written to a file, until [`Tier::spilled`]. Whether it is still to be uploaded.
    pub fn begin_spill(&mut self, key: StoredKey) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        entry.spilling = true;
        matches!(entry.copy, Copy::Nowhere(Some(_)))
    }

    /// `data` was written to a file; `None`: it was not. A file that nobody wants any more goes with its handle.
    pub fn spilled(&mut self, key: StoredKey, data: &Arc<Cached>, file: Option<Arc<Spilled>>) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        // Another copy may have come in its place meanwhile.
        if !matches!(&entry.here, Some(Here::Memory(now)) if Arc::ptr_eq(now, data)) {
            return;
        }
        entry.spilling = false;
        if let Some(file) = file {
            entry.here = Some(Here::Disk(file));
            self.list(key);
        }
    }

    /// The copy in `file` is damaged. Whether the object store has another.
    pub fn damaged(&mut self, key: StoredKey, file: &Arc<Spilled>) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        if !matches!(&entry.here, Some(Here::Disk(now)) if Arc::ptr_eq(now, file)) {
            return false;
        }
        let stored = entry.copy == Copy::Stored;
        if stored {
            self.remove(key);
        } else {
            entry.here = None;
        }
        stored
    }

    /// The next partition that is due for upload.
    pub fn next_due(&mut self, now: Instant) -> Option<StoredKey> {
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

    /// The partition in memory whose upload would make room and that was not used for longest.
    pub fn oldest_uploadable(&self, now: Instant) -> Option<StoredKey> {
        let may = |key: &&StoredKey| {
            self.entries.get(key).is_some_and(|entry| !entry.spilling && entry.may_upload(now))
        };
        self.order.values().find(may).copied()
    }

    /// Marks one as being uploaded, until [`Tier::uploaded`]; `None` where it is stored already or gone.
    pub fn begin_upload(&mut self, key: StoredKey) -> Option<Here> {
        let entry = self.entries.get_mut(&key)?;
        let here = entry.here.clone()?;
        match entry.copy {
            Copy::Stored | Copy::Peer => return None,
            Copy::Uploading => {}
            Copy::Nowhere(_) => entry.copy = Copy::Uploading,
        }
        Some(here)
    }

    /// When the next one becomes due.
    pub fn next_due_at(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// An upload ended. Returns whether the partition is still wanted; if not, its object has to be removed.
    pub fn uploaded(&mut self, key: StoredKey, now: Instant, succeeded: bool) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else { return false };
        if succeeded {
            entry.copy = Copy::Stored;
            self.list(key);
        } else if entry.copy != Copy::Stored {
            let again = now + RETRY_DELAY;
            entry.copy = Copy::Nowhere(Some(again));
            entry.not_before = Some(again);
            if entry.here.is_some() {
                self.due.push_back((again, key));
            }
        }
        true
    }
}

impl Entry {
    fn may_upload(&self, now: Instant) -> bool {
        self.here.is_some()
            && matches!(self.copy, Copy::Nowhere(_))
            && self.not_before.is_none_or(|at| at <= now)
    }
}

#[cfg(test)]
mod tests;
