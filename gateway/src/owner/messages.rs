//! What the owner is asked and what it answers: the closed set of requests behind [`super::Owner`], and the types that
//! its callers meet.

use std::sync::Arc;

use bytes::Bytes;
use fanfold_protocol::{
    Digest, Error, ExecutorId, FunctionName, JobId, PartitionId,
    direct::Body,
    function::FunctionVersion,
    link::Held,
    message::{FromExecutor, Offer, ToExecutor, Usage},
    record::{Accepted, Fired, HeldEvent},
    rest::{ClusterView, DeadLetterView, GraphView, JobView, LineageView, Page},
    trigger::Batch,
    value::Output,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    dropped::Leftover,
    events::Triggers,
    follow::Ending,
    outputs,
    shared::Shared,
    state::{Job, StoredAnswer},
};

/// An invocation or job to accept.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// The version that shall run it.
    pub function: Arc<FunctionVersion>,
    /// Which entry of the component; empty: its main one.
    pub entry: String,
    /// At most [`fanfold_protocol::limit::INPUT_BYTES_MAX`] bytes.
    pub input: Bytes,
    /// Media type of the input; empty if none was given.
    pub content_type: String,
    /// `Digest::of_parts([scope, Idempotency-Key])` and the digest of the request.
    pub idempotency: Option<(Digest, Digest)>,
    /// W3C `traceparent`, if one was sent.
    pub traceparent: Option<String>,
    /// Whether it is listed as a batch job even where its function calls no others.
    pub batch: bool,
    /// The trigger that fires it, if one does.
    pub fired: Option<Box<Fired>>,
}

/// What a job that ended well answered.
#[derive(Debug)]
pub struct Answer {
    /// The job.
    pub job: JobId,
    /// The root's outputs; an invocation has one.
    pub outputs: Vec<Output>,
    /// Media type of the first output, as far as it can be told.
    pub content_type: &'static str,
    /// Sums over all attempts.
    pub usage: Usage,
    /// Tasks, the root included.
    pub tasks: u64,
    /// What its tasks logged, as NDJSON lines.
    pub logs: Bytes,
    pub(super) shared: Arc<Shared>,
    /// Removes the outputs' objects of an unrecorded job when nobody reads them any more.
    pub(super) leftover: Option<Arc<Leftover>>,
}

impl Answer {
    /// The first output: how many bytes, and the bytes. An output in the store is streamed; it stays as long as the
    /// body or this answer is there.
    ///
    /// # Errors
    /// `lost` / `partition-lost` or `corrupt` where the store does not have it any more; also in the stream.
    pub async fn body(&self) -> Result<(u64, Body), Error> {
        let (bytes, body) = outputs::open(&self.shared.store, self.outputs.first()).await?;
        Ok((bytes, outputs::hold(body, self.leftover.clone())))
    }
}

/// An executor and the two channels to it.
///
/// The executor must take messages from `to` without ever waiting for room in `from`: the owner stops reading `from`
/// while many messages to that executor wait, so an executor that waited for the one to go on with the other would
/// wait for ever. (In turn the owner never waits for room in `to`.)
#[derive(Debug)]
pub struct ExecutorLink {
    /// What it offers.
    pub offer: Offer,
    /// Partitions of this shard's jobs that it has from before this link.
    pub held: Vec<Held>,
    /// What operators call it.
    pub name: String,
    /// Where other executors reach it, as `host:port`; `None`: nowhere, it is the only one.
    pub peer: Option<String>,
    /// Messages to it; [`fanfold_protocol::limit::MESSAGE_QUEUE_MAX`] is a good capacity.
    pub to: mpsc::Sender<ToExecutor>,
    /// Messages from it. When it closes, the executor counts as gone.
    pub from: mpsc::Receiver<FromExecutor>,
}

/// The owner's figures at one moment.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Accepted jobs that wait for a place.
    pub waiting: usize,
    /// Bytes of their inputs and of running ones, in memory.
    pub input_bytes: usize,
    /// Jobs that were begun and have not ended.
    pub running: usize,
    /// Ended jobs whose result can still be read.
    pub kept: usize,
    /// Of these, dead letters.
    pub dead_letters: usize,
    /// Since the start: jobs accepted, unrecorded ones included.
    pub accepted: u64,
    /// Since the start: jobs that ended well.
    pub succeeded: u64,
    /// Since the start: jobs that failed for good.
    pub failed: u64,
    /// Since the start: jobs that were cancelled.
    pub cancelled: u64,
    /// Since the start: attempts started.
    pub attempts: u64,
    /// Each executor.
    pub executors: Vec<ExecutorMetrics>,
    /// The journal.
    pub journal: JournalMetrics,
}

impl Metrics {
    /// Adds those of another owner of the same process, which has the same executors.
    pub fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.input_bytes += other.input_bytes;
        self.running += other.running;
        self.kept += other.kept;
        self.dead_letters += other.dead_letters;
        self.accepted += other.accepted;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.attempts += other.attempts;
        self.journal.waiting += other.journal.waiting;
        self.journal.failing = self.journal.failing.take().or(other.journal.failing);
        self.journal.segments += other.journal.segments;
        for executor in other.executors {
            if let Some(known) = self.executors.iter_mut().find(|known| known.executor == executor.executor) {
                known.attempts += executor.attempts;
                known.cpu_millis_free = known.cpu_millis_free.min(executor.cpu_millis_free);
                known.memory_free = known.memory_free.min(executor.memory_free);
            }
        }
    }
}

/// One executor, as the owner sees it.
#[derive(Clone, Debug)]
pub struct ExecutorMetrics {
    /// Which.
    pub executor: ExecutorId,
    /// What it offers.
    pub offer: Offer,
    /// Slots not in use, in thousandths of a cpu.
    pub cpu_millis_free: u32,
    /// Bytes of memory not in use.
    pub memory_free: u64,
    /// Attempts on it.
    pub attempts: usize,
    /// Messages that wait for room in its channel.
    pub unsent: usize,
}

/// The journal, as the owner sees it.
#[derive(Clone, Debug, Default)]
pub struct JournalMetrics {
    /// Records decided and not yet durable.
    pub waiting: usize,
    /// Why nothing can be acknowledged now.
    pub failing: Option<Error>,
    /// The owner's epoch.
    pub epoch: u64,
    /// Segments that a restart would read.
    pub segments: u64,
}

/// Where an answer goes. A caller that went away is no failure of the owner.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// Answers a caller. One that went away misses its answer only; what it asked for was done or refused all the same.
pub(super) fn tell<T>(reply: Reply<T>, result: Result<T, Error>) {
    let _ = reply.send(result);
}

/// A job on its way in.
pub(super) struct Submission {
    pub function: Arc<FunctionVersion>,
    /// For an unrecorded job the input is inline whatever its size.
    pub accepted: Accepted,
    pub recorded: bool,
}

/// Logs of a job: all there are, or those in memory of a job that still runs.
pub(super) enum LogsFound {
    Live(Bytes),
    Stored,
}

/// The tasks of a job: in memory, or in the store.
pub(super) enum GraphFound {
    Here(Arc<GraphView>),
    /// With what its end tells of it, for a job of one task and one whose graph is lost.
    Stored(JobId, GraphView),
}

/// How a partition was made, or the job whose graph tells.
pub(super) enum LineageFound {
    Here(Box<LineageView>),
    Past(GraphFound),
}

pub(super) enum Request {
    Accept {
        submission: Box<Submission>,
        reply: Reply<JobId>,
    },
    Run {
        submission: Box<Submission>,
        reply: Reply<Answer>,
    },
    View {
        job: JobId,
        reply: Reply<JobView>,
    },
    Watch {
        job: JobId,
        reply: Reply<watch::Receiver<JobView>>,
    },
    Output {
        job: JobId,
        reply: Reply<Option<Output>>,
    },
    Logs {
        job: JobId,
        /// How many bytes of them the caller has.
        from: usize,
        reply: Reply<LogsFound>,
    },
    Cancel {
        job: JobId,
        reply: Reply<JobView>,
    },
    List {
        before: Option<JobId>,
        limit: usize,
        batch: bool,
        reply: Reply<Page<JobView>>,
    },
    Graph {
        job: JobId,
        reply: Reply<GraphFound>,
    },
    Lineage {
        partition: PartitionId,
        /// Its job, if the caller knows.
        job: Option<JobId>,
        reply: Reply<LineageFound>,
    },
    Partition {
        partition: PartitionId,
        reply: Reply<Option<Output>>,
    },
    DeadLetters {
        before: Option<JobId>,
        limit: usize,
        reply: Reply<Page<DeadLetterView>>,
    },
    /// A dead letter, and the job that took it up already.
    DeadLetter {
        job: JobId,
        reply: Reply<(Arc<Job>, Option<JobId>)>,
    },
    /// A dead letter that is to be removed before its time.
    RemoveLetter {
        job: JobId,
        reply: Reply<()>,
    },
    Answered {
        key: Digest,
        request: Digest,
        reply: Reply<Option<StoredAnswer>>,
    },
    Remember {
        key: Digest,
        answer: StoredAnswer,
        reply: Reply<()>,
    },
    /// Events to hold for their batches.
    Hold {
        events: Vec<HeldEvent>,
        reply: Reply<()>,
    },
    /// What triggers wait for.
    Triggers {
        reply: Reply<Triggers>,
    },
    /// The oldest events that wait for a trigger's batches, as those.
    Held {
        trigger: FunctionName,
        batch: Batch,
        reply: Reply<Vec<Vec<Arc<HeldEvent>>>>,
    },
    /// A schedule's times up to one are passed over.
    Pass {
        trigger: FunctionName,
        at_ms: u64,
        reply: Reply<()>,
    },
    /// The last runs that a trigger fired.
    Fired {
        trigger: FunctionName,
        limit: usize,
        reply: Reply<Vec<JobView>>,
    },
    /// A job from whose end something follows.
    Ending {
        job: JobId,
        reply: Reply<Option<Box<Ending>>>,
    },
    /// What follows from a job's end is recorded.
    Followed {
        job: JobId,
        reply: Reply<()>,
    },
    /// A job that is given up at once.
    GiveUp {
        submission: Box<Submission>,
        error: Error,
        reply: Reply<()>,
    },
    Metrics {
        reply: Reply<Metrics>,
    },
    Cluster {
        reply: Reply<ClusterView>,
    },
    /// An executor came.
    Join(Box<ExecutorLink>),
    Stop {
        reply: Reply<()>,
    },
}
