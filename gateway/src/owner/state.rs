//! The durable state of job ownership, as a fold over the journal's records.
//!
//! [`State::fold`] is the only definition of what a record means: the owner calls it for every record once it is
//! durable, and a restart calls it for every record that was read back, so both have the same state. It is pure and
//! total: records of jobs that it does not know, and second commits, ends or failures, change nothing. That makes it
//! safe to fold a tail of the journal over a checkpoint that already holds part of it.
//!
//! It knows nothing of time: what is too old is removed by `Forgotten` records (jobs) and [`State::expire_answers`].
//! Functions, versions and aliases are the registry's part of the journal and are ignored here.

mod job;
mod memos;
mod triggers;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use fanfold_protocol::{
    Digest, JobId, TaskId,
    record::{Accepted, Record},
};

pub use job::{End, FailedAttempt, Job, Log};
pub use memos::{Memo, Memos};
pub use triggers::{Cursor, Triggers};

/// A synchronous answer stored under an `Idempotency-Key`.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredAnswer {
    /// Digest of the request's body.
    pub request: Digest,
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// HTTP status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: String,
    /// At most [`fanfold_protocol::limit::INLINE_BYTES_MAX`] bytes.
    pub body: bytes::Bytes,
}

/// Everything about jobs that survives a restart.
///
/// A clone is cheap (it shares each job), so that a checkpoint can be made of one while the owner goes on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct State {
    jobs: BTreeMap<JobId, Arc<Job>>,
    /// Tasks whose outputs outlive their job, for partitions asked for by id: roots, and makers of what results name.
    makers: HashMap<TaskId, JobId>,
    /// Jobs that were given up.
    letters: BTreeSet<JobId>,
    /// Idempotency key to the job that was accepted under it.
    keys: HashMap<Digest, JobId>,
    /// What memoised calls made.
    memos: Memos,
    /// What triggers wait for.
    triggers: Triggers,
    answers: HashMap<Digest, Arc<StoredAnswer>>,
    /// Bytes of bodies in `answers`.
    answer_bytes: usize,
}

impl State {
    /// The state after one more record.
    pub fn fold(&mut self, record: Record) {
        match record {
            Record::Accepted(accepted) => self.accept(accepted),
            Record::Retried { job, again } => self.change_ended(job, |job| {
                job.retried_as.get_or_insert(again);
            }),
            Record::Followed { job } => self.change_ended(job, Job::followed),
            Record::Forgotten { job } => self.forget(job),
            Record::Answered { key, request, at_ms, status, content_type, body } => {
                self.answer(key, StoredAnswer { request, at_ms, status, content_type, body });
            }
            Record::Memoised { key, at_ms, outputs } => self.memos.insert(key, Memo { at_ms, outputs }),
            Record::Unmemoised { key } => self.memos.remove(key),
            Record::Held(held) if self.keys.contains_key(&held.key) => {}
            Record::Held(held) => self.triggers.hold(*held),
            Record::Passed { trigger, at_ms, job } => self.triggers.pass(trigger, Cursor { at_ms, job }),
            Record::Deployed(_)
            | Record::AliasSet { .. }
            | Record::Removed { .. }
            | Record::TriggerSet(_)
            | Record::TriggerRemoved { .. } => {}
            Record::Kept { job, ref partitions } => {
                if self.jobs.get(&job).is_some_and(|job| job.end.is_none() && job.kept.is_empty()) {
                    self.makers.extend(partitions.iter().map(|(partition, _)| (partition.task, job)));
                    self.change_live(job, record);
                }
            }
            Record::Committed(ref committed) => self.change_live(committed.job, record),
            Record::Made { job, .. }
            | Record::Waited { job, .. }
            | Record::Resolved { job, .. }
            | Record::Failed { job, .. }
            | Record::AttemptFailed { job, .. }
            | Record::CancelAsked { job }
            | Record::Ended { job, .. } => self.change_live(job, record),
        }
    }

    /// Records that fold to this state, the fewest there are: what a checkpoint holds. Each job's records come
    /// together, in the order of job ids.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.jobs.len() * 2 + self.answers.len());
        for job in self.jobs.values() {
            job.records(&mut records);
        }
        records.extend(self.triggers.records());
        records.extend(self.memos.iter().map(|(key, memo)| {
            let Memo { at_ms, outputs } = Memo::clone(memo);
            Record::Memoised { key, at_ms, outputs }
        }));
        records.extend(self.answers.iter().map(|(key, answer)| {
            let StoredAnswer { request, at_ms, status, content_type, body } = StoredAnswer::clone(answer);
            Record::Answered { key: *key, request, at_ms, status, content_type, body }
        }));
        records
    }

    /// A job that was accepted and not forgotten.
    pub fn job(&self, job: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&job)
    }

    /// Jobs older than `before` (all, without one), newest first.
    pub fn newest_first(&self, before: Option<JobId>) -> impl Iterator<Item = &Arc<Job>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let end = before.map_or(Unbounded, Excluded);
        self.jobs.range((Unbounded, end)).rev().map(|(_, job)| job)
    }

    /// Dead letters older than `before` (all, without one), newest first.
    pub fn letters(&self, before: Option<JobId>) -> impl Iterator<Item = &Arc<Job>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let end = before.map_or(Unbounded, Excluded);
        self.letters.range((Unbounded, end)).rev().filter_map(|id| self.jobs.get(id))
    }

    /// All jobs, oldest first.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// The job that this task is the root of, or whose result names outputs of it.
    pub fn job_of_maker(&self, task: TaskId) -> Option<&Arc<Job>> {
        self.jobs.get(self.makers.get(&task)?)
    }

    /// The job accepted under an idempotency key.
    pub fn job_of_key(&self, key: Digest) -> Option<&Arc<Job>> {
        self.jobs.get(self.keys.get(&key)?)
    }

    /// What memoised calls made.
    pub fn memos(&self) -> &Memos {
        &self.memos
    }

    /// The answer stored under an idempotency key.
    pub fn stored_answer(&self, key: Digest) -> Option<&Arc<StoredAnswer>> {
        self.answers.get(&key)
    }

    /// Bytes of all stored answers' bodies.
    pub fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Removes answers that were given before `before_ms`. Not a record: whoever folds the journal again calls this
    /// again.
    pub fn expire_answers(&mut self, before_ms: u64) {
        let bytes = &mut self.answer_bytes;
        self.answers.retain(|_, answer| {
            let keep = answer.at_ms >= before_ms;
            if !keep {
                *bytes -= answer.body.len();
            }
            keep
        });
    }

    fn accept(&mut self, accepted: Box<Accepted>) {
        let id = accepted.job;
        if self.jobs.contains_key(&id) {
            return;
        }
        if let Some((key, _)) = accepted.idempotency {
            self.keys.insert(key, id);
        }
        if let Some(fired) = &accepted.fired {
            self.triggers.fire(id, accepted.idempotency.map(|(key, _)| key), fired);
            self.keys.extend(fired.events.iter().map(|key| (*key, id)));
        }
        self.makers.insert(TaskId::root(id), id);
        self.jobs.insert(id, Arc::new(Job::new(*accepted)));
    }

    fn change_ended(&mut self, job: JobId, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.jobs.get_mut(&job) {
            change(Arc::make_mut(job));
            self.triggers.note(job);
        }
    }

    fn change_live(&mut self, job: JobId, record: Record) {
        let Some(changed) = self.jobs.get_mut(&job) else { return };
        let changed = Arc::make_mut(changed);
        let had_ended = changed.end.is_some();
        changed.fold(record);
        if changed.end.is_some() && !had_ended {
            self.memos.keep(memos_of(changed));
            self.triggers.note(changed);
        }
        if changed.is_dead_letter() {
            self.letters.insert(job);
        }
    }

    fn forget(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if job.end.is_some() {
            self.memos.release(memos_of(&job));
        }
        self.makers.remove(&TaskId::root(id));
        for (partition, _) in &job.kept {
            self.makers.remove(&partition.task);
        }
        self.letters.remove(&id);
        self.triggers.forget(id);
        // A later job may have taken the key over, after an accept whose journal write was reported as failed.
        let own = job.accepted.idempotency.iter().map(|(key, _)| key);
        let events = job.accepted.fired.iter().flat_map(|fired| &fired.events);
        for key in own.chain(events) {
            if self.keys.get(key) == Some(&id) {
                self.keys.remove(key);
            }
        }
    }

    fn answer(&mut self, key: Digest, answer: StoredAnswer) {
        if let std::collections::hash_map::Entry::Vacant(free) = self.answers.entry(key) {
            self.answer_bytes += answer.body.len();
            free.insert(Arc::new(answer));
        }
    }
}

/// The entries of memoised calls whose data is part of a job's result.
fn memos_of(job: &Job) -> impl Iterator<Item = JobId> {
    job.stored().filter(|stored| stored.key.is_memo()).map(|stored| stored.key.job)
}
