//! Messages between an owner (gateway) and an executor. In one process they pass through bounded channels; between
//! processes the same values are serialised.
//!
//! Rules: an owner sends [`ToExecutor::Run`] once per attempt; an executor answers with exactly one
//! [`FromExecutor::Finished`] per attempt, also when it was cancelled, and nothing of that attempt after it. Messages
//! of one attempt arrive in the order they were sent. Whoever receives a message of an attempt that it does not know
//! drops it: it is late.

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, Digest, Error, ExecutorId, JobId, PartitionId, TaskId,
    call::{Call, Durability},
    custom::Custom,
    link::Peer,
    value::{Output, Stored, StoredKey, Value},
};

/// An attempt to run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The fencing token.
    pub attempt: AttemptId,
    /// The job.
    pub job: JobId,
    /// Digest of the function version; the executor asks its function source for the rest.
    pub version: Digest,
    /// Which entry.
    pub entry: String,
    /// Arguments, each with the committed output it refers to (for partitions and blocks).
    pub args: Vec<Argument>,
    /// Declared outputs (0 for a generator).
    pub outputs: u32,
    /// Whether it is a generator.
    pub generator: bool,
    /// Cap over all memories and tables.
    pub memory: u64,
    /// GPUs it holds: with none it may not call one.
    pub gpu: u32,
    /// Time until it is stopped with `timeout`: wall time without what it spent blocked, in a wait for partitions or for
    /// the consumer of what it yields.
    pub timeout_ms: u64,
    /// When outputs go to the object store. The root of a recorded job is always [`Durability::Eager`].
    pub durability: Durability,
}

/// An argument and, where it is a reference, the output it refers to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Argument {
    /// As the caller gave it.
    pub value: Value,
    /// The output behind a partition or block reference, aliases followed.
    pub output: Option<Output>,
}

/// What a task used, measured by its executor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// From `Run` received to the function's first instruction.
    pub start_us: u64,
    /// From the first instruction to the end, waits included.
    pub run_us: u64,
    /// Time spent computing in the guest and its host calls, waits excluded.
    pub cpu_us: u64,
    /// Most bytes of memories and tables at once.
    pub memory_peak: u64,
    /// Bytes read from partitions and objects.
    pub bytes_read: u64,
    /// Bytes written to partitions and objects.
    pub bytes_written: u64,
    /// Whether the compiled code had to be loaded first.
    pub cold: bool,
}

impl Usage {
    /// Adds times and bytes, keeps the larger peak.
    pub fn add(&mut self, other: &Self) {
        self.start_us += other.start_us;
        self.run_us += other.run_us;
        self.cpu_us += other.cpu_us;
        self.memory_peak = self.memory_peak.max(other.memory_peak);
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.cold |= other.cold;
    }
}

/// Requests to the object store, and the bytes in their bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Requests {
    /// Reads of an object or a range of one.
    pub get: u64,
    /// Questions for an object's size and etag.
    pub head: u64,
    /// Whole objects written, and copies.
    pub put: u64,
    /// Of uploads in parts: each part, the beginning and the end.
    pub part: u64,
    /// Listings, whatever their length.
    pub list: u64,
    /// Objects removed.
    pub delete: u64,
    /// Bytes that were read.
    pub bytes_in: u64,
    /// Bytes that were written.
    pub bytes_out: u64,
}

impl Requests {
    /// Adds what others made.
    pub fn add(&mut self, other: &Self) {
        self.get += other.get;
        self.head += other.head;
        self.put += other.put;
        self.part += other.part;
        self.list += other.list;
        self.delete += other.delete;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }

    /// Requests of every kind that writes.
    pub fn writes(&self) -> u64 {
        self.put + self.part
    }
}

/// What a job's bill counts beside [`Usage`]. It is summed up by job and kept of no single task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Spent {
    /// Memory that was reserved for attempts, times how long it was, waits included: MiB times microseconds.
    pub memory_mib_us: u64,
    /// Requests made for its attempts and its partitions.
    pub requests: Requests,
}

impl Spent {
    /// Adds what others spent.
    pub fn add(&mut self, other: &Self) {
        self.memory_mib_us += other.memory_mib_us;
        self.requests.add(&other.requests);
    }
}

/// From owner to executor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToExecutor {
    /// Run this attempt.
    Run(Box<Assignment>),
    /// Stop this attempt; its `Finished` carries this error.
    Stop {
        /// Which.
        attempt: AttemptId,
        /// Why.
        error: Error,
    },
    /// The answer to [`FromExecutor::Wait`].
    Woken {
        /// Which attempt.
        attempt: AttemptId,
        /// The number of its wait.
        wait: u64,
        /// Positions in the wait's list that are ready, ascending, each with its output or failure. Fewer than
        /// asked for: the timeout passed.
        ready: Vec<(u32, Result<Output, Error>)>,
    },
    /// The answer to [`FromExecutor::Next`]: the generator's output, or `None` after its last.
    Next {
        /// Which attempt.
        attempt: AttemptId,
        /// The number of its request.
        wait: u64,
        /// The output's partition, the end, or why the generator failed.
        result: Result<Option<PartitionId>, Error>,
    },
    /// A generator may run ahead: outputs below this number may be yielded without waiting.
    MayYield {
        /// Which attempt.
        attempt: AttemptId,
        /// First output number that must wait.
        below: u32,
    },
    /// Nothing refers to these any more: drop every copy, also in the object store.
    Free(Vec<StoredKey>),
    /// A task that will run here soon reads these, which are elsewhere: fetch them while there is time. No answer, and no
    /// harm if it is not done.
    Prefetch(Vec<Stored>),
    /// Other executors came, went or moved.
    Peers(Vec<Peer>),
}

/// From executor to owner.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum FromExecutor {
    /// The attempt made a call. Its task id is `attempt.task.child(index)`. There is no answer: a refused call shows
    /// as a failed task.
    Submit {
        /// The driver.
        attempt: AttemptId,
        /// Counts from 0 over all submits and generates of the attempt.
        index: u64,
        /// What it asked for.
        call: Box<Call>,
    },
    /// The attempt waits until `count` of `on` are ready (made or failed). Its cpu slot is free meanwhile.
    ///
    /// A guest's `wait` for fewer than all or with a timeout must come here even if the executor knows enough of `on`
    /// to be ready: what it was answered is recorded, and a replay has to be answered the same.
    Wait {
        /// The driver.
        attempt: AttemptId,
        /// Rises from one `Wait` or `Next` of the attempt to the following one. A wait whose answer does not follow from
        /// its request (for fewer than all, or with a timeout) has the same number on every replay.
        wait: u64,
        /// What it waits for; an id may occur twice.
        on: Vec<PartitionId>,
        /// How many.
        count: u32,
        /// `None`: as long as it takes.
        timeout_ms: Option<u64>,
    },
    /// The attempt asks for the next output of a generator it called. Its cpu slot is free meanwhile.
    Next {
        /// The driver.
        attempt: AttemptId,
        /// As in [`FromExecutor::Wait`].
        wait: u64,
        /// The generator task.
        generator: TaskId,
        /// Which output, from 0.
        output: u32,
    },
    /// The attempt, a generator, made its next output.
    Yield {
        /// The generator.
        attempt: AttemptId,
        /// Counts from 0.
        output: u32,
        /// What it made.
        value: Output,
    },
    /// The attempt made a partition with `put`; it counts as a committed output of the task.
    Put {
        /// Who.
        attempt: AttemptId,
        /// At least [`PartitionId::FIRST_PUT`].
        output: u32,
        /// What it made.
        value: Output,
    },
    /// The attempt dropped its last handles to these.
    Drop {
        /// Who.
        attempt: AttemptId,
        /// Futures it no longer holds.
        futures: Vec<PartitionId>,
    },
    /// The attempt cancels tasks it called.
    Cancel {
        /// Who.
        attempt: AttemptId,
        /// Outputs of the tasks to cancel.
        futures: Vec<PartitionId>,
    },
    /// A copy could not be read or did not match its checksum: it has to be made again. The attempt that needs it
    /// waits for it anew with `Wait`.
    Lost {
        /// Who noticed.
        attempt: AttemptId,
        /// What is gone.
        key: StoredKey,
    },
    /// The attempt wrote an object: triggers may wait for it. Sent before anything that follows from it. An object that is not told
    /// of, because somebody died, is found by the listings of triggers.
    Wrote {
        /// Who.
        attempt: AttemptId,
        /// What.
        object: Box<crate::rest::ObjectView>,
    },
    /// What the attempt has written since its last message of this kind: at most four a second, and none where it has
    /// written nothing.
    Logs {
        /// Who.
        attempt: AttemptId,
        /// Whole lines, as in [`FromExecutor::Finished`].
        lines: bytes::Bytes,
    },
    /// What the attempt said last of how its job stands: as often as [`FromExecutor::Logs`].
    Status {
        /// Who.
        attempt: AttemptId,
        /// At most [`crate::limit::STATUS_BYTES_MAX`] bytes.
        text: String,
    },
    /// A lazily stored partition reached the object store.
    Durable(StoredKey),
    /// Something was done for a job beside its attempts: partitions went to the object store, or were fetched ahead. Told
    /// before anything that follows from it.
    Spent {
        /// The job.
        job: JobId,
        /// What it took.
        spent: Spent,
    },
    /// What it offers has changed; what runs goes on.
    Offer(Offer),
    /// It takes no new attempts, finishes what runs, uploads what only it has, and leaves. Attempts that were assigned
    /// and have not begun end with `draining` and are run elsewhere, without counting.
    Leaving,
    /// Its last message: the owner closes the link.
    Left,
    /// The attempt's end.
    Finished {
        /// Which.
        attempt: AttemptId,
        /// One output per declared output (none for a generator: they were yielded), or why not.
        result: Result<Vec<Output>, Error>,
        /// What it used.
        usage: Usage,
        /// And what its job is billed for beside that.
        spent: Spent,
        /// What it wrote to stdout, stderr and the log, as NDJSON lines `{"at_us":…,"stream":…,"line":…}`, without what
        /// [`FromExecutor::Logs`] has told.
        logs: bytes::Bytes,
    },
}

/// What an executor offers when it registers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Its id for this registration.
    pub executor: ExecutorId,
    /// Slots, in thousandths of a cpu.
    pub cpu_millis: u32,
    /// Bytes of memory for attempts.
    pub memory: u64,
    /// GPUs.
    pub gpu: u32,
    /// What they compute on, where it was found.
    #[serde(default)]
    pub adapter: Option<String>,
    /// Custom resources.
    #[serde(default)]
    pub custom: Custom,
}
