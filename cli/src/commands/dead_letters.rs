//! `fanfold dead-letters`: invocations that were given up, and another chance for them.

use clap::Subcommand;
use fanfold_client::{Client, rest::DeadLetterView};
use fanfold_protocol::JobId;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use crate::{
    failure::Failure,
    output::Output,
    table::{Table, left, right},
    units,
};

/// `dead-letters`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List them, newest first
    Ls {
        /// At most this many
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: usize,
    },
    /// Run them again, as new invocations of the same versions
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Retry {
        /// Which
        #[arg(group = "which")]
        ids: Vec<JobId>,
        /// All that were not retried yet
        #[arg(long, group = "which")]
        all: bool,
    },
}

/// Runs it.
pub async fn run(client: &Client, command: Command, out: Output) -> Result<(), Failure> {
    match command {
        Command::Ls { limit } => {
            let letters: Vec<DeadLetterView> = client.dead_letters().take(limit).try_collect().await?;
            out.print(&letters, |letters| match letters.is_empty() {
                true => "no dead letters".to_owned(),
                false => listing(letters).to_string(),
            })
        }
        Command::Retry { ids, all } => {
            let ids = if all { open(client).await? } else { ids };
            retry(client, &ids, out).await
        }
    }
}

async fn open(client: &Client) -> Result<Vec<JobId>, Failure> {
    let letters: Vec<DeadLetterView> = client.dead_letters().try_collect().await?;
    Ok(letters.iter().filter(|letter| letter.retried_as.is_none()).map(|letter| letter.id).collect())
}

async fn retry(client: &Client, ids: &[JobId], out: Output) -> Result<(), Failure> {
    let mut retried = Vec::new();
    for id in ids {
        let again = client.retry_dead_letter(*id).await.map_err(|e| Failure::from(e).during(id))?;
        retried.push(json!({ "id": id, "retried_as": again.id() }));
        if !out.json {
            out.text(format_args!("{id} runs again as {}", again.id()))?;
        }
    }
    if out.json { out.json(&retried) } else { Ok(()) }
}

fn listing(letters: &[DeadLetterView]) -> Table {
    let columns =
        [left("ID"), left("FUNCTION"), left("GIVEN UP"), right("ATTEMPTS"), left("RETRIED"), left("ERROR")];
    let mut table = Table::new(columns);
    for letter in letters {
        table.row([
            letter.id.to_string(),
            format!("{}:{}", letter.function, letter.version.short()),
            units::ago(letter.failed_at_ms),
            letter.attempts.to_string(),
            if letter.retried_as.is_some() { "yes" } else { "no" }.to_owned(),
            letter.error.to_string(),
        ]);
    }
    table
}
