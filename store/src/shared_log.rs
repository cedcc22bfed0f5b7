//! A log that every process may append to: what must be the same for all gateways, such as functions and aliases.
//!
//! Entry `n + 1` is created only if nobody else has (`registry/<log>/<seq>`), by somebody who has read entry `n`. So a
//! change is: read to the tail, decide, create the next entry; where it is taken, read on and decide anew. That is
//! linearizable on every store with create-only puts, and needs no leader and no lock.
//!
//! An entry has the format of a journal segment, with a fresh id as its writer. A creation whose answer was lost and
//! that finds its own bytes has succeeded. A *checkpoint* stands for all entries up to its number; entries are kept all
//! the same, so a damaged checkpoint costs time and no data. This does not fold records, and promises nothing about
//! when others see an entry: they look when they want to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind as ErrorKind, record::Record};
use futures::future::try_join_all;
use object_store::path::Path;
use uuid::Uuid;

use crate::{
    Clock, Store,
    backend::Backend,
    directory::blocking,
    errors::corrupt,
    journal::segment::{self, Encoded, Header, Kind, Segment},
    paths,
};

/// Entries after which the writer of the last one should write a checkpoint: reading so many takes a new gateway less
/// than a second.
pub const CHECKPOINT_ENTRIES: u64 = 256;
/// Entries that are read at once where there are many. The first look is for one: mostly there is none.
const READ_AHEAD_MAX: u64 = 16;
/// Milliseconds between tries of an entry whose fate is unknown.
const RETRY_PAUSES_MS: [u64; 4] = [20, 100, 500, 1000];

/// A handle to one shared log; cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: Backend,
    name: String,
    clock: Clock,
    /// The last entry that is known to exist, so that none is written beyond a gap.
    known: AtomicU64,
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// It is in the log, durably.
    Written,
    /// It is not: somebody else's has its number. Read on from there and decide anew.
    Taken,
}

impl SharedLog {
    /// The log called `name` (`a-z`, `0-9`, `-`). Reads nothing.
    ///
    /// # Errors
    /// `invalid` for another name.
    pub fn open(store: &Store, name: &str) -> Result<Self, Error> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(Error::invalid(format!("`{}` is not a log's name", name.escape_debug())));
        }
        let backend = store.backend().clone();
        let (name, clock) = (name.to_owned(), Clock::system());
        Ok(Self(Arc::new(Inner { backend, name, clock, known: AtomicU64::new(0) })))
    }

    /// The newest checkpoint: the number of the last entry it covers, and its records. Without one, 0 and none. The
    /// entries after it are `read_from(seq + 1)`.
    ///
    /// # Errors
    /// `platform`.
    pub async fn checkpointed(&self) -> Result<(u64, Vec<Record>), Error> {
        let Inner { backend, name, .. } = &*self.0;
        let names = backend.names(&paths::shared_log(name), paths::SHARED_CHECKPOINT, None).await?;
        let numbers = names.iter().rev().filter_map(|name| {
            name.strip_prefix(paths::SHARED_CHECKPOINT).and_then(|number| number.parse::<u64>().ok())
        });
        for seq in numbers {
            let path = paths::shared_checkpoint(name, seq);
            let bytes = backend.get(&path).await?.unwrap_or_default();
            match parse(&path, &bytes, Kind::Checkpoint, seq) {
                Ok(records) => {
                    self.0.known.fetch_max(seq, Relaxed);
                    return Ok((seq, records));
                }
                Err(e) => tracing::error!("{e}; going on from the checkpoint before it"),
            }
        }
        Ok((0, Vec::new()))
    }

    /// All entries from `seq` (the first is 1) to the tail, in order. To ask is to say that all before `seq` are known.
    /// One request where there is nothing new.
    ///
    /// # Errors
    /// `lost` / `corrupt`, naming the entry; `platform`.
    pub async fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<Record>)>, Error> {
        let Inner { backend, name, known, .. } = &*self.0;
        let (mut next, mut ahead, mut entries) = (seq.max(1), 1, Vec::new());
        known.fetch_max(next - 1, Relaxed);
        loop {
            let paths = (next..next + ahead).map(|seq| (seq, paths::shared_entry(name, seq)));
            let read = paths.map(async |(seq, path)| {
                let bytes = backend.get(&path).await?;
                bytes.map(|bytes| parse(&path, &bytes, Kind::Records, seq)).transpose()
            });
            for records in try_join_all(read).await? {
                let Some(records) = records else { return Ok(entries) };
                entries.push((next, records));
                known.fetch_max(next, Relaxed);
                next += 1;
            }
            ahead = (ahead * 2).min(READ_AHEAD_MAX);
        }
    }

    /// Creates entry `seq`, which must be the one after the last that was read or written through this handle. Where
    /// its answer is lost it is tried again, and recognised.
    ///
    /// # Errors
    /// `platform` / `storage`: it may or may not be in the log; read on from `seq` to find out. `platform` / `internal`
    /// for a number beyond the next; `invalid` for a record that is too long; `lost` / `corrupt`.
    pub async fn append(&self, seq: u64, records: Vec<Record>) -> Result<Appended, Error> {
        let known = self.0.known.load(Relaxed);
        if seq == 0 || seq > known + 1 {
            let what = format!("entry {seq} cannot be written: the last known one is {known}");
            return Err(Error::internal(what));
        }
        let path = paths::shared_entry(&self.0.name, seq);
        let bytes = self.encode(Kind::Records, seq, records).await?;
        let mut pauses = RETRY_PAUSES_MS.into_iter().map(Duration::from_millis);
        loop {
            let unknown = match self.create(&path, &bytes).await {
                Ok(appended) => {
                    self.0.known.fetch_max(seq, Relaxed);
                    return Ok(appended);
                }
                Err(e) if !e.retryable || e.code == Code::DiskFull => return Err(e),
                Err(e) => e,
            };
            let Some(pause) = pauses.next() else {
                return Err(unknown.context("it is not known whether the entry is recorded"));
            };
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        }
    }

    /// Whether a checkpoint should be written by who wrote entry `seq`.
    pub fn wants_checkpoint(seq: u64) -> bool {
        seq.is_multiple_of(CHECKPOINT_ENTRIES)
    }

    /// Writes the checkpoint of all entries up to `seq`. `state` are records that fold to the same state as those. If
    /// somebody else has written it, it says the same, and nothing is done.
    ///
    /// # Errors
    /// `platform`; nothing is lost by leaving it out.
    pub async fn checkpoint(&self, seq: u64, state: Vec<Record>) -> Result<(), Error> {
        let bytes = self.encode(Kind::Checkpoint, seq, state).await?;
        let path = paths::shared_checkpoint(&self.0.name, seq);
        self.0.backend.create(&path, bytes.into()).await.map(|_| ())
    }

    async fn encode(&self, kind: Kind, seq: u64, records: Vec<Record>) -> Result<Bytes, Error> {
        // The writer's id tells this entry from all others, those of the same process included.
        let (writer, at_ms) = (Uuid::now_v7(), self.0.clock.now_ms());
        let header = Header { kind, epoch: 0, seq, writer, at_ms };
        blocking(move || Ok(segment::encode(&header, &[&Encoded::of(&records)?]))).await
    }

    /// Tries once to create an entry, and finds out whose is there.
    async fn create(&self, path: &Path, bytes: &Bytes) -> Result<Appended, Error> {
        let backend = &self.0.backend;
        let failure = match backend.create(path, bytes.clone().into()).await {
            Ok(true) => return Ok(Appended::Written),
            Ok(false) => None,
            Err(e) => Some(e),
        };
        match (backend.get(path).await, failure) {
            (Ok(Some(found)), _) if found == bytes => {
                backend.sync_entry(path).await.map(|()| Appended::Written)
            }
            (Ok(Some(_)), _) => Ok(Appended::Taken),
            (Ok(None), None) => Err(Error::new(
                ErrorKind::Platform,
                Code::Storage,
                format!("`{path}` came and went: entries must not be removed"),
            )),
            (Ok(None) | Err(_), Some(e)) | (Err(e), None) => Err(e),
        }
    }
}

/// The records of an entry or a checkpoint.
fn parse(path: &Path, bytes: &Bytes, kind: Kind, seq: u64) -> Result<Vec<Record>, Error> {
    let segment = Segment::parse(bytes).map_err(|damage| corrupt(path, damage))?;
    if segment.header.kind != kind || segment.header.seq != seq {
        return Err(corrupt(path, "it is another entry"));
    }
    let mut records = Vec::new();
    segment.read(path, &mut records)?;
    Ok(records)
}
