//! What the owner may ask. Nothing here changes anything.

use std::collections::{BTreeMap, HashMap};

use fanfold_protocol::{
    JobId, PartitionId, TaskId,
    message::Usage,
    rest::{GraphTask, GraphView, LineageView, Progress, State},
    value::Output,
};

use crate::{
    Scheduler,
    executor::ExecutorView,
    interest::Resolved,
    job::Job,
    output::{Content, Was},
    slab::TaskIx,
    task::{Part, Task},
};

/// How deep lineage is shown.
const LINEAGE_DEPTH_MAX: usize = 16;
/// Nodes of one answer about lineage: inputs of inputs multiply.
const LINEAGE_NODES_MAX: usize = 10_000;

impl Scheduler {
    fn job(&self, job: JobId) -> Option<&Job> {
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
            stages: job.stages.iter().cloned().collect::<BTreeMap<_, _>>(),
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

    /// The executors, in the order they joined.
    pub fn executors(&self) -> impl Iterator<Item = ExecutorView> + '_ {
        self.pool.views()
    }

    /// The output behind a partition, aliases followed, if it can be read now.
    pub fn output(&self, partition: PartitionId) -> Option<&Output> {
        match self.resolve(self.part_seen(partition)?) {
            Resolved::Ready(_, output) => Some(output),
            _ => None,
        }
    }

    /// The job's tasks, at most `max`, breadth first from the root and then in the order of calls.
    pub fn graph(&self, job: JobId, max: usize) -> Option<GraphView> {
        self.job(job).map(|job| self.graph_of(job, max))
    }

    pub(crate) fn graph_of(&self, job: &Job, max: usize) -> GraphView {
        let mut found: Vec<TaskIx> = job.root.into_iter().take(max).collect();
        let mut next = 0;
        while let Some(&ix) = found.get(next).filter(|_| found.len() < max) {
            let room = max - found.len();
            let children = self.tasks[ix].driver.iter().flat_map(|driver| driver.children.iter().flatten());
            found.extend(children.take(room));
            next += 1;
        }
        found.sort_by_key(|&ix| self.tasks[ix].ordinal);
        let ids: HashMap<u32, TaskId> =
            found.iter().map(|&ix| (self.tasks[ix].ordinal, self.tasks[ix].id)).collect();
        let tasks = found.iter().map(|&ix| self.graph_task(job, &self.tasks[ix], &ids)).collect();
        GraphView { tasks, truncated: (found.len() as u64) < job.tasks }
    }

    fn graph_task(&self, job: &Job, task: &Task, ids: &HashMap<u32, TaskId>) -> GraphTask {
        let producer = |part: &Part| self.tasks.get(part.task).map(|task| task.id);
        let mut inputs: Vec<TaskId> = match &task.spec {
            Some(_) => task.args.iter().filter_map(producer).collect(),
            None => task.inputs.iter().filter_map(|ordinal| ids.get(ordinal).copied()).collect(),
        };
        let mut seen = std::collections::HashSet::new();
        inputs.retain(|id| seen.insert(*id));
        GraphTask {
            id: task.id,
            parent: task.parent.map(|parent| self.tasks[parent].id),
            entry: job.stages.get(task.stage as usize).map(|(name, _)| name.clone()).unwrap_or_default(),
            state: task.state_name().to_owned(),
            inputs,
            attempts: task.attempt,
            output_bytes: task.output_bytes,
        }
    }

    /// How a partition was made, as far as its job remembers.
    pub fn lineage(&self, partition: PartitionId) -> Option<LineageView> {
        let part = self.part_seen(partition)?;
        let mut budget = LINEAGE_NODES_MAX;
        self.lineage_of(part, LINEAGE_DEPTH_MAX, &mut budget)
    }

    fn lineage_of(&self, part: Part, depth: usize, budget: &mut usize) -> Option<LineageView> {
        *budget = budget.checked_sub(1)?;
        let task = self.tasks.get(part.task)?;
        let inputs = match depth.checked_sub(1) {
            Some(depth) => {
                task.args.iter().filter_map(|&input| self.lineage_of(input, depth, budget)).collect()
            }
            None => Vec::new(),
        };
        Some(LineageView {
            partition: self.partition_id(part).to_string(),
            task: self.graph_task(&self.jobs[task.job], task, &HashMap::new()),
            version: task.spec.as_ref().map_or(fanfold_protocol::Digest([0; 32]), |spec| spec.version),
            attempt: self.attempt_of(part),
            inputs,
        })
    }

    /// The attempt whose copy is the output's.
    fn attempt_of(&self, part: Part) -> u32 {
        let stored = match self.slot(part).map(|slot| &slot.content) {
            Some(Content::Made(output)) => match output.as_ref() {
                Output::Stored(stored) => Some(stored),
                _ => None,
            },
            Some(Content::Gone(gone)) => match &gone.was {
                Was::Stored(stored) => Some(stored),
                _ => None,
            },
            _ => None,
        };
        stored.map_or(self.tasks[part.task].attempt, |stored| stored.key.attempt)
    }
}
