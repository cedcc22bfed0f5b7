//! The partition cache: memory first, then the executor's disk, then the object store.
//!
//! It owns the bytes of partitions in memory and in files, their budgets, and their way to the object store. A partition is
//! written into memory and becomes durable as its task wishes: before the commit, some seconds after it, or never. When
//! memory is short, partitions that the store has are evicted, least recently used first; if that is not enough, others are
//! written to files ([`disk`]); where the disk takes nothing, they are uploaded to make room, also those that would
//! otherwise never be (making them again, over and over, would cost more than the upload). Most of a job's temporaries are
//! freed before their upload is due and never leave memory.
//!
//! It does not know what a job is, nor which attempt of a task was committed.

mod away;
pub mod budget;
pub mod segments;
mod tier;
mod room;
mod disk;
mod label;
mod route;
mod scratch;
mod prefetch;
mod upload;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind,
    call::Durability,
    limit,
    link::Held,
    value::{Stored, StoredKey},
};
use fanfold_store::{Index, Store};
use futures::StreamExt as _;
use tokio::sync::Notify;

pub use away::Away;
use away::Known;
pub use budget::{Budget, Charge};
use disk::Disk;
pub use disk::Spilled;
use prefetch::Flights;
pub use segments::{Growing, SEGMENT_BYTES, Segments};
pub use tier::{Cached, Here};
use tier::{Left, Tier};

use crate::{
    config::{Config, Spill},
    peer::Peers,
};

/// A handle to the cache; cheap to clone.
#[derive(Clone, Debug)]
pub struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: Arc<Budget>,
    tier: Mutex<Tier>,
    /// Where partitions go that do not fit into memory, if there is such a place.
    disk: Option<Disk>,
    store: Store,
    peers: Peers,
    /// Short partitions that are being fetched.
    flights: Flights,
    /// Partitions elsewhere that are read range by range.
    known: Known,
    /// Bytes that are fetched before anybody has asked.
    prefetching: Arc<Budget>,
    /// Objects to remove.
    garbage: Mutex<Vec<StoredKey>>,
    /// Why the last upload failed; `None` after one that did not.
    failing: Mutex<Option<Error>>,
    /// Tells the background work that there may be something to do.
    work: Arc<Notify>,
}

/// A partition that can be read.
#[derive(Clone, Debug)]
pub enum Partition {
    /// All of it is in memory.
    Memory(Arc<Cached>),
    /// It is in a file of this executor.
    Disk(Arc<Spilled>),
    /// It is elsewhere.
    Away(Arc<Away>),
}

impl Partition {
    /// Its blocks.
    pub fn index(&self) -> &Index {
        match self {
            Self::Memory(cached) => &cached.index,
            Self::Disk(spilled) => &spilled.index,
            Self::Away(away) => &away.index,
        }
    }
}

impl Partition {
    /// Whether every read of it is a request to the object store.
    pub fn is_in_store(&self) -> bool {
        matches!(self, Self::Away(away) if away.peer.is_none())
    }
}

impl From<Here> for Partition {
    fn from(here: Here) -> Self {
        match here {
            Here::Memory(cached) => Self::Memory(cached),
            Here::Disk(spilled) => Self::Disk(spilled),
        }
    }
}

impl Cache {
    /// A cache over `store`, as an executor is configured. Uploads happen only while [`Cache::run`] does. It has what an executor of the
    /// same `platform` left on disk that was killed, and its id.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn from_config(config: &Config, platform: &str, store: Store) -> Result<Self, Error> {
        let (work, mut tier) = (Arc::new(Notify::new()), Tier::default());
        let open = |spill: &Spill| Disk::open(spill, platform, config.executor, work.clone());
        let (disk, found) = config.spill.as_ref().map(open).transpose()?.unzip();
        found.into_iter().flatten().for_each(|found| tier.insert_found(found, Instant::now()));
        let executor = disk.as_ref().map_or(config.executor, Disk::executor);
        let memory = config.cache_memory;
        segments::bound_pools(memory);
        Ok(Self(Arc::new(Inner {
            budget: Budget::new(memory),
            tier: Mutex::new(tier),
            disk,
            store,
            peers: Peers::new(executor, config.security.clone()),
            flights: Flights::default(),
            known: Known::default(),
            prefetching: Budget::new(memory / 4),
            garbage: Mutex::default(),
            failing: Mutex::default(),
            work,
        })))
    }

    /// Removes all files; their partitions cannot be read any more. Ends reads from peers. Once [`Cache::run`] has ended.
    pub async fn close(&self) {
        self.0.peers.fetch.close().await;
        if let Some(disk) = &self.0.disk {
            disk.close().await;
        }
    }

    /// Adds a partition that was just made. `charge` covers its bytes.
    pub fn insert(
        &self,
        key: StoredKey,
        segments: Segments,
        index: Index,
        charge: Charge,
        durability: Durability,
    ) {
        let data = Arc::new(Cached::new(segments, index, charge));
        self.tier().insert(key, data, durability, Instant::now());
        if durability == Durability::Lazy {
            self.0.work.notify_one();
        }
    }

    /// Other executors.
    pub fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// What was made here and is still here, of what `wanted` says.
    pub fn held(&self, wanted: impl Fn(StoredKey) -> bool) -> Vec<Held> {
        let tier = self.tier();
        tier.made_here().filter(|(key, _)| wanted(*key)).map(|(key, durable)| Held { key, durable }).collect()
    }

    /// Finds a partition: at this executor, at the one that made it, in the object store. One from elsewhere of at most
    /// `whole_max` bytes is brought into memory as a whole, for its other readers.
    ///
    /// # Errors
    /// [`Kind::Lost`] where no copy can be read: it has to be made again. [`Kind::Platform`] where the store fails.
    pub async fn open(&self, stored: &Stored, whole_max: u64) -> Result<Partition, Error> {
        let key = stored.key;
        if let Some(here) = self.here(key) {
            return Ok(here);
        }
        // Only what is brought into memory is there for who waited.
        let short = stored.meta.bytes <= whole_max;
        if !short && let Some(away) = self.known(stored) {
            return Ok(Partition::Away(away));
        }
        let _flight = if short { self.0.flights.join(key).await } else { None };
        if let Some(here) = self.here(key) {
            return Ok(here);
        }
        if let Some(peer) = self.0.peers.address(stored.at) {
            match self.open_at(&peer, stored, short).await {
                Ok(partition) => return Ok(partition),
                Err(error) => tracing::debug!(%error, "reading from the object store instead"),
            }
        }
        let partitions = self.0.store.partitions();
        let index = partitions.index(key).await.map_err(lost)?;
        if index.meta() != stored.meta {
            let message = format!("the stored copy of partition `{}` is of another one", key.partition);
            return Err(Error::new(Kind::Lost, Code::Corrupt, message));
        }
        let bytes = index.bytes();
        let charge = if short { self.make_room(bytes) } else { None };
        let Some(charge) = charge else {
            return Ok(Partition::Away(self.0.known.keep(Away { key, index, peer: None })));
        };
        let data = partitions.read(key, &index, 0..bytes).await.map_err(lost)?;
        let cached = Arc::new(Cached::new(data.into(), index, charge));
        self.tier().insert_stored(key, cached.clone());
        Ok(Partition::Memory(cached))
    }

    /// The same, from the executor that made it.
    async fn open_at(&self, peer: &Arc<str>, stored: &Stored, short: bool) -> Result<Partition, Error> {
        let (key, bytes) = (stored.key, stored.meta.bytes);
        let charge = if short { self.make_room(bytes) } else { None };
        let Some(charge) = charge else {
            let index = self.0.peers.fetch.open(peer, stored, 0).await?.index;
            let peer = Some(peer.clone());
            return Ok(Partition::Away(self.0.known.keep(Away { key, index, peer })));
        };
        let fetched = self.0.peers.fetch.open(peer, stored, bytes).await?;
        let cached = Arc::new(Cached::new(fetched.bytes.into(), fetched.index, charge));
        self.tier().insert_peers(key, cached.clone());
        Ok(Partition::Memory(cached))
    }

    /// A partition that was opened before and is still read from the same place.
    fn known(&self, stored: &Stored) -> Option<Arc<Away>> {
        let away = self.0.known.get(stored.key).filter(|away| away.index.meta() == stored.meta)?;
        let elsewhere = away.peer.is_some() && away.peer != self.0.peers.address(stored.at);
        (!elsewhere).then_some(away)
    }

    /// Reads a range of a partition.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub async fn read(&self, partition: &Partition, range: std::ops::Range<u64>) -> Result<Bytes, Error> {
        let (key, index) = match partition {
            Partition::Memory(cached) => return Ok(cached.segments.slice(range)),
            Partition::Disk(spilled) => match spilled.read(range.clone()).await {
                Err(error) if error.kind == Kind::Lost => {
                    tracing::warn!(%error, "a spilled partition cannot be read");
                    if !self.tier().damaged(spilled.key, spilled) {
                        return Err(error);
                    }
                    (spilled.key, &spilled.index)
                }
                read => return read,
            },
            Partition::Away(away) => {
                let Away { key, index, peer } = &**away;
                if let Some(peer) = peer {
                    match self.0.peers.fetch.read(peer, *key, index, range.clone()).await {
                        Ok(bytes) => return Ok(bytes),
                        Err(error) => tracing::debug!(%error, "reading from the object store instead"),
                    }
                    self.0.known.forget(*key);
                }
                (*key, index)
            }
        };
        let read = self.0.store.partitions().read(key, index, range).await;
        if read.is_err() {
            self.0.known.forget(key);
        }
        read.map_err(lost)
    }

    /// A partition of this executor.
    pub fn here(&self, key: StoredKey) -> Option<Partition> {
        self.tier().get(key).map(Partition::from)
    }

    /// Writes partitions to the object store before this returns.
    ///
    /// # Errors
    /// [`Kind::Platform`] where that fails; some may have been written.
    pub async fn persist(&self, keys: Vec<StoredKey>) -> Result<(), Error> {
        let uploads = futures::stream::iter(keys.into_iter().map(|key| self.clone().persist_one(key)));
        let results: Vec<Result<(), Error>> = uploads.buffer_unordered(limit::UPLOADS_MAX).collect().await;
        results.into_iter().collect()
    }

    /// Writes to the object store what only this memory has.
    ///
    /// # Errors
    /// As [`Cache::persist`].
    pub async fn upload_all(&self) -> Result<(), Error> {
        let here = self.held(|_| true).into_iter().filter(|held| !held.durable);
        self.persist(here.map(|held| held.key).collect()).await
    }

    async fn persist_one(self, key: StoredKey) -> Result<(), Error> {
        let Some(here) = self.tier().begin_upload(key) else { return Ok(()) };
        let begun = Begun { cache: &self, key };
        let result = self.upload(key, here).await;
        std::mem::forget(begun);
        self.upload_ended(key, &result);
        result
    }

    /// Whether the object store has a partition, as far as is known here.
    pub fn is_durable(&self, key: StoredKey) -> bool {
        self.tier().stored(key)
    }

    /// Drops every copy of partitions, now in memory and soon in the object store. Who reads one reads on.
    pub fn free(&self, keys: &[StoredKey]) {
        let mut tier = self.tier();
        let mut garbage = lock(&self.0.garbage);
        garbage.extend(keys.iter().filter(|key| tier.remove(**key) == Left::Object));
        let work = !garbage.is_empty();
        drop((tier, garbage));
        if work {
            self.0.work.notify_one();
        }
    }

    /// Notes the end of an upload; removes the object of a partition that was freed meanwhile.
    fn upload_ended(&self, key: StoredKey, result: &Result<(), Error>) -> bool {
        *lock(&self.0.failing) = result.as_ref().err().cloned();
        self.settle(key, result.is_ok())
    }

    fn settle(&self, key: StoredKey, written: bool) -> bool {
        let wanted = self.tier().uploaded(key, Instant::now(), written);
        if !wanted {
            lock(&self.0.garbage).push(key);
            self.0.work.notify_one();
        }
        self.0.budget.nudge();
        wanted
    }

    fn tier(&self) -> MutexGuard<'_, Tier> {
        lock(&self.0.tier)
    }
}

/// An upload in an attempt's name. The attempt may be stopped in the middle; then the upload has not ended well.
struct Begun<'a> {
    cache: &'a Cache,
    key: StoredKey,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.cache.settle(self.key, false);
    }
}

/// A panic under one of these locks leaves counts behind that are at worst too high.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Absence of data that was there is loss.
fn lost(error: Error) -> Error {
    match error.kind {
        Kind::NotFound => Error::new(Kind::Lost, Code::PartitionLost, error.message),
        _ => error,
    }
}

#[cfg(test)]
impl Cache {
    /// A cache of `memory` bytes, without a disk.
    pub(crate) fn new(store: Store, executor: fanfold_protocol::ExecutorId, cache_memory: u64) -> Self {
        let config = Config { executor, cache_memory, ..Config::default() };
        Self::from_config(&config, "", store).expect("nothing of it can fail")
    }
}

#[cfg(test)]
mod tests;
