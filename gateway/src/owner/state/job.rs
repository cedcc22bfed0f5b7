//! One job's part of the durable state.
//!
//! While the job lives it is a log of what its tasks did, enough to replay its drivers; once it has ended only its
//! end is kept, and its input only where the job may be tried again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fanfold_protocol::{
    AttemptId, Code, Digest, Error, JobId, PartitionId, TaskId,
    message::{Spent, Usage},
    record::{Accepted, Committed, Input, Record},
    rest,
    value::{Output, Payload, Stored},
};
use fanfold_scheduler::Replay;

/// An accepted job.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// As accepted. The bytes of an inline input are gone once the job ended well or was cancelled, and what follows is done.
    pub accepted: Accepted,
    /// What its tasks did; `None` before the first of it and after the end.
    pub log: Option<Box<Log>>,
    /// Failed attempts of the root that were followed by another.
    pub failed_attempts: Vec<FailedAttempt>,
    /// Whether somebody asked to cancel it.
    pub cancel_asked: bool,
    /// Partitions beside the root's outputs that its result consists of.
    pub kept: Vec<(PartitionId, Output)>,
    /// Its end.
    pub end: Option<Box<End>>,
    /// Whether something follows from the end that is not done yet.
    pub follow: bool,
    /// The job that took up its dead letter.
    pub retried_as: Option<JobId>,
}

/// What the tasks of a live job did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Log {
    /// Tasks that committed.
    pub committed: HashMap<TaskId, Arc<Committed>>,
    /// Tasks that failed for good.
    pub failed: HashMap<TaskId, Error>,
    /// `put` and yielded outputs, and the attempts that made them.
    pub made: HashMap<PartitionId, (AttemptId, Output)>,
    /// Answers to waits, by task and number of the wait.
    pub waited: HashMap<(TaskId, u64), Vec<u32>>,
    /// What function names mean to this job.
    pub resolved: BTreeMap<String, Digest>,
}

/// A failed attempt of a root.
#[derive(Clone, PartialEq, Debug)]
pub struct FailedAttempt {
    /// Which.
    pub attempt: AttemptId,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// Why.
    pub error: Error,
}

/// A job's end.
#[derive(Clone, PartialEq, Debug)]
pub struct End {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// The root's outputs, or why it failed.
    pub result: Result<Vec<Output>, Error>,
    /// Sums over all attempts.
    pub usage: Usage,
    /// What else its bill counts.
    pub spent: Spent,
    /// Tasks, the root included; 0 where it was never begun.
    pub tasks: u64,
}

impl Default for End {
    fn default() -> Self {
        let (usage, spent) = (Usage::default(), Spent::default());
        Self { at_ms: 0, result: Ok(Vec::new()), usage, spent, tasks: 0 }
    }
}

impl Job {
    pub(super) fn new(accepted: Accepted) -> Self {
        Self {
            accepted,
            log: None,
            failed_attempts: Vec::new(),
            cancel_asked: false,
            kept: Vec::new(),
            end: None,
            follow: false,
            retried_as: None,
        }
    }

    /// Folds a record of this job. After the end nothing of it matters any more: it is late.
    pub(super) fn fold(&mut self, record: Record) {
        if self.end.is_some() {
            return;
        }
        match record {
            Record::AttemptFailed { attempt, at_ms, error, .. } => {
                if self.failed_attempts.iter().all(|failed| failed.attempt != attempt) {
                    self.failed_attempts.push(FailedAttempt { attempt, at_ms, error });
                }
            }
            Record::CancelAsked { .. } => self.cancel_asked = true,
            Record::Kept { partitions, .. } if self.kept.is_empty() => self.kept = partitions,
            Record::Ended { at_ms, result, usage, spent, tasks, follow, .. } => {
                self.log = None;
                self.end = Some(Box::new(End { at_ms, result, usage, spent, tasks }));
                self.follow = follow;
                self.drop_input();
            }
            record => self.log.get_or_insert_default().fold(record),
        }
    }

    /// What follows from its end is done.
    pub(super) fn followed(&mut self) {
        if self.end.is_some() {
            self.follow = false;
            self.drop_input();
        }
    }

    /// Drops the bytes of its input unless it may be tried again, or a part of it.
    fn drop_input(&mut self) {
        let partial = self.accepted.fired.as_ref().is_some_and(|fired| fired.says.partial);
        if self.is_dead_letter() || (partial && self.follow) {
            return;
        }
        if let Input::Inline { body, .. } = &mut self.accepted.input {
            *body = Payload::default();
        }
    }

    /// Whether it is a batch that was given up as a whole, and not tried again yet.
    pub fn is_to_be_split(&self) -> bool {
        let many = self.accepted.fired.as_ref().is_some_and(|fired| fired.events.len() > 1);
        many && self.is_dead_letter() && self.retried_as.is_none()
    }

    /// Whether it ended because somebody asked for it.
    pub fn was_cancelled(&self) -> bool {
        let cancelled = |end: &End| matches!(&end.result, Err(error) if error.code == Code::Cancelled);
        self.cancel_asked && self.end.as_deref().is_some_and(cancelled)
    }

    /// Whether it was given up: it failed and nobody asked for that.
    pub fn is_dead_letter(&self) -> bool {
        self.end.as_deref().is_some_and(|end| end.result.is_err()) && !self.was_cancelled()
    }

    /// An output that outlives it: of its root, or one that its result names.
    pub fn output(&self, partition: PartitionId) -> Option<&Output> {
        if partition.task == TaskId::root(self.accepted.job) {
            let outputs = self.end.as_deref()?.result.as_ref().ok()?;
            return outputs.get(partition.output as usize);
        }
        self.kept.iter().find(|(kept, _)| *kept == partition).map(|(_, output)| output)
    }

    /// What the data plane has of its result.
    pub fn stored(&self) -> impl Iterator<Item = &Stored> {
        let outputs = self.end.as_deref().and_then(|end| end.result.as_ref().ok()).into_iter().flatten();
        outputs.chain(self.kept.iter().map(|(_, output)| output)).filter_map(|output| match output {
            Output::Stored(stored) => Some(stored),
            Output::Inline(_) | Output::Alias(_) => None,
        })
    }

    /// Where it stands, as far as the journal tells: a job without an end is `Queued`.
    pub fn state(&self) -> rest::State {
        match self.end.as_deref() {
            None => rest::State::Queued,
            Some(End { result: Ok(_), .. }) => rest::State::Succeeded,
            Some(_) if self.was_cancelled() => rest::State::Cancelled,
            Some(_) => rest::State::Failed,
        }
    }

    /// Attempts of its root that are known to have been made.
    pub fn attempts(&self) -> u32 {
        let failed = u32::try_from(self.failed_attempts.len()).unwrap_or(u32::MAX);
        // One that ended without a task was never begun.
        let last = self.end.as_deref().is_some_and(|end| end.tasks > 0);
        failed.saturating_add(u32::from(last))
    }

    /// About how many bytes of memory its record takes, for the bounds on what is kept.
    pub fn kept_bytes(&self) -> usize {
        let outputs = self.end.as_deref().map_or(0, |end| match &end.result {
            Ok(outputs) => outputs.iter().map(inline_bytes).sum(),
            Err(error) => error.message.len(),
        });
        let failed: usize = self.failed_attempts.iter().map(|failed| 96 + failed.error.message.len()).sum();
        let kept: usize = self.kept.iter().map(|(_, output)| 160 + inline_bytes(output)).sum();
        // In the list of keys, and in the table of all.
        let events = self.accepted.fired.as_ref().map_or(0, |fired| fired.events.len() * 100);
        640 + outputs + failed + kept + events + self.input_bytes()
    }

    /// Bytes of its input that are in memory.
    pub fn input_bytes(&self) -> usize {
        match &self.accepted.input {
            Input::Inline { body, .. } => body.bytes.len(),
            Input::Stored { .. } => 0,
        }
    }

    /// What the scheduler needs to go on with it after a restart.
    pub fn replay(&self) -> Replay {
        let attempts = u32::try_from(self.failed_attempts.len()).unwrap_or(u32::MAX);
        let Some(log) = self.log.as_deref() else {
            return Replay { root_attempts_failed: attempts, ..Replay::default() };
        };
        Replay {
            committed: log.committed.iter().map(|(task, c)| (*task, Committed::clone(c))).collect(),
            failed: log.failed.clone(),
            made: log.made.iter().map(|(partition, (_, output))| (*partition, output.clone())).collect(),
            waited: log.waited.clone(),
            root_attempts_failed: attempts,
        }
    }

    /// Records that fold to this job, appended to `records`.
    pub(super) fn records(&self, records: &mut Vec<Record>) {
        let job = self.accepted.job;
        records.push(Record::Accepted(Box::new(self.accepted.clone())));
        if let Some(log) = self.log.as_deref() {
            log.records(job, records);
        }
        records.extend(self.failed_attempts.iter().map(|failed| {
            let FailedAttempt { attempt, at_ms, error } = failed.clone();
            Record::AttemptFailed { job, attempt, at_ms, error }
        }));
        if self.cancel_asked {
            records.push(Record::CancelAsked { job });
        }
        if !self.kept.is_empty() {
            records.push(Record::Kept { job, partitions: self.kept.clone() });
        }
        if let Some(end) = self.end.as_deref() {
            let (End { at_ms, result, usage, spent, tasks }, follow) = (end.clone(), self.follow);
            records.push(Record::Ended { job, at_ms, result, usage, spent, tasks, follow });
        }
        records.extend(self.retried_as.map(|again| Record::Retried { job, again }));
    }
}

impl Log {
    fn fold(&mut self, record: Record) {
        match record {
            Record::Committed(committed) => {
                let task = committed.attempt.task;
                if !self.failed.contains_key(&task) {
                    self.committed.entry(task).or_insert_with(|| Arc::new(*committed));
                }
            }
            Record::Failed { task, error, .. } if !self.committed.contains_key(&task) => {
                self.failed.entry(task).or_insert(error);
            }
            Record::Made { attempt, output, value, .. } => {
                let partition = PartitionId { task: attempt.task, output };
                self.made.entry(partition).or_insert((attempt, value));
            }
            Record::Waited { task, wait, ready, .. } => {
                self.waited.entry((task, wait)).or_insert(ready);
            }
            Record::Resolved { function, version, .. } => {
                self.resolved.entry(function).or_insert(version);
            }
            // `State` and `Job` take the others.
            _ => {}
        }
    }

    fn records(&self, job: JobId, records: &mut Vec<Record>) {
        records.extend(self.resolved.iter().map(|(function, version)| Record::Resolved {
            job,
            function: function.clone(),
            version: *version,
        }));
        records.extend(self.committed.values().map(|c| Record::Committed(Box::new(Committed::clone(c)))));
        records.extend(self.failed.iter().map(|(task, error)| Record::Failed {
            job,
            task: *task,
            error: error.clone(),
        }));
        records.extend(self.made.iter().map(|(partition, (attempt, value))| Record::Made {
            job,
            attempt: *attempt,
            output: partition.output,
            value: value.clone(),
        }));
        records.extend(self.waited.iter().map(|((task, wait), ready)| Record::Waited {
            job,
            task: *task,
            wait: *wait,
            ready: ready.clone(),
        }));
    }
}

fn inline_bytes(output: &Output) -> usize {
    match output {
        Output::Inline(payload) => payload.bytes.len(),
        Output::Stored(_) | Output::Alias(_) => 0,
    }
}
