//! `fanfold part`: partitions and how they were made.

use clap::Subcommand;
use fanfold_client::{Client, rest::LineageView};
use fanfold_protocol::PartitionId;

use crate::{commands::save::Target, failure::Failure, output::Output, units};

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
    },
}

/// Runs it.
pub async fn run(client: &Client, command: Command, out: Output) -> Result<(), Failure> {
    match command {
        Command::Get { id, target } => {
            let body = client.partition(id).await?;
            target.save(&id.to_string(), body, None, out).await.map(drop)
        }
        Command::Lineage { id } => out.print(&client.lineage(id).await?, |view| {
            let mut text = String::new();
            tree(view, 0, &mut text);
            text
        }),
    }
}

fn tree(view: &LineageView, depth: usize, text: &mut String) {
    let entry = if view.task.entry.is_empty() { "main" } else { &view.task.entry };
    text.push_str(&format!(
        "{}{}  {entry}, {}, attempt {}, {}\n",
        "  ".repeat(depth),
        view.partition,
        units::bytes(view.task.output_bytes),
        view.attempt,
        view.task.state,
    ));
    for input in &view.inputs {
        tree(input, depth + 1, text);
    }
}
