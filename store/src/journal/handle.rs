//! What callers hold.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use fanfold_protocol::{Code, Error, Kind, limit, record::Record};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use super::{
    Options,
    open::open,
    segment::Encoded,
    writer::{Append, Message, Writer},
};
use crate::Store;

/// A handle to the journal of one shard, which this process owns until it is fenced. Cheap to clone.
///
/// Records are recorded in the order in which these methods were called, by one caller after another. A future that is
/// dropped halfway leaves it open whether its records are recorded. Dropping the last handle without
/// [`Journal::close`] is like a crash: what is durable stays, what is queued goes.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    door: mpsc::Sender<Message>,
    /// Bytes that may wait for the writer.
    room: Arc<Semaphore>,
    state: Arc<State>,
    epoch: u64,
    task: Mutex<JoinSet<()>>,
}

/// What the writer lets its callers see.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Why it stopped for good.
    pub(super) ended: OnceLock<Error>,
    /// So much waits for room on the disk that nothing more is taken.
    pub(super) full: AtomicBool,
    pub(super) segments: AtomicU64,
    pub(super) bytes: AtomicU64,
}

impl Journal {
    /// Takes over the journal of `shard` (`a-z`, `0-9`, `-`) and reads it: all records, in order, since ever or since
    /// the newest checkpoint. An owner before this one is fenced.
    ///
    /// # Errors
    /// `conflict` / `fenced` where somebody else took it over meanwhile; `lost` / `corrupt`, naming the file and what to
    /// do; `platform`.
    pub async fn open(store: &Store, shard: &str) -> Result<(Self, Vec<Record>), Error> {
        Self::open_with(store, shard, Options::suiting(store)).await
    }

    /// [`Journal::open`] with options of one's own.
    ///
    /// # Errors
    /// As there.
    pub async fn open_with(
        store: &Store,
        shard: &str,
        options: Options,
    ) -> Result<(Self, Vec<Record>), Error> {
        let mut opened = open(store.backend().clone(), shard, options).await?;
        let records = std::mem::take(&mut opened.records);
        let (door, messages) = mpsc::channel(limit::JOURNAL_QUEUE_MAX);
        let state = Arc::new(State::default());
        let epoch = opened.shard.epoch;
        let writer = Writer::new(opened, messages, state.clone());
        let mut task = JoinSet::new();
        task.spawn(writer.run());
        let room = Arc::new(Semaphore::new(limit::JOURNAL_QUEUE_BYTES_MAX));
        Ok((Self(Arc::new(Inner { door, room, state, epoch, task: Mutex::new(task) })), records))
    }

    /// The epoch of this owner: higher than that of every owner before it.
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// Whether another owner has taken over. This one's process should stop.
    pub fn fenced(&self) -> bool {
        self.0.state.ended.get().is_some_and(|e| e.code == Code::Fenced)
    }

    /// Records one entry; returns when it is durable.
    ///
    /// # Errors
    /// `platform` / `disk-full`: it is not recorded; the journal goes on when there is room. `platform` / `storage`: it
    /// may or may not be. `conflict` / `fenced`: it is not, and nothing ever will be. `overloaded` / `draining`: closed.
    pub async fn append(&self, record: Record) -> Result<(), Error> {
        self.record(Encoded::of([&record])?).await
    }

    /// Records entries together: after a crash either all of them are there or none. No entries: returns when
    /// everything before is durable.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn append_all(&self, records: Vec<Record>) -> Result<(), Error> {
        self.record(Encoded::of(&records)?).await
    }

    /// Records an entry; returns when it is queued. It stays queued while the disk is full. A later
    /// [`Journal::append`] that succeeds says that it is durable.
    ///
    /// # Errors
    /// `platform` / `disk-full` where too much is queued for a full disk: it is not recorded. `conflict`, `overloaded`.
    pub async fn append_later(&self, record: Record) -> Result<(), Error> {
        self.send(Encoded::of([&record])?, None).await
    }

    /// Compacts the journal. `state` must be records that fold to the same state as everything that was appended (by
    /// any of the three methods) before this call and did not fail; so call it with no append in flight. Appends go on
    /// meanwhile.
    ///
    /// # Errors
    /// `platform`: the journal is as it was; among others, where an append failed since the last that succeeded.
    pub async fn checkpoint(&self, state: Vec<Record>) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        self.0.door.send(Message::Checkpoint { state, done }).await.map_err(|_| self.gone())?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Segments a replay would have to read: those since the newest checkpoint.
    pub fn segments_since_checkpoint(&self) -> u64 {
        self.0.state.segments.load(Relaxed)
    }

    /// Bytes a replay would have to read beside the checkpoint.
    pub fn bytes_since_checkpoint(&self) -> u64 {
        self.0.state.bytes.load(Relaxed)
    }

    /// Records what is queued and ends. Other handles get errors from then on.
    ///
    /// # Errors
    /// Why something that was queued could not be recorded.
    pub async fn close(self) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        let closed = match self.0.door.send(Message::Close { done }).await {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(self.gone())),
            Err(_) => Err(self.gone()),
        };
        let task = std::mem::take(&mut *self.0.task.lock().unwrap_or_else(PoisonError::into_inner));
        // It can only fail by a panic, which was reported when it happened.
        task.join_all().await;
        closed
    }

    async fn record(&self, records: Encoded) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        self.send(records, Some(done)).await?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    async fn send(
        &self,
        records: Encoded,
        done: Option<oneshot::Sender<Result<(), Error>>>,
    ) -> Result<(), Error> {
        if let Some(ended) = self.0.state.ended.get() {
            return Err(ended.clone());
        }
        if self.0.state.full.load(Relaxed) {
            return Err(Error::new(
                Kind::Platform,
                Code::DiskFull,
                "the disk that holds the journal is full, and as much as may wait for it does; free some space, and \
                 it goes on by itself",
            ));
        }
        // Bytes before counts: this bounds what waits, the channel's length only how many.
        let bytes = records.body.len().min(limit::JOURNAL_QUEUE_BYTES_MAX) as u32;
        let room = self.0.room.clone().acquire_many_owned(bytes).await.map_err(|_| self.gone())?;
        self.0.door.send(Message::Append(Append { records, done, room })).await.map_err(|_| self.gone())
    }

    /// Why the writer does not answer.
    fn gone(&self) -> Error {
        let closed = || {
            Error::new(
                Kind::Overloaded,
                Code::Draining,
                "the journal is closed: the process is shutting down",
            )
        };
        self.0.state.ended.get().cloned().unwrap_or_else(closed)
    }
}
