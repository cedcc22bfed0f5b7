//! What the scheduler knows of one task.
//!
//! A task's *outcome* (open, committed, failed) never goes back; its *phase* says what it is doing now. A committed
//! task whose output is made again is in some phase other than idle while its outcome stays committed.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_protocol::{AttemptId, Digest, Error, ExecutorId, TaskId, rest::RunView, value::StoredKey};

use crate::{
    executor::Resources,
    output::Slot,
    slab::{ClassIx, ExecutorIx, JobIx, NodeIx, TaskIx},
    spec::Spec,
    timer::TimerKey,
};

/// An output of a task: an index, valid while the task's record is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Part {
    pub task: TaskIx,
    /// Numbered as in `PartitionId`: puts count from `FIRST_PUT`.
    pub output: u32,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub id: TaskId,
    pub job: JobIx,
    pub parent: Option<TaskIx>,
    /// Calls between it and the root.
    pub depth: u32,
    /// Place among its driver's children.
    pub place: u32,
    /// Place in the job's order of calls; never used twice in a job.
    pub ordinal: u32,
    /// Index into the job's stages.
    pub stage: u32,
    pub outcome: Outcome,
    pub phase: Phase,
    /// What to run. Absent where the task is known from the log only, or its outputs and descendants are all gone
    /// (it is *retired*): then a replay of its driver brings it back.
    pub spec: Option<Spec>,
    /// Every partition the arguments keep alive, in the order of `Value::refers`.
    pub args: Box<[Part]>,
    /// Whether `args` are held as bytes (while it has yet to run); as lineage they are held as long as `spec` is.
    pub args_held: bool,
    /// Identity of the call, once it was computed or read from the log.
    pub fingerprint: Option<Box<Digest>>,
    pub outputs: Vec<Slot>,
    /// Outputs that are referred to or have yet to be buried.
    pub alive: u32,
    /// Tasks that would need this one's outputs to be run again.
    pub pins: u32,
    /// First of the outputs that this task waits for (see `interest`).
    pub interest: Option<NodeIx>,
    /// What it has as a driver; absent as long as it calls and puts nothing.
    pub driver: Option<Box<Driver>>,
    /// What it has as a generator.
    pub feed: Option<Box<Feed>>,
    /// Memory of its next attempt.
    pub memory: u64,
    /// Number of the last attempt that was started.
    pub attempt: u32,
    /// Attempts that count against the limit.
    pub failures: u32,
    /// Attempts that were lost with their executor.
    pub losses: u32,
    /// Attempt of the driver that called it last: tells a repeated message from a replayed call.
    pub called_by: u32,
    pub deadline: Option<TimerKey>,
    /// Why an output that is gone cannot be made again; or why the last attempt failed.
    pub error: Option<Box<Error>>,
    pub flags: Flags,
    /// Bytes of its outputs when committed.
    pub output_bytes: u64,
    /// Its arguments by ordinal of the task and output, kept for the graph when `spec` is gone.
    pub inputs: Box<[(u32, u32)]>,
    /// What makes it equal to other memoised calls, once its arguments were there.
    pub memo: Option<Box<Digest>>,
    /// Index into the job's versions.
    pub version: u32,
    pub trace: Trace,
}

/// When and where a task ran, for the graph. Nothing is decided by it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Trace {
    /// When its first attempt began; 0: none has in this epoch.
    pub begun_ms: u64,
    /// When it settled; 0: it has not in this epoch.
    pub settled_ms: u64,
    /// Where its last attempt ended.
    pub executor: Option<ExecutorId>,
    /// Its attempts that have ended: the first ones, and the last one.
    pub runs: Vec<RunView>,
}

impl Trace {
    /// Attempts that are kept: a task is tried a few times, and lost with ten executors, before it fails for good.
    const RUNS_MAX: usize = 32;

    /// An attempt has ended. Of too many, the second goes.
    pub fn left(&mut self, run: RunView) {
        if self.runs.len() >= Self::RUNS_MAX {
            self.runs.remove(1);
        }
        // Most tasks have one, and all of them are kept.
        self.runs.reserve_exact(1);
        self.runs.push(run);
    }

    /// What the attempt made was taken.
    pub fn committed(&mut self, attempt: u32) {
        let run = self.runs.iter_mut().rfind(|run| run.attempt == attempt);
        run.into_iter().for_each(|run| run.committed = true);
    }
}

/// Rare facts about a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flags {
    /// Its commits are not logged: it runs only because a driver that had committed runs again.
    pub silent: bool,
    /// It was cancelled because nobody referred to it, not because somebody asked.
    pub orphaned: bool,
    /// Its outputs that are gone cannot be made again; `error` says why.
    pub unmakeable: bool,
    /// Somebody needs it run again, as soon as a replay of its driver says what it is.
    pub wanted: bool,
    /// It had its backup attempt.
    pub backed_up: bool,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Open,
    Committed,
    Failed(Box<Error>),
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing to do.
    Idle,
    /// Waits for this many arguments.
    Waiting {
        missing: u32,
    },
    /// In the queue of this class. (It may be left over in others.)
    Ready(ClassIx),
    /// Waits to be tried again.
    Backoff(TimerKey),
    Running(Box<Run>),
}

/// The current attempt of a task.
#[derive(Debug)]
pub(crate) struct Run {
    /// The attempt's. No two attempts of a task have the same.
    pub number: u32,
    pub executor: ExecutorIx,
    /// What it occupies; `cpu_millis` also while it has given them back.
    pub charge: Resources,
    pub cpu: Cpu,
    /// When it got its cpu last.
    pub since_ms: u64,
    /// When it began.
    pub begun_ms: u64,
    /// Waits below this number were answered or are repeated messages.
    pub wait_next: u64,
    pub blocked: Option<Blocked>,
    /// A generator that has yielded all it may for now.
    pub starved: bool,
    /// Outputs it has yielded.
    pub yields: u32,
    /// Outputs below this it may yield.
    pub may_yield: u32,
    /// Outputs it has put.
    pub puts: u32,
    /// Its waits so far for fewer than all or with a timeout.
    pub choices: u64,
    /// Outputs that reached the object store before the attempt has said that it made them.
    pub early_durable: Vec<StoredKey>,
    /// A second attempt of the task; see [`crate::backup`].
    pub backup: Option<Box<Run>>,
}

impl Run {
    /// An attempt that begins at `now_ms` on `executor`, with its cpu.
    pub fn new(number: u32, executor: ExecutorIx, charge: Resources, now_ms: u64) -> Self {
        Self {
            number,
            executor,
            charge,
            cpu: Cpu::Held,
            since_ms: now_ms,
            begun_ms: now_ms,
            wait_next: 0,
            blocked: None,
            starved: false,
            yields: 0,
            may_yield: 0,
            puts: 0,
            choices: 0,
            early_durable: Vec::new(),
            backup: None,
        }
    }

    /// Whether it or its backup is on the executor.
    pub fn is_on(&self, executor: ExecutorIx) -> bool {
        self.executor == executor || self.backup.as_ref().is_some_and(|backup| backup.executor == executor)
    }

    /// Whether the attempt has yielded or put this output already, so that it will not again.
    pub fn has_made(&self, output: u32) -> bool {
        match put_index(output) {
            Some(n) => n < self.puts as usize,
            None => output < self.yields,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cpu {
    Held,
    Released,
    /// Released, and in the executor's queue to get it back.
    Queued,
}

/// What a running attempt waits for.
#[derive(Debug)]
pub(crate) enum Blocked {
    Wait(Box<Wait>),
    Next { wait: u64, generator: TaskIx, output: u32 },
}

#[derive(Debug)]
pub(crate) struct Wait {
    pub number: u64,
    /// `None`: there is no such partition.
    pub on: Vec<Option<Part>>,
    pub count: u32,
    /// Ready so far.
    pub ready: u32,
    /// Its number among the attempt's waits for fewer than all or with a timeout, if it is one.
    pub choice: Option<u64>,
    /// The answer an earlier attempt got.
    pub recorded: Option<Box<[u32]>>,
    pub timer: Option<TimerKey>,
    pub timed_out: bool,
}

impl Wait {
    /// How many have to be ready for an answer.
    pub fn needed(&self) -> u32 {
        match &self.recorded {
            Some(positions) => positions.len() as u32,
            None if self.timed_out => 0,
            None => self.count,
        }
    }

    /// The positions that matter for the answer.
    pub fn positions(&self) -> impl Iterator<Item = u32> + '_ {
        let (all, some) = match &self.recorded {
            Some(positions) => (0, positions.as_ref()),
            None => (self.on.len() as u32, &[][..]),
        };
        (0..all).chain(some.iter().copied())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Driver {
    /// In the order they became known; `None`: dropped from memory.
    pub children: Vec<Option<TaskIx>>,
    pub children_kept: u32,
    pub puts: Vec<Slot>,
    /// Answers to waits that a replay has to get again, by `Wait::choice`.
    pub waited: BTreeMap<u64, Box<[u32]>>,
    /// Futures it holds other than those of its own calls and puts.
    pub adopted: BTreeSet<Part>,
}

#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Outputs that were asked for by its driver's present attempt.
    pub asked: u32,
    /// Outputs that it was given.
    pub taken: u32,
    /// Outputs that somebody has waited for after they were lost: they have to be yielded again, asked for or not.
    pub needed: u32,
    /// Attempts blocked in `Next`.
    pub takers: Vec<TaskIx>,
}

impl Task {
    pub fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open)
    }

    pub fn is_committed(&self) -> bool {
        matches!(self.outcome, Outcome::Committed)
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Neither unfinished nor being run again.
    pub fn is_settled(&self) -> bool {
        !self.is_open() && self.is_idle()
    }

    /// Settled, and only remembered so that a replay does not run it again.
    pub fn is_retired(&self) -> bool {
        self.spec.is_none() && self.alive == 0 && self.pins == 0 && self.is_settled()
    }

    pub fn is_generator(&self) -> bool {
        self.feed.is_some()
    }

    pub fn run(&self) -> Option<&Run> {
        match &self.phase {
            Phase::Running(run) => Some(run),
            _ => None,
        }
    }

    pub fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Running(run) => Some(run),
            _ => None,
        }
    }

    pub fn driver_mut(&mut self) -> &mut Driver {
        self.driver.get_or_insert_default()
    }

    pub fn slot(&self, output: u32) -> Option<&Slot> {
        match put_index(output) {
            Some(n) => self.driver.as_ref()?.puts.get(n),
            None => self.outputs.get(output as usize),
        }
    }

    pub fn slot_mut(&mut self, output: u32) -> Option<&mut Slot> {
        match put_index(output) {
            Some(n) => self.driver.as_mut()?.puts.get_mut(n),
            None => self.outputs.get_mut(output as usize),
        }
    }

    /// The numbers of all outputs, puts included.
    pub fn output_numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let puts = self.driver.as_ref().map_or(0, |driver| driver.puts.len()) as u32;
        (0..self.outputs.len() as u32).chain((0..puts).map(put_number))
    }

    /// The number of the attempt that runs, without its backup; of the last one, if none does.
    pub fn attempt_number(&self) -> u32 {
        self.run().map_or(self.attempt, |run| run.number)
    }

    pub fn attempt_id(&self, epoch: u64) -> AttemptId {
        AttemptId { task: self.id, epoch, number: self.attempt_number() }
    }

    /// The word for its state in graphs.
    pub fn state_name(&self) -> &'static str {
        match (&self.phase, &self.outcome) {
            (Phase::Running(run), _) if run.cpu == Cpu::Held => "running",
            (Phase::Running(_), _) => "blocked",
            (Phase::Waiting { .. } | Phase::Backoff(_), _) => "waiting",
            (Phase::Ready(_), _) => "runnable",
            (Phase::Idle, Outcome::Open) => "waiting",
            (Phase::Idle, Outcome::Committed) => "committed",
            (Phase::Idle, Outcome::Failed(_)) => "failed",
        }
    }
}

/// The place of output `output` among a task's puts, if it is one.
pub(crate) fn put_index(output: u32) -> Option<usize> {
    output.checked_sub(fanfold_protocol::PartitionId::FIRST_PUT).map(|n| n as usize)
}

/// The inverse of [`put_index`].
pub(crate) fn put_number(index: u32) -> u32 {
    fanfold_protocol::PartitionId::FIRST_PUT + index
}
