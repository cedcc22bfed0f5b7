//! What people see of a job's tasks: its graph, and how a partition was made. Nothing here changes anything.
//!
//! Bounded by how many tasks, inputs and outputs are shown, since a shuffle has as many inputs as maps times merges.

use std::collections::{HashMap, HashSet};

use fanfold_protocol::{
    Digest, JobId, PartitionId, TaskId,
    rest::{GraphTask, GraphView, LineageView, OutputView, RunView},
    value::Output,
};

use crate::{
    Scheduler,
    job::Job,
    output::{Content, Was, summary},
    slab::TaskIx,
    task::{Part, Run, Task},
};

/// How deep lineage is shown.
const LINEAGE_DEPTH_MAX: usize = 16;
/// Nodes of one answer about lineage: inputs of inputs multiply.
const LINEAGE_NODES_MAX: usize = 10_000;
/// Inputs and outputs in one graph, over all its tasks: with names of tasks, about eight megabytes.
const GRAPH_EDGES_MAX: usize = 200_000;
/// The same of one task that is shown alone.
const TASK_EDGES_MAX: usize = 1000;

impl Scheduler {
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
        let mut edges = GRAPH_EDGES_MAX;
        let tasks: Vec<_> =
            found.iter().map(|&ix| self.graph_task(job, &self.tasks[ix], &ids, &mut edges)).collect();
        GraphView { tasks, truncated: (found.len() as u64) < job.tasks || edges == 0 }
    }

    /// A task as graphs show it; `edges`: how many more inputs and outputs may be shown.
    fn graph_task(&self, job: &Job, task: &Task, ids: &HashMap<u32, TaskId>, edges: &mut usize) -> GraphTask {
        let known = |at_ms: u64| (at_ms > 0).then_some(at_ms);
        let runs = task.run().and_then(|run| self.pool.executors.get(run.executor));
        GraphTask {
            id: task.id,
            parent: task.parent.map(|parent| self.tasks[parent].id),
            entry: job.stages.get(task.stage as usize).map(|(name, _)| name.clone()).unwrap_or_default(),
            version: job.versions.get(task.version as usize).copied(),
            state: task.state_name().to_owned(),
            inputs: self.graph_inputs(task, ids, edges),
            outputs: self.graph_outputs(task, edges),
            attempts: task.attempt,
            executor: runs.map(|executor| executor.id).or(task.trace.executor),
            started_at_ms: known(task.trace.begun_ms),
            ended_at_ms: known(task.trace.settled_ms),
            output_bytes: task.output_bytes,
            runs: self.graph_runs(task),
        }
    }

    /// Its attempts in the order they began.
    fn graph_runs(&self, task: &Task) -> Vec<RunView> {
        let running = task.run().into_iter().flat_map(|run| [Some(run), run.backup.as_deref()]);
        let running = running.flatten().map(|run| self.run_view(run));
        let mut runs: Vec<_> = task.trace.runs.iter().cloned().chain(running).collect();
        runs.sort_by_key(|run| run.attempt);
        runs
    }

    /// An attempt that runs.
    pub(crate) fn run_view(&self, run: &Run) -> RunView {
        let executor = self.pool.executors.get(run.executor).map(|executor| executor.id);
        let (attempt, started_at_ms) = (run.number, run.begun_ms);
        RunView { attempt, executor, started_at_ms, ended_at_ms: None, committed: false }
    }

    fn graph_inputs(&self, task: &Task, ids: &HashMap<u32, TaskId>, edges: &mut usize) -> Vec<PartitionId> {
        let mut seen = HashSet::new();
        let args = task.args.iter().filter(|part| self.tasks.get(part.task).is_some());
        let live = args.map(|&part| self.partition_id(part));
        let past = task.inputs.iter().filter(|_| task.spec.is_none());
        let past = past
            .filter_map(|(ordinal, output)| Some(PartitionId { task: *ids.get(ordinal)?, output: *output }));
        let inputs: Vec<_> = live.chain(past).filter(|id| seen.insert(*id)).take(*edges).collect();
        *edges -= inputs.len();
        inputs
    }

    fn graph_outputs(&self, task: &Task, edges: &mut usize) -> Vec<OutputView> {
        let mut outputs = Vec::new();
        for output in task.output_numbers() {
            let Some(slot) = task.slot(output).filter(|_| *edges > 0) else { break };
            let (bytes, crc32c) = match &slot.content {
                Content::Pending => continue,
                Content::Made(made) => summary(made),
                Content::Gone(gone) => gone.was.summary(),
            };
            let nested = slot.nested.iter().flatten().filter(|part| self.tasks.get(part.task).is_some());
            let refers: Vec<_> = nested.map(|&part| self.partition_id(part)).take(*edges - 1).collect();
            *edges -= 1 + refers.len();
            outputs.push(OutputView { output, bytes, crc32c, refers });
        }
        outputs
    }

    /// A task as the graph of its job shows it, with at most a thousand inputs and outputs.
    pub fn task(&self, id: TaskId) -> Option<GraphTask> {
        let task = self.tasks.get(*self.task_index.get(&id)?)?;
        Some(self.graph_task(&self.jobs[task.job], task, &HashMap::new(), &mut { TASK_EDGES_MAX }))
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
        let nested = self.slot(part).and_then(|slot| slot.nested.as_deref()).unwrap_or_default();
        let inputs = match depth.checked_sub(1) {
            Some(depth) => {
                let made_from = task.args.iter().chain(nested);
                made_from.filter_map(|&input| self.lineage_of(input, depth, budget)).collect()
            }
            None => Vec::new(),
        };
        let mut edges = GRAPH_EDGES_MAX.min(*budget);
        let job = &self.jobs[task.job];
        Some(LineageView {
            partition: self.partition_id(part).to_string(),
            task: self.graph_task(job, task, &HashMap::new(), &mut edges),
            version: job.versions.get(task.version as usize).copied().unwrap_or(Digest([0; 32])),
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
