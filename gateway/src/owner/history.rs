//! Task graphs of jobs that ended lately: the scheduler forgets a job when it ends, and gives its graph with the end.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use fanfold_protocol::{
    Code, Error, JobId, PartitionId, TaskId, limit,
    rest::{GraphTask, GraphView, LineageView, Progress},
};

use super::{
    run::Loop,
    state::{End, Job},
    views::no_job,
};

/// Tasks of one graph that are shown.
const GRAPH_TASKS_MAX: usize = 10_000;

/// Past graphs, the oldest first to go.
#[derive(Default)]
pub(super) struct History {
    jobs: HashMap<JobId, Arc<Past>>,
    order: VecDeque<JobId>,
}

/// What is remembered of a job beside its end.
pub(super) struct Past {
    pub graph: GraphView,
    pub progress: Progress,
}

impl History {
    /// Remembers the graph of a recorded job that ended. Of a job of one task, its end says as much.
    pub fn remember(&mut self, job: JobId, progress: Progress, graph: GraphView) {
        if progress.tasks <= 1 {
            return;
        }
        let past = Past { graph, progress };
        if self.jobs.insert(job, Arc::new(past)).is_none() {
            self.order.push_back(job);
        }
        if self.order.len() > limit::GRAPHS_KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.jobs.remove(&oldest);
        }
    }

    pub fn get(&self, job: JobId) -> Option<&Arc<Past>> {
        self.jobs.get(&job)
    }
}

impl Loop {
    /// The tasks of a job.
    pub fn graph(&self, id: JobId) -> Result<GraphView, Error> {
        let ended = self.state.job(id).filter(|job| job.end.is_some());
        if ended.is_none()
            && let Some(graph) = self.scheduler.graph(id, GRAPH_TASKS_MAX)
        {
            return Ok(graph);
        }
        let root = match (ended, self.live.get(&id)) {
            (Some(job), _) => ended_root(job),
            (None, Some(live)) => root_task(id, "", "waiting", live.attempts),
            (None, None) => return Err(no_job(id)),
        };
        let Some(past) = self.history.get(id) else {
            return Ok(GraphView { truncated: ended_tasks(ended) > 1, tasks: vec![root] });
        };
        Ok(past.graph.clone())
    }

    /// How a partition was made.
    pub fn lineage(&self, id: PartitionId) -> Result<LineageView, Error> {
        if let Some(lineage) = self.scheduler.lineage(id) {
            return Ok(lineage);
        }
        let none = || {
            Error::not_found(
                Code::Partition,
                format!("partition {id} is not known, or was freed with its job"),
            )
        };
        let job = self
            .state
            .job_of_maker(id.task)
            .filter(|job| TaskId::root(job.accepted.job) == id.task)
            .ok_or_else(none)?;
        Ok(LineageView {
            partition: id.to_string(),
            task: ended_root(job),
            version: job.accepted.version,
            attempt: job.attempts(),
            inputs: Vec::new(),
        })
    }
}

fn ended_tasks(job: Option<&Arc<Job>>) -> u64 {
    job.and_then(|job| job.end.as_deref()).map_or(0, |end| end.tasks)
}

fn ended_root(job: &Job) -> GraphTask {
    let accepted = &job.accepted;
    let result = job.end.as_deref().map(|End { result, .. }| result);
    let state = match result {
        Some(Ok(_)) => "committed",
        Some(Err(_)) => "failed",
        None => "waiting",
    };
    let output_bytes = match result {
        Some(Ok(outputs)) => outputs.iter().map(|output| output.bytes()).sum(),
        _ => 0,
    };
    GraphTask { output_bytes, ..root_task(accepted.job, &accepted.entry, state, job.attempts()) }
}

fn root_task(job: JobId, entry: &str, state: &str, attempts: u32) -> GraphTask {
    GraphTask {
        id: TaskId::root(job),
        parent: None,
        entry: entry.to_owned(),
        state: state.to_owned(),
        inputs: Vec::new(),
        attempts,
        output_bytes: 0,
    }
}
