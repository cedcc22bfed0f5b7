//! What the owner may ask. Nothing here changes anything.

use fanfold_protocol::{
    JobId, PartitionId,
    message::{Spent, Usage},
    rest::{Progress, Stage, State, WaitView},
    value::Output,
};

use crate::{Scheduler, executor::ExecutorView, interest::Resolved, job::Job};

impl Scheduler {
    pub(crate) fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(*self.job_index.get(&job)?)
    }

    /// How far the job is.
    pub fn progress(&self, job: JobId) -> Option<Progress> {
        self.job(job).map(|job| self.progress_of(job))
    }

    pub(crate) fn progress_of(&self, job: &Job) -> Progress {
        Progress {
            tasks: job.tasks,
            finished: job.tasks.saturating_sub(job.open as u64),
            running: job.running,
            retries: job.retries,
            bytes_read: job.usage.bytes_read,
            bytes_written: job.usage.bytes_written,
            stages: job.stages.iter().map(stage_of).collect(),
        }
    }

    /// Where the job stands. `None` once it has ended.
    pub fn state(&self, job: JobId) -> Option<State> {
        let job = self.job(job)?;
        let root = &self.tasks[job.root?];
        let started = root.attempt > 0 || !root.is_open();
        Some(if started { State::Running } else { State::Queued })
    }

    /// Attempts of the job's root so far, those of earlier epochs included as far as they failed.
    pub fn root_attempts(&self, job: JobId) -> Option<u32> {
        let job = self.job(job)?;
        Some(job.root_failed_before + self.tasks[job.root?].attempt)
    }

    /// Why the last attempt of the job's root failed, if one did.
    pub fn root_error(&self, job: JobId) -> Option<&fanfold_protocol::Error> {
        self.tasks[self.job(job)?.root?].error.as_deref()
    }

    /// What all attempts of the job that have ended used.
    pub fn usage(&self, job: JobId) -> Option<&Usage> {
        Some(&self.job(job)?.usage)
    }

    /// What else its bill counts until now.
    pub fn spent_on(&self, job: JobId) -> Option<&Spent> {
        Some(&self.job(job)?.spent)
    }

    /// The executors, in the order they joined.
    pub fn executors(&self) -> impl Iterator<Item = ExecutorView> + '_ {
        self.pool.views()
    }

    /// Runnable tasks that no executor has room for, by what they need, the most first.
    pub fn waiting(&self) -> Vec<WaitView> {
        let filled = self.ready.filled.iter().filter_map(|&ix| Some((ix, self.ready.classes.get(ix)?)));
        let mut waiting: Vec<WaitView> = filled
            .map(|(ix, class)| {
                let needs = class.shape.needs;
                let queues = class.jobs.iter().filter_map(|&(_, _, job)| {
                    self.jobs.get(job)?.queues.iter().find(|queue| queue.class == ix)
                });
                WaitView {
                    tasks: queues.map(|queue| queue.len() as u64).sum(),
                    jobs: class.jobs.len() as u64,
                    cpu_millis: needs.cpu_millis,
                    memory: needs.memory,
                    gpu: needs.gpu,
                    reason: self.reason_no_room(&needs, class.shape.only),
                }
            })
            .collect();
        waiting.sort_by_key(|class| std::cmp::Reverse(class.tasks));
        waiting
    }

    /// The output behind a partition, aliases followed, if it can be read now.
    pub fn output(&self, partition: PartitionId) -> Option<&Output> {
        match self.resolve(self.part_seen(partition)?) {
            Resolved::Ready(_, output) => Some(output),
            _ => None,
        }
    }
}

fn stage_of((name, stage): &(String, Stage)) -> (String, Stage) {
    let waiting = stage.tasks.saturating_sub(stage.finished).saturating_sub(stage.running);
    (name.clone(), Stage { waiting, ..stage.clone() })
}
