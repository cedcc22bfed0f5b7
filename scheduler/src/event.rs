//! What can happen to the scheduler, and what it asks its owner to do.

use std::collections::HashMap;

use fanfold_protocol::{
    AttemptId, Digest, Error, ExecutorId, JobId, PartitionId, TaskId,
    call::TaskSpec,
    link::Held,
    message::{FromExecutor, Offer, Spent, ToExecutor, Usage},
    record::{Committed, Record},
    rest::{GraphView, Progress},
    value::{Output, StoredKey},
};

/// Something that happened. Events are handed to `Scheduler::step` in the order they happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// An executor offers its slots, and says what it has from before.
    ///
    /// `held` are copies that it answers for (none that it merely read from others), of jobs that are running or still
    /// to be started. The scheduler takes over what their logs know and has the rest freed. The owner leaves out those
    /// of all other jobs, and sees to them itself: a result that is kept must not be freed, and of other jobs'
    /// copies nothing is known here.
    ///
    /// From then on the executor reports every upload that ends with `Durable`.
    ExecutorJoined {
        /// What it offers.
        offer: Offer,
        /// What it has. An executor that is here already and joins anew has ended its attempts.
        held: Vec<Held>,
    },
    /// An executor is gone with everything that only it had.
    ExecutorLeft(ExecutorId),
    /// A job begins, or goes on after a restart.
    JobStarted(Box<JobStart>),
    /// A driver's call, its function resolved by the owner (or refused). `spec.id` is the child's id.
    Submitted {
        /// The driver.
        attempt: AttemptId,
        /// The child's id: `attempt.task.child(index)`.
        task: TaskId,
        /// The task to run, or why it cannot be.
        spec: Box<Result<TaskSpec, Error>>,
    },
    /// Any other message of an executor. A `FromExecutor::Submit` in here is an owner's bug and is ignored.
    From {
        /// Who.
        executor: ExecutorId,
        /// What.
        message: FromExecutor,
    },
    /// Stop a job; its result is this error.
    Cancel {
        /// Which.
        job: JobId,
        /// Why.
        error: Error,
    },
    /// Calls with this key may be answered with these outputs from now on, or (`None`) no longer.
    Memo {
        /// As [`Command::Memoise`] told it.
        key: Digest,
        /// Inline, or stored where no job's end removes them.
        outputs: Option<Vec<Output>>,
    },
    /// Nothing but time passed: the moment last asked for with `Command::WakeAt` has come.
    Tick,
}

/// A job to run.
#[derive(Clone, PartialEq, Debug)]
pub struct JobStart {
    /// The job.
    pub job: JobId,
    /// Its root task.
    pub root: TaskSpec,
    /// Whether its commits are journalled. An unrecorded job (a synchronous call) leaves nothing.
    pub recorded: bool,
    /// Weight against other jobs, above 0.
    pub weight: u32,
    /// What is known of it from the journal, after a restart.
    pub replay: Replay,
}

/// What a job's log says; empty for a new job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Replay {
    /// Tasks that committed.
    pub committed: HashMap<TaskId, Committed>,
    /// Tasks that failed for good.
    pub failed: HashMap<TaskId, Error>,
    /// `put` and yielded outputs.
    pub made: HashMap<PartitionId, Output>,
    /// Recorded answers to waits, by task and the number in the record.
    pub waited: HashMap<(TaskId, u64), Vec<u32>>,
    /// Failed attempts of the root so far.
    pub root_attempts_failed: u32,
}

/// Something the owner shall do, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Send a message to an executor.
    Send {
        /// To whom.
        executor: ExecutorId,
        /// What.
        message: ToExecutor,
    },
    /// Append to the job's log (recorded jobs only). Nothing waits for it but the job's end: `JobEnded` follows its
    /// own `Record::Ended`, and the owner announces it when that is durable.
    Record(Record),
    /// Call `step` with `Event::Tick` at this time at the latest. Replaces earlier ones.
    WakeAt(u64),
    /// The job ended; the scheduler has forgotten it.
    ///
    /// The `Free` commands and messages that follow in the same step remove what it leaves. Those of a recorded job
    /// should wait until its `Record::Ended` is durable: a restart before that goes on with the job, and trusts what
    /// its log says is in the object store.
    JobEnded(Box<JobEnd>),
    /// Nothing refers to these any more and no live executor is known to hold them: remove their objects.
    Free(Vec<StoredKey>),
    /// A memoised call committed these, which the object store has. The owner may keep a copy and tell with
    /// [`Event::Memo`] where; it comes before what frees the originals.
    Memoise {
        /// What makes calls equal.
        key: Digest,
        /// Inline or stored; none names a partition.
        outputs: Vec<Output>,
    },
    /// Work is runnable, yet nothing ran for five seconds: log why.
    Stalled {
        /// Which job.
        job: JobId,
        /// In words.
        reason: String,
    },
}

/// The end of a job.
#[derive(Clone, PartialEq, Debug)]
pub struct JobEnd {
    /// Which.
    pub job: JobId,
    /// The root's outputs, or why it failed.
    pub result: Result<Vec<Output>, Error>,
    /// Sums over all attempts.
    pub usage: Usage,
    /// What else its bill counts.
    pub spent: Spent,
    /// Tasks, the root included.
    pub tasks: u64,
    /// Attempts of the root task.
    pub attempts: u32,
    /// The partitions that the result consists of: the root's outputs and everything their bytes name, aliases
    /// followed. They were not freed and are now the owner's to keep and to remove; all else of the job was freed.
    pub kept: Vec<(PartitionId, Output)>,
    /// How far it got.
    pub progress: Progress,
    /// Its tasks, at most 10,000; empty for an unrecorded job.
    pub graph: GraphView,
}
