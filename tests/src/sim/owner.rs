//! The simulated owner: it resolves calls, keeps a journal whose writes are durable after a delay, and starts anew
//! from what was durable.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_protocol::{
    Digest, Error, JobId, PartitionId, TaskId,
    call::{Call, Durability, Placement, TaskSpec, Terms},
    message::FromExecutor,
    record::Record,
    value::Output,
};
use fanfold_scheduler::{Command, JobEnd, Replay, Scheduler};

use super::{
    program::{Future, Program},
    world::Data,
};

/// What became of a job.
#[derive(Debug)]
pub enum Fate {
    NotStarted,
    Running,
    /// Ended, but not durably so yet.
    Ended(Box<JobEnd>),
    /// Its result was given to whoever asked.
    Announced(Box<JobEnd>),
    /// It was not recorded and its gateway died.
    Vanished,
}

#[derive(Debug)]
pub struct JobRun {
    pub id: JobId,
    pub program: usize,
    pub recorded: bool,
    pub weight: u32,
    pub expected: Result<Vec<Future>, fanfold_protocol::Code>,
    pub fate: Fate,
    /// To be carried out when its end is durable.
    pub frees: Vec<Command>,
    pub cancelled: bool,
}

#[derive(Debug)]
pub struct Owner {
    /// Absent while the gateway is down.
    pub scheduler: Option<Scheduler>,
    /// Entries, and when each is durable.
    pub journal: Vec<(u64, Record)>,
    pub jobs: Vec<JobRun>,
    pub names: BTreeMap<TaskId, String>,
    pub wake_at_ms: Option<u64>,
    /// Whether some calls have deadlines.
    deadlines: bool,
    committed: BTreeSet<TaskId>,
}

impl Owner {
    pub fn new(jobs: Vec<JobRun>, deadlines: bool) -> Self {
        Self {
            scheduler: None,
            journal: Vec::new(),
            jobs,
            names: BTreeMap::new(),
            wake_at_ms: None,
            deadlines,
            committed: BTreeSet::new(),
        }
    }

    pub fn job(&mut self, id: JobId) -> Option<(usize, &mut JobRun)> {
        self.jobs.iter_mut().enumerate().find(|(_, job)| job.id == id)
    }

    /// Appends to the journal. Returns when it is durable, and whether it is a second commit of a task.
    pub fn append(&mut self, now_ms: u64, delay_ms: u64, record: Record) -> (u64, bool) {
        let last = self.journal.last().map_or(0, |(at_ms, _)| *at_ms);
        let durable_at_ms = last.max(now_ms + delay_ms);
        let again = match &record {
            Record::Committed(committed) => !self.committed.insert(committed.attempt.task),
            _ => false,
        };
        self.journal.push((durable_at_ms, record));
        (durable_at_ms, again)
    }

    /// The gateway dies: what was not durable is gone.
    pub fn die(&mut self, now_ms: u64) {
        self.scheduler = None;
        self.wake_at_ms = None;
        self.journal.retain(|(durable_at_ms, _)| *durable_at_ms < now_ms);
        self.committed.clear();
        for (_, record) in &self.journal {
            if let Record::Committed(committed) = record {
                self.committed.insert(committed.attempt.task);
            }
        }
        for job in &mut self.jobs {
            job.frees.clear();
            match job.fate {
                Fate::Running | Fate::Ended(_) if !job.recorded => job.fate = Fate::Vanished,
                Fate::Ended(_) => job.fate = Fate::Running,
                _ => {}
            }
        }
    }

    /// What the journal says of a job. `None`: that it has ended.
    pub fn replay(
        &self,
        job: JobId,
        store: Option<&BTreeMap<fanfold_protocol::value::StoredKey, Data>>,
    ) -> Option<Replay> {
        let probed = |output: &Output| {
            let mut output = output.clone();
            if let (Output::Stored(stored), Some(store)) = (&mut output, store) {
                stored.durable = store.contains_key(&stored.key);
            }
            output
        };
        let mut replay = Replay::default();
        for (_, record) in &self.journal {
            match record {
                Record::Committed(c) if c.job == job => {
                    let mut committed = (**c).clone();
                    committed.outputs = c.outputs.iter().map(probed).collect();
                    replay.committed.entry(c.attempt.task).or_insert(committed);
                }
                Record::Made { job: of, attempt, output, value } if *of == job => {
                    let id = PartitionId { task: attempt.task, output: *output };
                    replay.made.entry(id).or_insert_with(|| probed(value));
                }
                Record::Waited { job: of, task, wait, ready } if *of == job => {
                    replay.waited.insert((*task, *wait), ready.clone());
                }
                Record::Failed { job: of, task, error } if *of == job => {
                    replay.failed.insert(*task, error.clone());
                }
                Record::AttemptFailed { job: of, .. } if *of == job => replay.root_attempts_failed += 1,
                Record::Ended { job: of, .. } if *of == job => return None,
                _ => {}
            }
        }
        Some(replay)
    }

    pub fn root(&mut self, n: usize, programs: &[Program]) -> TaskSpec {
        let job = &self.jobs[n];
        let id = TaskId::root(job.id);
        self.names.insert(id, format!("job{n}"));
        spec(id, None, job.program, &programs[job.program], Vec::new(), Placement::Local)
    }

    /// Resolves a call; a call that makes no sense is refused.
    pub fn resolve(
        &mut self,
        now_ms: u64,
        programs: &[Program],
        message: &FromExecutor,
    ) -> Option<(TaskId, Result<TaskSpec, Error>)> {
        let FromExecutor::Submit { attempt, index, call } = message else { return None };
        let Call { entry, args, options, .. } = call.as_ref();
        let task = attempt.task.child(*index);
        let parent = self.names.get(&attempt.task).cloned().unwrap_or_default();
        self.names.insert(task, format!("{parent}/{index}"));
        let program: usize = entry.parse().ok()?;
        let callee = &programs[program];
        let mut spec = spec(task, Some(attempt.task), program, callee, args.clone(), options.placement);
        if self.deadlines && task.0[0] < 32 {
            spec.terms.deadline_at_ms = Some(now_ms + u64::from(task.0[1]));
        }
        Some((task, Ok(spec)))
    }
}

fn spec(
    id: TaskId,
    parent: Option<TaskId>,
    program: usize,
    text: &Program,
    args: Vec<fanfold_protocol::value::Value>,
    placement: Placement,
) -> TaskSpec {
    let terms = Terms {
        version: Digest([1; 32]),
        entry: program.to_string(),
        outputs: if text.generator { 0 } else { text.returns.len() as u32 },
        generator: text.generator,
        cpu_millis: text.cpu_millis,
        memory: text.memory,
        memory_max: text.memory_max,
        gpu: 0,
        custom: Default::default(),
        placement,
        attempts: 3,
        backoff_ms: 100,
        timeout_ms: 60_000,
        deadline_at_ms: None,
        deterministic: text.deterministic,
        durability: if parent.is_none() { Durability::Lazy } else { text.durability },
        memo: false,
    };
    TaskSpec { id, parent, args, terms }
}
