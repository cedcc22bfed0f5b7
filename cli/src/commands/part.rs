//! `fanfold part`: partitions and how they were made.

use clap::Subcommand;
use fanfold_client::{Client, rest::LineageView};
use fanfold_protocol::{JobId, PartitionId};

use crate::{
    commands::{job_graph, job_view, save::Target},
    failure::Failure,
    output::Output,
    table::printable,
    units,
};

/// `part`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read a partition
    Get {
        /// The partition: TASK.OUTPUT
        id: PartitionId,
        #[command(flatten)]
        target: Target,
    },
    /// Show what a partition was made from
    Lineage {
        /// The partition: TASK.OUTPUT
        id: PartitionId,
        /// Its job: needed once that has ended and is not among the last to do so
        #[arg(long)]
        job: Option<JobId>,
    },
}

/// Runs it.
pub async fn run(client: &Client, command: Command, out: Output) -> Result<(), Failure> {
    match command {
        Command::Get { id, target } => {
            let body = client.partition(id).await?;
            target.save(&id.to_string(), body, None, out).await.map(drop)
        }
        Command::Lineage { id, job } => out.print(&client.lineage(id, job).await?, |view| {
            let mut text = String::new();
            tree(view, 0, &mut text);
            text
        }),
    }
}

fn tree(view: &LineageView, depth: usize, text: &mut String) {
    let task = &view.task;
    let mut parts = vec![printable(job_view::entry(&task.entry)), task.state.clone()];
    let made = view.partition.parse().ok().and_then(|id: PartitionId| task.output(id.output));
    if let Some(made) = made {
        parts.push(units::bytes(made.bytes));
        parts.extend(made.crc32c.map(|crc32c| format!("crc32c {crc32c:08x}")));
    }
    parts.push(format!("attempt {}", view.attempt));
    parts.extend(task.executor.map(|executor| format!("on {executor}")));
    parts.extend(job_graph::time(task).map(units::duration));
    text.push_str(&format!("{}{}  {}\n", "  ".repeat(depth), view.partition, parts.join(", ")));
    for input in &view.inputs {
        tree(input, depth + 1, text);
    }
}
