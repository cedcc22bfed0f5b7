//! What the scheduler knows of one job: its tree's root, its counts, its queues and what its log says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fanfold_protocol::{
    Digest, JobId,
    message::{Spent, Usage},
    record::Committed,
    rest::Stage,
};

use crate::{
    Replay,
    backup::Pace,
    slab::{ClassIx, TaskIx},
    spec::Shared,
    timer::TimerKey,
};

/// Entries with counts of their own; a job with more has the rest counted under [`OTHER_STAGES`].
const STAGES_MAX: usize = 1000;
const OTHER_STAGES: &str = "(others)";

#[derive(Debug)]
pub(crate) struct Job {
    pub id: JobId,
    pub recorded: bool,
    pub weight: u32,
    /// Absent only between the job's and its root's making.
    pub root: Option<TaskIx>,
    /// Tasks that failed by what the log says, whose driver has not called them yet.
    pub strays: Vec<TaskIx>,
    /// What the log says and no task has taken over yet.
    pub replay: Replay,
    pub stages: Vec<(String, Stage)>,
    /// Versions that its tasks run, in the order of the first call.
    pub versions: Vec<Digest>,
    /// What its tasks have in common.
    pub terms: Shared,
    pub usage: Usage,
    pub spent: Spent,
    /// Tasks called so far.
    pub tasks: u64,
    /// Of these, not settled.
    pub open: usize,
    /// Attempts running or blocked.
    pub running: u64,
    /// Of these, with a cpu.
    pub computing: u64,
    /// Attempts beyond each task's first.
    pub retries: u64,
    /// Failed attempts of the root before this epoch.
    pub root_failed_before: u32,
    pub ordinal_next: u32,
    /// No later record of a task may use an attempt number that a dropped record of it had.
    pub attempt_floor: u32,
    pub queues: Vec<Queue>,
    /// Cpu time used so far by weight: the job with the least goes first.
    pub virtual_time: u64,
    /// Since when nothing of it ran or became runnable.
    pub idle_since_ms: u64,
    pub stall_timer: Option<TimerKey>,
    /// Whether the present standstill was reported.
    pub stall_told: bool,
    pub end: End,
    pub pace: Pace,
    /// Commits that are not in the log yet, by task; see [`crate::journal`].
    pub withheld: BTreeMap<TaskIx, Withheld>,
    /// Tasks whose end in the log others wait for, with those.
    pub awaited_in_log: BTreeMap<TaskIx, Vec<TaskIx>>,
}

/// A commit that is not in the log yet.
#[derive(Debug)]
pub(crate) struct Withheld {
    /// Tasks whose end has to be in the log first.
    pub missing: u32,
    pub record: Box<Committed>,
}

/// How a job that has its root's outputs waits for them to be safe.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub timer: Option<TimerKey>,
    pub late: bool,
}

/// The job's runnable tasks of one class, first to start first.
#[derive(Debug)]
pub(crate) struct Queue {
    pub class: ClassIx,
    /// Its place among the class's jobs; `None`: it is not there.
    pub key: Option<(u64, u64)>,
    /// Tasks that have run before, by ordinal.
    pub again: BTreeSet<(u32, TaskIx)>,
    /// Those that have not, with the order in which they became runnable.
    pub tasks: VecDeque<(TaskIx, u64)>,
    /// Tasks that have run before and need not run again if an executor that has left comes back with what they made: last.
    pub later: BTreeSet<(u32, TaskIx)>,
}

impl Queue {
    pub fn new(class: ClassIx) -> Self {
        Self { class, key: None, again: BTreeSet::new(), tasks: VecDeque::new(), later: BTreeSet::new() }
    }

    /// The first task, and its order among all jobs'.
    pub fn head(&self) -> Option<(TaskIx, u64)> {
        let again = self.again.first().map(|&(_, task)| (task, 0));
        let later = || self.later.first().map(|&(_, task)| (task, u64::MAX));
        again.or_else(|| self.tasks.front().copied()).or_else(later)
    }

    /// How many tasks.
    pub fn len(&self) -> usize {
        self.again.len() + self.tasks.len() + self.later.len()
    }

    /// Removes the first task.
    pub fn pop(&mut self) {
        if self.again.pop_first().is_none() && self.tasks.pop_front().is_none() {
            self.later.pop_first();
        }
    }
}

impl Job {
    pub fn new(id: JobId, recorded: bool, weight: u32, replay: Replay) -> Self {
        Self {
            id,
            recorded,
            weight: weight.max(1),
            root: None,
            strays: Vec::new(),
            root_failed_before: replay.root_attempts_failed,
            replay,
            stages: Vec::new(),
            versions: Vec::new(),
            terms: Shared::default(),
            usage: Usage::default(),
            spent: Spent::default(),
            tasks: 0,
            open: 0,
            running: 0,
            computing: 0,
            retries: 0,
            ordinal_next: 0,
            attempt_floor: 0,
            queues: Vec::new(),
            virtual_time: 0,
            idle_since_ms: 0,
            stall_timer: None,
            stall_told: false,
            end: End::default(),
            pace: Pace::default(),
            withheld: BTreeMap::new(),
            awaited_in_log: BTreeMap::new(),
        }
    }

    /// The index of the stage of `entry`.
    pub fn stage(&mut self, entry: &str) -> u32 {
        let found = self.stages.iter().rposition(|(name, _)| name == entry);
        let index = found.unwrap_or_else(|| {
            let name = if self.stages.len() < STAGES_MAX { entry } else { OTHER_STAGES };
            if self.stages.len() <= STAGES_MAX {
                self.stages.push((name.to_owned(), Stage::default()));
            }
            self.stages.len() - 1
        });
        index as u32
    }

    /// The index of a version that a task runs. A job calls few.
    pub fn version(&mut self, version: Digest) -> u32 {
        let found = self.versions.iter().rposition(|known| *known == version);
        let index = found.unwrap_or_else(|| {
            self.versions.push(version);
            self.versions.len() - 1
        });
        index as u32
    }

    pub fn stage_mut(&mut self, stage: u32) -> Option<&mut Stage> {
        self.stages.get_mut(stage as usize).map(|(_, counts)| counts)
    }
}
