//! What executors hold from before this owner, or from before their link was broken.
//!
//! The journal says where each partition was made; whether it is still there only its executor knows. What an executor
//! says when it joins is believed: a copy that the log has there and that is not held is lost. Claims wait here until
//! the replay of their job names the partition. A copy whose executor is not here is *away*: the executor may bring it
//! back at any time, until the partition has been made again.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_protocol::{
    ExecutorId, JobId,
    link::Held,
    value::{Output, Stored, StoredKey},
};

use crate::{
    Replay, Scheduler,
    job::Job,
    output::{Content, Gone, Slot, Was},
    scheduler::Work,
    slab::TaskIx,
    task::Part,
    timer::Timer,
};

/// How long after its first replay an owner waits for executors that the log names before it has their copies made
/// again: an executor hears of a new owner within a second and dials at once. Whoever comes later is still welcome,
/// with what has not been made again by then.
const GRACE_MS: u64 = 2000;
/// For how long after an executor has left anything else goes before making again what it had: one that is started
/// again at once is back sooner, with what it had written to its disk.
const RETURN_MS: u64 = 1000;

#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Copies that no task has taken over: their job has not started, or nothing of it has named them yet.
    unclaimed: BTreeMap<StoredKey, Holding>,
    grace: Grace,
    /// Until when the executor that left last may be started again.
    return_until_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    executor: ExecutorId,
    durable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Grace {
    #[default]
    NotBegun,
    Running,
    Over,
}

impl Holdings {
    /// Whether executors that the log names may be about to come.
    pub fn is_grace(&self) -> bool {
        self.grace == Grace::Running
    }

    pub fn is_empty(&self) -> bool {
        self.unclaimed.is_empty()
    }

    /// An unclaimed copy reached the object store.
    pub fn durable(&mut self, key: &StoredKey) {
        if let Some(holding) = self.unclaimed.get_mut(key) {
            holding.durable = true;
        }
    }

    /// Forgets what an executor said that is gone.
    pub fn forget(&mut self, executor: ExecutorId) {
        self.unclaimed.retain(|_, holding| holding.executor != executor);
    }

    fn of_job(&self, job: JobId) -> Vec<(StoredKey, ExecutorId)> {
        let all = self.unclaimed.iter().filter(|(key, _)| key.job == job);
        all.map(|(key, holding)| (*key, holding.executor)).collect()
    }
}

impl Replay {
    /// Whether the log says of this very copy that it is an output.
    pub(crate) fn knows(&self, key: &StoredKey) -> bool {
        let id = key.partition;
        let committed = || self.committed.get(&id.task)?.outputs.get(id.output as usize);
        let output = self.made.get(&id).or_else(committed);
        matches!(output, Some(Output::Stored(stored)) if stored.key == *key)
    }
}

impl Scheduler {
    /// An executor that has joined says that it holds a copy.
    pub(crate) fn take_over(&mut self, executor: ExecutorId, held: &Held) {
        let Held { key, durable } = *held;
        let known = match self.job_index.get(&key.job) {
            None => false, // It is still to be started.
            Some(&job) if self.jobs[job].replay.knows(&key) => false,
            Some(_) => true,
        };
        if !known {
            self.holdings.unclaimed.entry(key).or_insert(Holding { executor, durable });
        } else if !self.claim(executor, held) {
            self.free_at(executor, key);
        }
    }

    /// Takes the copy over, where a task still wants it. Whether one does.
    fn claim(&mut self, executor: ExecutorId, held: &Held) -> bool {
        let Some(part) = self.part_seen(held.key.partition) else { return false };
        let job = self.tasks[part.task].job;
        let Some(slot) = self.slot_mut(part) else { return false };
        match &mut slot.content {
            Content::Made(output) => match output.as_mut() {
                Output::Stored(stored) if stored.key == held.key => {
                    stored.at.get_or_insert(executor);
                    stored.durable |= held.durable;
                    self.agenda.push_back(Work::End(job));
                    true
                }
                _ => false,
            },
            Content::Gone(gone) => match gone.away().filter(|away| away.key == held.key) {
                Some(away) => {
                    let stored = Stored { at: Some(executor), durable: held.durable, ..away.clone() };
                    slot.content = Content::Made(Box::new(Output::Stored(stored)));
                    self.agenda.push_back(Work::Settled(part));
                    self.withdraw(part.task);
                    true
                }
                None => false,
            },
            Content::Pending => false,
        }
    }

    /// What there is of an output that the log says was stored.
    pub(crate) fn recalled_content(&mut self, mut stored: Stored) -> Content {
        match self.holdings.unclaimed.remove(&stored.key) {
            Some(holding) => {
                stored.at = Some(holding.executor);
                stored.durable |= holding.durable;
            }
            None if stored.at.is_some_and(|at| self.pool.find(at).is_some()) => stored.at = None,
            None if stored.durable => stored.at = None,
            None => return Content::Gone(Box::new(Gone { was: Was::Stored(stored), freed: false })),
        }
        if stored.at.is_none() && !stored.durable {
            return Content::Gone(Box::new(Gone { was: Was::Stored(stored), freed: false }));
        }
        Content::Made(Box::new(Output::Stored(stored)))
    }

    /// A job starts: what is held of it and is not in its log is of no use. The first replay begins the grace.
    pub(crate) fn sort_holdings(&mut self, job: JobId, replay: &Replay) {
        if self.holdings.grace == Grace::NotBegun && !(replay.committed.is_empty() && replay.made.is_empty())
        {
            self.holdings.grace = Grace::Running;
            self.timers.set(self.now_ms + GRACE_MS, Timer::Grace);
        }
        for (key, executor) in self.holdings.of_job(job) {
            if !replay.knows(&key) {
                self.holdings.unclaimed.remove(&key);
                self.free_at(executor, key);
            }
        }
    }

    /// The job has ended: nothing will ever name what its log says and nobody has named.
    pub(crate) fn free_unnamed(&mut self, job: &Job) {
        let committed = job.replay.committed.values().flat_map(|committed| &committed.outputs);
        let stored = committed.chain(job.replay.made.values()).filter_map(|output| match output {
            Output::Stored(stored) => Some(stored.key),
            _ => None,
        });
        let mut keys: BTreeSet<StoredKey> = stored.filter(|key| !key.is_memo()).collect();
        for (key, executor) in self.holdings.of_job(job.id) {
            self.holdings.unclaimed.remove(&key);
            self.free_at(executor, key);
            keys.remove(&key);
        }
        self.frees_stored.extend(keys);
    }

    /// Executors have had their time: what is awaited and away is made again.
    pub(crate) fn grace_passed(&mut self) {
        self.holdings.grace = Grace::Over;
        let tasks: Vec<TaskIx> = self.tasks.iter().map(|(ix, _)| ix).collect();
        tasks.into_iter().for_each(|task| self.need_missing(task));
        self.check_bindings();
    }

    /// An executor has left, and may be started again.
    pub(crate) fn expect_return(&mut self) {
        self.holdings.return_until_ms = self.now_ms + RETURN_MS;
        self.timers.set(self.now_ms + RETURN_MS, Timer::Return);
    }

    /// Whether what the task made, and is to make again, may come back with its executor any moment.
    pub(crate) fn may_come_back(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        let away = |output| task.slot(output).and_then(Slot::gone).is_some_and(|gone| gone.away().is_some());
        self.now_ms < self.holdings.return_until_ms && task.is_committed() && task.output_numbers().any(away)
    }

    /// The executor that left last has had its time.
    pub(crate) fn return_passed(&mut self) {
        if self.now_ms < self.holdings.return_until_ms {
            return; // Another one has left meanwhile.
        }
        for (ix, job) in self.jobs.iter_mut() {
            self.ready.no_later(ix, job);
        }
    }

    /// The executor of an output that is away has come without it, or the output is no longer wanted from there:
    /// the object store may have a copy all the same. (Whatever its durability: one that drains uploads all it has.)
    pub(crate) fn sweep(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        let Content::Gone(gone) = &mut slot.content else { return };
        let Was::Stored(stored) = &mut gone.was else { return };
        if stored.at.take().is_some() {
            let stored = stored.clone();
            self.free_stored(&stored, true);
        }
    }
}
