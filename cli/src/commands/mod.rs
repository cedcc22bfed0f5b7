//! The commands that ask a gateway, one module per noun; and `infra`, which asks none.

mod alias;
mod cargo;
mod dead_letter_show;
mod dead_letters;
mod deploy;
mod functions;
pub mod infra;
mod input;
mod invoke;
mod job;
mod job_graph;
mod job_input;
mod job_status;
mod job_view;
mod job_watch;
mod logs;
mod object;
mod object_put;
mod object_watch;
mod part;
mod save;
mod timeline;
mod top;
mod trigger;
mod trigger_add;

use clap::Subcommand;
use fanfold_client::Client;

pub use job_input::expand;
pub use job_view::entry;

use crate::{failure::Failure, output::Output};

/// Commands that ask a gateway.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Deploy a function from its project or component
    Deploy(deploy::Args),
    /// List functions
    Ls,
    /// Show a function's versions and aliases
    Describe(functions::Describe),
    /// Call a function
    Invoke(invoke::Args),
    /// Show what an invocation wrote
    Logs(logs::Args),
    /// Point an alias at one or more versions
    Alias(alias::Args),
    /// Point `latest` at the version before
    Rollback(functions::Name),
    /// Remove a function with all its versions
    Rm(functions::Name),
    /// Batch jobs
    #[command(subcommand)]
    Job(job::Command),
    /// Partitions: what tasks made
    #[command(subcommand)]
    Part(part::Command),
    /// Objects: data in and out
    #[command(subcommand)]
    Object(object::Command),
    /// Triggers: what calls functions when objects arrive, at times, and at events
    #[command(subcommand)]
    Trigger(trigger::Command),
    /// Watch executors, queues and what waits
    Top(top::Args),
    /// Invocations that were given up
    #[command(subcommand)]
    DeadLetters(dead_letters::Command),
}

/// Runs one of them.
pub async fn run(command: ClientCommand, url: Option<&str>, out: Output) -> Result<(), Failure> {
    let client = connect(url)?;
    match command {
        ClientCommand::Deploy(args) => deploy::run(&client, &args, out).await,
        ClientCommand::Ls => functions::list(&client, out).await,
        ClientCommand::Describe(args) => functions::describe(&client, &args, out).await,
        ClientCommand::Invoke(args) => invoke::run(&client, args, out).await,
        ClientCommand::Logs(args) => logs::run(&client, &args, out).await,
        ClientCommand::Alias(args) => alias::run(&client, &args, out).await,
        ClientCommand::Rollback(args) => functions::roll_back(&client, &args, out).await,
        ClientCommand::Rm(args) => functions::remove(&client, &args, out).await,
        ClientCommand::Job(command) => job::run(&client, command, out).await,
        ClientCommand::Part(command) => part::run(&client, command, out).await,
        ClientCommand::Object(command) => object::run(&client, command, out).await,
        ClientCommand::Trigger(command) => trigger::run(&client, command, out).await,
        ClientCommand::Top(args) => top::run(&client, &args, out).await,
        ClientCommand::DeadLetters(command) => dead_letters::run(&client, command, out).await,
    }
}

fn connect(url: Option<&str>) -> Result<Client, Failure> {
    let token = std::env::var("FANFOLD_TOKEN").ok().filter(|token| !token.is_empty());
    let client = match url {
        Some(url) => Client::new(url, token.as_deref()),
        None => Client::from_env(),
    };
    client.map_err(|e| Failure::usage(e.to_string(), "set FANFOLD_URL and FANFOLD_TOKEN to the gateway's"))
}
