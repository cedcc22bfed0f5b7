//! The state machine's door: [`Scheduler::step`].
//!
//! A step lets due timers fire, applies the event, works off the *agenda* (consequences, in the order they arose, so
//! that no chain of them is deep), places runnable work and tells the owner what to do. Nothing here depends on the
//! iteration order of a hash map, so the same events give the same commands.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    mem,
};

use fanfold_protocol::{
    AttemptId, Digest, ExecutorId, JobId, PartitionId, TaskId,
    message::{FromExecutor, ToExecutor},
    record::Record,
    value::{Output, StoredKey},
};

use crate::{
    Command, Event,
    executor::Pool,
    holdings::Holdings,
    interest::Node,
    job::Job,
    output::Slot,
    ready::Ready,
    slab::{JobIx, NodeIx, Slab, TaskIx},
    task::{Part, Task},
    timer::{Timer, Timers},
};

/// Places tasks, remembers what they made, and makes again what was lost. See the crate's documentation.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) epoch: u64,
    pub(crate) now_ms: u64,
    pub(crate) jobs: Slab<JobIx, Job>,
    pub(crate) job_index: HashMap<JobId, JobIx>,
    pub(crate) tasks: Slab<TaskIx, Task>,
    pub(crate) task_index: HashMap<TaskId, TaskIx, BuildHasherDefault<IdHasher>>,
    pub(crate) nodes: Slab<NodeIx, Node>,
    pub(crate) pool: Pool,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    pub(crate) holdings: Holdings,
    /// What memoised calls made, by key, as far as the owner told.
    pub(crate) memos: HashMap<Digest, Vec<Output>>,
    pub(crate) agenda: VecDeque<Work>,
    /// How many [`Work::Nest`] are in the agenda.
    pub(crate) nests_due: usize,
    /// Copies to drop, by the executor that has them, and those that only the store may have.
    pub(crate) frees: BTreeMap<ExecutorId, Vec<StoredKey>>,
    pub(crate) frees_stored: Vec<StoredKey>,
    /// Scratch: argument bytes by executor.
    pub(crate) scores: Vec<u64>,
    out: Vec<Command>,
}

/// A consequence that is still to be drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// The output was made or cannot be: tell those who wait for it.
    Settled(Part),
    /// Somebody waits for the output: see to it that it is made.
    Need(Part),
    /// The output has come to life: what it names does, too.
    Nest(Part),
    /// The output may have lost its last reference.
    Dead(Part),
    /// Nobody may need the task any more.
    Retire(TaskIx),
    /// The job may have ended.
    End(JobIx),
}

/// Task ids are hashes already.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(32) ^ u64::from_ne_bytes(word);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

impl Scheduler {
    /// A scheduler without jobs or executors. `epoch` is the owner's: it is part of every attempt's fencing token, so
    /// no two schedulers of the same journal may have the same.
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            now_ms: 0,
            jobs: Slab::default(),
            job_index: HashMap::new(),
            tasks: Slab::default(),
            task_index: HashMap::default(),
            nodes: Slab::default(),
            pool: Pool::default(),
            ready: Ready::default(),
            timers: Timers::default(),
            holdings: Holdings::default(),
            memos: HashMap::new(),
            agenda: VecDeque::new(),
            nests_due: 0,
            frees: BTreeMap::new(),
            frees_stored: Vec::new(),
            scores: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Applies `event` at `now_ms` (milliseconds on any clock that does not go back) and appends what is to be done
    /// to `out`, in order.
    pub fn step(&mut self, now_ms: u64, event: Event, out: &mut Vec<Command>) {
        self.now_ms = self.now_ms.max(now_ms);
        mem::swap(&mut self.out, out);
        while let Some(timer) = self.timers.due(self.now_ms) {
            self.fire(timer);
            self.settle_agenda();
        }
        self.apply(event);
        self.settle_agenda();
        self.place();
        self.flush();
        mem::swap(&mut self.out, out);
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::ExecutorJoined { offer, held } => self.executor_joined(&offer, &held),
            Event::ExecutorLeft(executor) => self.executor_left(executor),
            Event::JobStarted(start) => self.job_started(*start),
            Event::Submitted { attempt, task, spec } => {
                self.acts_as_driver(attempt);
                self.submitted(attempt, task, *spec);
            }
            Event::From { executor, message } => self.message(executor, message),
            Event::Cancel { job, error } => {
                if let Some(&job) = self.job_index.get(&job) {
                    self.end_job(job, Err(error));
                }
            }
            Event::Memo { key, outputs: Some(outputs) } => drop(self.memos.insert(key, outputs)),
            Event::Memo { key, outputs: None } => drop(self.memos.remove(&key)),
            Event::Tick => {}
        }
    }

    fn message(&mut self, executor: ExecutorId, message: FromExecutor) {
        if self.pool.find(executor).is_none() {
            return; // It has left: its attempts were given up, and what it says now is late.
        }
        match &message {
            FromExecutor::Wait { attempt, .. }
            | FromExecutor::Next { attempt, .. }
            | FromExecutor::Yield { attempt, .. }
            | FromExecutor::Put { attempt, .. }
            | FromExecutor::Cancel { attempt, .. } => self.acts_as_driver(*attempt),
            _ => {}
        }
        match message {
            FromExecutor::Submit { .. }
            | FromExecutor::Status { .. }
            | FromExecutor::Logs { .. }
            | FromExecutor::Wrote { .. }
            | FromExecutor::Left => {}
            FromExecutor::Wait { attempt, wait, on, count, timeout_ms } => {
                self.wait(attempt, wait, &on, count, timeout_ms);
            }
            FromExecutor::Next { attempt, wait, generator, output } => {
                self.next(attempt, wait, generator, output);
            }
            FromExecutor::Yield { attempt, output, value } => self.yielded(attempt, output, value),
            FromExecutor::Put { attempt, output, value } => self.put(attempt, output, value),
            FromExecutor::Drop { attempt, futures } => self.dropped(attempt, &futures),
            FromExecutor::Cancel { attempt, futures } => self.cancel_futures(attempt, &futures),
            FromExecutor::Lost { attempt, key } => self.lost(attempt, key),
            FromExecutor::Durable(key) => self.durable(key),
            FromExecutor::Offer(offer) => self.offered(executor, &offer),
            FromExecutor::Leaving => self.leaving(executor),
            FromExecutor::Spent { job, spent } => self.spent(job, &spent),
            FromExecutor::Finished { attempt, result, usage, spent, logs: _ } => {
                self.used(attempt, &usage, &spent);
                self.finished(executor, attempt, result, &usage);
            }
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Deadline(task) => self.deadline_passed(task),
            Timer::Backoff(task) => self.backoff_passed(task),
            Timer::Wait(task) => self.wait_timed_out(task),
            Timer::Reservation(executor) => self.reservation_passed(executor),
            Timer::Stall(job) => self.check_stall(job),
            Timer::Durable(job) => self.durable_late(job),
            Timer::Grace => self.grace_passed(),
            Timer::Return => self.return_passed(),
            Timer::Stragglers(job) => self.look_for_stragglers(job),
        }
    }

    pub(crate) fn settle_agenda(&mut self) {
        while let Some(work) = self.agenda.pop_front() {
            match work {
                Work::Settled(part) => self.tell(part),
                Work::Need(part) => self.need(part),
                Work::Nest(part) => {
                    self.nests_due -= 1;
                    self.nest(part);
                }
                Work::Dead(part) => self.bury(part),
                Work::Retire(task) => self.retire(task),
                Work::End(job) => self.check_end(job),
            }
        }
    }

    /// What was put off to the end of the step.
    fn flush(&mut self) {
        for (executor, keys) in mem::take(&mut self.frees) {
            self.send(executor, ToExecutor::Free(keys));
        }
        if !self.frees_stored.is_empty() {
            let keys = mem::take(&mut self.frees_stored);
            self.command(Command::Free(keys));
        }
        if let Some(at_ms) = self.timers.wake_at(self.now_ms) {
            self.command(Command::WakeAt(at_ms));
        }
        self.tasks.recycle();
        self.nodes.recycle();
        self.jobs.recycle();
        self.pool.executors.recycle();
        self.ready.classes.recycle();
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.out.push(command);
    }

    pub(crate) fn send(&mut self, executor: ExecutorId, message: ToExecutor) {
        self.out.push(Command::Send { executor, message });
    }

    /// Sends to the executor that runs `task`.
    pub(crate) fn send_to_run(&mut self, task: TaskIx, message: ToExecutor) {
        if let Some(run) = self.tasks[task].run() {
            let executor = self.pool.executors[run.executor].id;
            self.send(executor, message);
        }
    }

    /// Logs a fact about `task`, unless its job is not recorded or the task runs again after it committed: all that
    /// such a run does was logged by the first.
    pub(crate) fn log(&mut self, task: TaskIx, record: impl FnOnce(JobId) -> Record) {
        let task = &self.tasks[task];
        let job = &self.jobs[task.job];
        if job.recorded && task.is_open() && !task.flags.silent {
            let record = record(job.id);
            self.out.push(Command::Record(record));
        }
    }

    /// The task whose current attempt `attempt` is. A message of any other attempt is late: it was stopped or given
    /// up, and acting on it would let two attempts of one task both be believed.
    pub(crate) fn current(&self, attempt: AttemptId) -> Option<TaskIx> {
        let ix = *self.task_index.get(&attempt.task)?;
        let task = &self.tasks[ix];
        let current = task.run().is_some_and(|run| run.number == attempt.number);
        (current && self.epoch == attempt.epoch).then_some(ix)
    }

    /// The output called `id`, where a task of `job` makes it. Jobs cannot name each other's partitions.
    pub(crate) fn part(&mut self, job: JobIx, id: PartitionId) -> Option<Part> {
        let task = self.known_task(job, id.task)?;
        self.known_slot(task, id.output).then_some(Part { task, output: id.output })
    }

    /// The same for queries: what the log knows but no task has taken over does not count.
    pub(crate) fn part_seen(&self, id: PartitionId) -> Option<Part> {
        let task = *self.task_index.get(&id.task)?;
        self.tasks[task].slot(id.output).map(|_| Part { task, output: id.output })
    }

    pub(crate) fn slot(&self, part: Part) -> Option<&Slot> {
        self.tasks.get(part.task)?.slot(part.output)
    }

    pub(crate) fn slot_mut(&mut self, part: Part) -> Option<&mut Slot> {
        self.tasks.get_mut(part.task)?.slot_mut(part.output)
    }

    pub(crate) fn partition_id(&self, part: Part) -> PartitionId {
        PartitionId { task: self.tasks[part.task].id, output: part.output }
    }

    pub(crate) fn job_of(&mut self, task: TaskIx) -> &mut Job {
        let job = self.tasks[task].job;
        &mut self.jobs[job]
    }

    /// Whether anything of a past job or task is left behind; for tests and the simulator.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        let idle = |executor: &crate::executor::Executor| {
            executor.stopping.is_empty()
                && executor.attempts == 0
                && executor.used == crate::Resources::default()
        };
        self.jobs.len() == 0
            && self.tasks.len() == 0
            && self.nodes.len() == 0
            && self.task_index.is_empty()
            && self.ready.is_empty()
            && self.holdings.is_empty()
            && self.pool.executors.iter().all(|(_, executor)| idle(executor))
    }

    /// Records of tasks kept, retired ones included; for tests and measurements.
    #[doc(hidden)]
    pub fn tasks_kept(&self) -> usize {
        self.tasks.len()
    }
}
