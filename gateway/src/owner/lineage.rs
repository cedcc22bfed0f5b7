//! How a partition was made, out of the graph of a job.

use std::collections::HashMap;

use fanfold_protocol::{
    Digest, PartitionId, TaskId,
    rest::{GraphTask, GraphView, LineageView},
};

/// How deep lineage is shown.
const DEPTH_MAX: usize = 16;
/// Partitions in one answer: inputs of inputs multiply.
const NODES_MAX: usize = 10_000;

/// The lineage of `partition`, which is what its task's arguments and what it refers to were made from in turn. `None`
/// where the graph does not have its task, or the task did not make it.
pub(crate) fn of(graph: &GraphView, partition: PartitionId) -> Option<LineageView> {
    let tasks = graph.tasks.iter().map(|task| (task.id, task)).collect();
    let made = |task: &&GraphTask| task.output(partition.output).is_some();
    graph.tasks.iter().find(|task| task.id == partition.task).filter(made)?;
    Walk { tasks, left: NODES_MAX }.lineage(partition, DEPTH_MAX)
}

struct Walk<'a> {
    tasks: HashMap<TaskId, &'a GraphTask>,
    /// How many more may be shown.
    left: usize,
}

impl Walk<'_> {
    fn lineage(&mut self, partition: PartitionId, depth: usize) -> Option<LineageView> {
        self.left = self.left.checked_sub(1)?;
        let task = *self.tasks.get(&partition.task)?;
        let refers = task.output(partition.output).map(|output| output.refers.as_slice()).unwrap_or_default();
        let mut inputs = Vec::new();
        if let Some(depth) = depth.checked_sub(1) {
            let made_from = task.inputs.iter().chain(refers);
            inputs.extend(made_from.filter_map(|&input| self.lineage(input, depth)));
        }
        Some(LineageView {
            partition: partition.to_string(),
            version: task.version.unwrap_or(Digest([0; 32])),
            attempt: task.attempts,
            task: task.clone(),
            inputs,
        })
    }
}
