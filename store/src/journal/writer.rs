//! The one task that writes: takes what is queued, makes one segment of it, answers when that is durable.
//!
//! A segment closes when the writer is free; what arrives while it is being written goes into the next one, so a slow
//! disk makes segments longer, not queues. On a store that is paid per put, segments also keep a distance in time
//! ([`super::Options::commit_interval`]). Nothing else ever writes to the tail.
//!
//! A segment that failed is in one of two states. Known not to be there (a full disk): its number is free, callers that
//! wait are told, and records nobody waits for are *carried* into the next one. Unknown: it may appear any time, so the
//! same bytes stay *unresolved* and are tried again before anything else may have that number.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, limit, record::Record};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use super::{
    compact,
    handle::State,
    open::Opened,
    segment::{self, Encoded, Header, Kind},
    tail::{Outcome, Shard},
};
use crate::Failpoint;

/// Pauses between tries of a segment whose fate is unknown, before its callers are told so.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(100), Duration::from_millis(400)];
/// How often what nobody waits for is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

type Done = oneshot::Sender<Result<(), Error>>;

/// The writer's only door.
#[derive(Debug)]
pub(super) enum Message {
    Append(Append),
    Checkpoint { state: Vec<Record>, done: Done },
    Close { done: Done },
}

/// Records that go into one segment.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) records: Encoded,
    /// `None`: nobody waits.
    pub(super) done: Option<Done>,
    /// Their share of the bytes that may wait.
    pub(super) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct Writer {
    shard: Shard,
    messages: mpsc::Receiver<Message>,
    queue: VecDeque<Message>,
    state: Arc<State>,
    /// Number of the next segment.
    next: u64,
    /// When the last segment was written; at first, when the epoch was claimed.
    wrote_at_ms: u64,
    /// When the next one may be begun.
    due: Option<Instant>,
    /// Whether somebody may have taken over without meeting our tail.
    doubtful: bool,
    carried: Encoded,
    carried_room: Option<OwnedSemaphorePermit>,
    unresolved: Option<Bytes>,
    /// What the last segment failed with, until one succeeds.
    trouble: Option<Error>,
    /// The checkpoint being written, at most one.
    compaction: JoinSet<()>,
}

impl Writer {
    pub(super) fn new(opened: Opened, messages: mpsc::Receiver<Message>, state: Arc<State>) -> Self {
        state.segments.store(opened.segments + 1, Relaxed);
        state.bytes.store(opened.bytes, Relaxed);
        Self {
            wrote_at_ms: opened.began_ms,
            shard: opened.shard,
            next: opened.next,
            messages,
            queue: VecDeque::new(),
            state,
            due: None,
            doubtful: false,
            carried: Encoded::default(),
            carried_room: None,
            unresolved: None,
            trouble: None,
            compaction: JoinSet::new(),
        }
    }

    /// Runs until it is closed, fenced, or the last handle is gone.
    pub(super) async fn run(mut self) {
        let mut closing = None;
        while closing.is_none() && self.state.ended.get().is_none() && self.receive().await {
            self.keep_distance().await;
            let batch = self.take_batch();
            if !batch.is_empty() || self.has_unwritten() {
                self.flush(batch).await;
            }
            match self.queue.pop_front() {
                Some(Message::Checkpoint { state, done }) => self.checkpoint(state, done).await,
                Some(Message::Close { done }) => closing = Some(done),
                Some(append) => self.queue.push_front(append),
                None => {}
            }
        }
        if closing.is_some() || self.state.ended.get().is_none() {
            // What was carried over a full disk gets one more chance.
            if self.has_unwritten() {
                self.flush(Vec::new()).await;
            }
        }
        while self.compaction.join_next().await.is_some() {}
        if let Some(done) = closing {
            let unwritten = if self.has_unwritten() { self.trouble.take() } else { None };
            let _ = done.send(self.state.ended.get().cloned().or(unwritten).map_or(Ok(()), Err));
        }
    }

    /// Waits for messages, or for the time to try again. `false`: nobody can send any more.
    async fn receive(&mut self) -> bool {
        if !self.queue.is_empty() {
            return true;
        }
        let mut received = Vec::new();
        let receiving = self.messages.recv_many(&mut received, limit::JOURNAL_QUEUE_MAX);
        let open = if self.carried.count > 0 || self.unresolved.is_some() {
            tokio::time::timeout(RETRY_INTERVAL, receiving).await.map_or(true, |count| count > 0)
        } else {
            receiving.await > 0
        };
        self.queue.extend(received);
        open
    }

    /// Waits until the next segment may begin, and takes what comes meanwhile. What is not an append does not wait.
    async fn keep_distance(&mut self) {
        let Some(due) = self.due else { return };
        let mut appends = self.queue.iter().all(|message| matches!(message, Message::Append(_)));
        while appends && !self.queue.is_empty() && self.queue.len() < limit::JOURNAL_QUEUE_MAX {
            match tokio::time::timeout_at(due, self.messages.recv()).await {
                Ok(Some(message)) => {
                    appends = matches!(message, Message::Append(_));
                    self.queue.push_back(message);
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// The appends at the front of the queue that fit into one segment; one that alone does not fit has its own.
    fn take_batch(&mut self) -> Vec<Append> {
        let (mut batch, mut bytes) = (Vec::new(), self.carried.body.len());
        while let Some(Message::Append(append)) = self.queue.front() {
            bytes += append.records.body.len();
            if bytes > limit::SEGMENT_BYTES_MAX && !batch.is_empty() {
                break;
            }
            if let Some(Message::Append(append)) = self.queue.pop_front() {
                batch.push(append);
            }
        }
        batch
    }

    fn has_unwritten(&self) -> bool {
        self.carried.count > 0 || self.unresolved.is_some()
    }

    /// Writes a batch and answers its callers.
    async fn flush(&mut self, batch: Vec<Append>) {
        let interval = self.shard.options.commit_interval;
        self.due = (!interval.is_zero()).then(|| Instant::now() + interval);
        let result = self.commit(&batch).await;
        let carry = match &result {
            Ok(()) | Err(Failure { tried: true, .. }) => false,
            Err(_) => true,
        };
        let result = result.map_err(|failure| failure.error);
        for append in batch {
            match append.done {
                // The receiver may be gone; its record is recorded all the same.
                Some(done) => drop(done.send(result.clone())),
                None if carry => self.carry(append.records, append.room),
                None => {}
            }
        }
        let full = matches!(&result, Err(e) if e.code == Code::DiskFull)
            && self.carried.body.len() > limit::SEGMENT_BYTES_MAX;
        self.state.full.store(full, Relaxed);
        self.trouble = result.err();
    }

    fn carry(&mut self, records: Encoded, room: OwnedSemaphorePermit) {
        self.carried.append(&records);
        match &mut self.carried_room {
            Some(carried) => carried.merge(room),
            None => self.carried_room = Some(room),
        }
    }

    /// Makes what is unresolved, what is carried and a batch durable, in that order.
    async fn commit(&mut self, batch: &[Append]) -> Result<(), Failure> {
        if let Some(bytes) = self.unresolved.take() {
            // Its carried records are in it: they must not be written again.
            self.settle(bytes).await.map_err(|error| Failure { error, tried: false })?;
        }
        let records: Vec<&Encoded> =
            std::iter::once(&self.carried).chain(batch.iter().map(|append| &append.records)).collect();
        if records.iter().all(|records| records.count == 0) {
            return Ok(());
        }
        let Shard { epoch, writer, .. } = self.shard;
        let at_ms = self.shard.options.clock.now_ms();
        let header = Header { kind: Kind::Records, epoch, seq: self.next, writer, at_ms };
        let bytes = segment::encode(&header, &records);
        let settled = self.settle(bytes).await;
        let tried = settled.is_ok() || self.unresolved.is_some();
        if tried {
            self.carried = Encoded::default();
            self.carried_room = None;
        }
        settled.map_err(|error| Failure { error, tried })
    }

    /// Creates the next segment. After an error it is either known not to be there, or unresolved.
    async fn settle(&mut self, bytes: Bytes) -> Result<(), Error> {
        let mut pauses = RETRY_PAUSES.into_iter();
        loop {
            let unknown = match self.create(&bytes).await {
                Outcome::Written => break,
                Outcome::Absent(e) => return Err(e),
                Outcome::Unknown(e) => e,
                Outcome::Taken(header) if header.epoch > self.shard.epoch => {
                    return Err(self.end(self.shard.fenced(header.epoch)));
                }
                Outcome::Taken(header) => {
                    let what =
                        format!("segment {} was written by an owner of epoch {}", self.next, header.epoch);
                    return Err(self.end(Error::internal(what).context("the journal is inconsistent")));
                }
                Outcome::Broken(e) => return Err(self.end(e)),
            };
            let Some(pause) = pauses.next() else {
                self.unresolved = Some(bytes);
                return Err(unknown.context("it is not known whether the entry is recorded"));
            };
            tokio::time::sleep(pause).await;
        }
        self.next += 1;
        self.state.segments.fetch_add(1, Relaxed);
        self.state.bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// Tries once. After a silence the number may have been free only because a successor's segments were collected
    /// again, so a success counts only when nobody has claimed a newer epoch.
    async fn create(&mut self, bytes: &Bytes) -> Outcome {
        Failpoint::SegmentBegun.pass();
        let outcome = self.shard.create(self.next, bytes).await;
        Failpoint::SegmentCreated.pass();
        let now = self.shard.options.clock.now_ms();
        self.doubtful |=
            now.checked_sub(self.wrote_at_ms).is_none_or(|silent| silent > limit::EPOCH_TRUSTED_MS);
        if !matches!(outcome, Outcome::Written) {
            return outcome;
        }
        if self.doubtful {
            match self.shard.newer_epoch().await {
                Ok(None) => self.doubtful = false,
                Ok(Some(epoch)) => {
                    return Outcome::Broken(self.shard.fenced(epoch));
                }
                Err(e) => return Outcome::Unknown(e),
            }
        }
        self.wrote_at_ms = now;
        Outcome::Written
    }

    /// Starts writing a checkpoint of all that is written. Appends go on meanwhile.
    async fn checkpoint(&mut self, state: Vec<Record>, done: Done) {
        if let Some(trouble) = self.trouble.take() {
            // The caller's state may hold records that are not in the journal.
            let _ = done.send(Err(trouble.context("no checkpoint is made after a failed append")));
            return;
        }
        while self.compaction.join_next().await.is_some() {}
        let (shard, counts, seq) = (self.shard.clone(), self.state.clone(), self.next - 1);
        let (segments, bytes) = (counts.segments.load(Relaxed), counts.bytes.load(Relaxed));
        self.compaction.spawn(async move {
            let written = compact::checkpoint(&shard, seq, state).await;
            if written.is_ok() {
                counts.segments.fetch_sub(segments, Relaxed);
                counts.bytes.fetch_sub(bytes, Relaxed);
            }
            let collect = written.is_ok();
            let _ = done.send(written);
            if collect && let Err(e) = compact::collect(&shard).await {
                // They only take up space; the next checkpoint tries again.
                tracing::warn!("superfluous journal segments could not be removed: {e}");
            }
        });
    }

    /// Stops for good.
    fn end(&mut self, error: Error) -> Error {
        tracing::error!("the journal `{}` stops: {error}", self.shard.name);
        self.state.ended.get_or_init(|| error).clone()
    }
}

/// Why a batch is not durable.
struct Failure {
    error: Error,
    /// Whether it is part of the unresolved segment, and may be in the journal after all.
    tried: bool,
}
