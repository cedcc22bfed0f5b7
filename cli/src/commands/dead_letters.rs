//! `fanfold dead-letters`: invocations that were given up, why, and another chance for them or their end.

use std::path::PathBuf;

use clap::Subcommand;
use fanfold_client::{Client, rest::DeadLetterView};
use fanfold_protocol::JobId;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use super::dead_letter_show as show;
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
    /// Show one: why each attempt failed, its input, what it logged last
    Show {
        /// Which
        id: JobId,
        /// Write its whole input to this file
        #[arg(long)]
        input: Option<PathBuf>,
    },
    /// Remove them before their two weeks are over
    #[command(group = clap::ArgGroup::new("gone").required(true))]
    Rm {
        /// Which
        #[arg(group = "gone")]
        ids: Vec<JobId>,
        /// All that were retried
        #[arg(long, group = "gone")]
        retried: bool,
        /// All
        #[arg(long, group = "gone")]
        all: bool,
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
        Command::Show { id, input } => show::run(client, id, input.as_deref(), out).await,
        Command::Rm { ids, retried, all } => {
            let chosen = |letter: &DeadLetterView| all || (retried && letter.retried_as.is_some());
            let ids = if all || retried { which(client, chosen).await? } else { ids };
            remove(client, &ids, out).await
        }
        Command::Retry { ids, all } => {
            let ids = if all { which(client, |letter| letter.retried_as.is_none()).await? } else { ids };
            retry(client, &ids, out).await
        }
    }
}

async fn which(client: &Client, chosen: impl Fn(&DeadLetterView) -> bool) -> Result<Vec<JobId>, Failure> {
    let letters: Vec<DeadLetterView> = client.dead_letters().try_collect().await?;
    Ok(letters.iter().filter(|letter| chosen(letter)).map(|letter| letter.id).collect())
}

async fn remove(client: &Client, ids: &[JobId], out: Output) -> Result<(), Failure> {
    for id in ids {
        client.remove_dead_letter(*id).await.map_err(|e| Failure::from(e).during(id))?;
        if !out.json {
            out.text(format_args!("removed {id}"))?;
        }
    }
    if out.json { out.json(&json!({ "removed": ids })) } else { Ok(()) }
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
