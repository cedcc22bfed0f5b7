//! What is shown of jobs that have ended beside their result: progress, task graph and lineage.
//!
//! The scheduler forgets a job when it ends and gives its graph with the end; the graph is stored beside the job's logs
//! before the end is announced, and goes when the job is forgotten. In memory there is only the progress of jobs that
//! ended lately, and which job a task of theirs belongs to: a partition's id does not tell. Of other tasks the caller
//! has to know the job.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use fanfold_protocol::{
    Code, Error, JobId, PartitionId, TaskId, limit,
    rest::{GraphTask, GraphView, LineageView, OutputView, Progress},
    value::Output,
};

use super::{
    Owner, lineage,
    messages::{GraphFound, LineageFound, Request},
    run::Loop,
    state::{End, Job},
    views::no_job,
};

/// Tasks of one graph that are shown.
const GRAPH_TASKS_MAX: usize = 10_000;

/// Jobs that ended lately, the oldest first to go.
#[derive(Default)]
pub(super) struct History {
    jobs: HashMap<JobId, Progress>,
    tasks: HashMap<TaskId, JobId>,
    order: VecDeque<(JobId, Vec<TaskId>)>,
}

impl History {
    /// Remembers a recorded job of several tasks that ended. Of a job of one task, its end says as much.
    pub fn remember(&mut self, job: JobId, progress: Progress, graph: &GraphView) {
        if self.jobs.insert(job, progress).is_none() {
            let tasks: Vec<TaskId> = graph.tasks.iter().map(|task| task.id).collect();
            self.tasks.extend(tasks.iter().map(|task| (*task, job)));
            self.order.push_back((job, tasks));
        }
        while self.order.len() > limit::HISTORY_JOBS_MAX || self.tasks.len() > limit::HISTORY_TASKS_MAX {
            let Some((oldest, tasks)) = self.order.pop_front() else { return };
            self.jobs.remove(&oldest);
            tasks.iter().for_each(|task| _ = self.tasks.remove(task));
        }
    }

    pub fn progress(&self, job: JobId) -> Option<&Progress> {
        self.jobs.get(&job)
    }

    fn job_of(&self, task: TaskId) -> Option<JobId> {
        self.tasks.get(&task).copied()
    }
}

impl Owner {
    /// The tasks of a job that runs, or that has ended and was not forgotten.
    ///
    /// # Errors
    /// `not-found` / `invocation`; `lost` / `corrupt` where what was kept of it cannot be read.
    pub async fn graph(&self, job: JobId) -> Result<Arc<GraphView>, Error> {
        let found = self.ask(|reply| Request::Graph { job, reply }).await?;
        self.graph_found(found).await
    }

    /// How a partition was made. Of a task whose job ended long ago, or before the owner's last restart, `job` has to
    /// be told; of the others it is known.
    ///
    /// # Errors
    /// `not-found` / `partition`: it was not made, or its job is neither known nor told; those of [`Owner::graph`].
    pub async fn lineage(&self, partition: PartitionId, job: Option<JobId>) -> Result<LineageView, Error> {
        match self.ask(|reply| Request::Lineage { partition, job, reply }).await? {
            LineageFound::Here(view) => Ok(*view),
            LineageFound::Past(found) => {
                let graph = self.graph_found(found).await?;
                let none = || {
                    let why =
                        format!("the job has no partition {partition}, or too many tasks to remember it");
                    Error::not_found(Code::Partition, why)
                };
                lineage::of(&graph, partition).ok_or_else(none)
            }
        }
    }

    async fn graph_found(&self, found: GraphFound) -> Result<Arc<GraphView>, Error> {
        let (job, end) = match found {
            GraphFound::Here(graph) => return Ok(graph),
            GraphFound::Stored(job, end) => (job, end),
        };
        if !end.truncated {
            return Ok(Arc::new(end)); // One task: there is no graph but this.
        }
        match self.shared.store.graph(job).await? {
            Some(stored) => Ok(Arc::new(GraphView::decode(&stored)?)),
            None => Ok(Arc::new(end)),
        }
    }
}

impl Loop {
    /// The tasks of a job.
    pub fn graph(&self, id: JobId) -> Result<GraphFound, Error> {
        if let Some(ended) = self.state.job(id).filter(|job| job.end.is_some()) {
            let truncated = ended.end.as_deref().is_some_and(|end| end.tasks > 1);
            return Ok(GraphFound::Stored(id, GraphView { tasks: vec![ended_root(ended)], truncated }));
        }
        if let Some(graph) = self.scheduler.graph(id, GRAPH_TASKS_MAX) {
            return Ok(GraphFound::Here(Arc::new(graph)));
        }
        let live = self.live.get(&id).ok_or_else(|| no_job(id))?;
        if let Some(graph) = &live.graph {
            return Ok(GraphFound::Here(Arc::clone(graph)));
        }
        let tasks = vec![root_task(id, "", "waiting", live.attempts)];
        Ok(GraphFound::Here(Arc::new(GraphView { tasks, truncated: false })))
    }

    /// How a partition was made, of this job if one is told.
    pub fn lineage(&self, id: PartitionId, job: Option<JobId>) -> Result<LineageFound, Error> {
        if let Some(lineage) = self.scheduler.lineage(id) {
            return Ok(LineageFound::Here(Box::new(lineage)));
        }
        let of_maker = || self.state.job_of_maker(id.task).map(|job| job.accepted.job);
        let job = job.or_else(|| self.history.job_of(id.task)).or_else(of_maker);
        let none = || {
            let why = format!(
                "partition {id} is not of a job that runs or ended lately: add `?job=` with its job's id \
                 (`--job`), which is known for 24 hours"
            );
            Error::not_found(Code::Partition, why)
        };
        self.graph(job.ok_or_else(none)?).map(LineageFound::Past)
    }
}

fn ended_root(job: &Job) -> GraphTask {
    let accepted = &job.accepted;
    let end = job.end.as_deref();
    let (state, outputs) = match end.map(|End { result, .. }| result) {
        Some(Ok(outputs)) => ("committed", outputs.as_slice()),
        Some(Err(_)) => ("failed", &[][..]),
        None => ("waiting", &[][..]),
    };
    GraphTask {
        version: Some(accepted.version),
        outputs: (0..).zip(outputs).map(|(n, output)| output_view(n, output)).collect(),
        output_bytes: outputs.iter().map(Output::bytes).sum(),
        runs: Vec::new(),
        ended_at_ms: end.map(|end| end.at_ms),
        ..root_task(accepted.job, &accepted.entry, state, job.attempts())
    }
}

fn output_view(output: u32, made: &Output) -> OutputView {
    let (crc32c, refers) = match made {
        Output::Inline(payload) => (Some(crc32c::crc32c(&payload.bytes)), payload.refs.clone()),
        Output::Stored(stored) => (Some(stored.meta.crc32c), stored.refs.clone()),
        Output::Alias(value) => (None, value.refers().collect()),
    };
    OutputView { output, bytes: made.bytes(), crc32c, refers }
}

fn root_task(job: JobId, entry: &str, state: &str, attempts: u32) -> GraphTask {
    GraphTask {
        id: TaskId::root(job),
        parent: None,
        entry: entry.to_owned(),
        version: None,
        state: state.to_owned(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        attempts,
        executor: None,
        started_at_ms: None,
        ended_at_ms: None,
        output_bytes: 0,
        runs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_jobs_are_forgotten_first() {
        let job = |n: u32| JobId(uuid::Uuid::from_u128(u128::from(n)));
        let mut history = History::default();
        for n in 0..=300 {
            let tasks = (0..1000).map(|index| GraphTask {
                id: TaskId::root(job(n)).child(index),
                ..root_task(job(n), "", "committed", 1)
            });
            let graph = GraphView { tasks: tasks.collect(), truncated: false };
            history.remember(job(n), Progress::default(), &graph);
            history.remember(job(n), Progress::default(), &graph);
        }
        assert_eq!(history.tasks.len(), limit::HISTORY_TASKS_MAX);
        assert_eq!(history.job_of(TaskId::root(job(300)).child(7)), Some(job(300)));
        assert_eq!(history.job_of(TaskId::root(job(100)).child(7)), None);
        assert!(history.progress(job(100)).is_none() && history.progress(job(101)).is_some());
    }
}
