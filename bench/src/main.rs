//! Every performance claim of Fanfold, one command each: `cargo xtask bench NAME`.
//!
//! Prints JSON lines. Claims are ratios of things measured in one run on one machine; absolute figures say what that machine
//! did that day.

mod bare;
mod bound;
mod classify;
mod cluster;
mod cold;
mod density;
mod epochs;
mod events;
mod gpu;
mod groupby;
mod hello;
mod job;
mod kernels;
mod load;
mod pass;
mod peers;
mod pipeline;
mod plot;
mod recover;
mod remote_call;
mod report;
mod rest;
mod server;
mod sort;
mod strategies;
mod streaming;
mod tasks;
mod text;
mod wordcount;

use std::process::ExitCode;

use anyhow::{Result, bail};

const NAMES: [&str; 18] = [
    "hello",
    "cold",
    "density",
    "tasks",
    "wordcount",
    "remote-call",
    "pass",
    "recover",
    "groupby",
    "streaming",
    "epochs",
    "kernels",
    "memory",
    "classify",
    "sort",
    "strategies",
    "events",
    "gpu",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let name = args.first().map_or("", String::as_str);
    let rest = args.get(1..).unwrap_or_default();
    if name == bare::SUBCOMMAND {
        return finish(bare::serve());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(name, rest))))
}

fn finish(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(name: &str, args: &[String]) -> Result<()> {
    match name {
        "hello" => hello::run(args).await,
        "cold" => cold::run(args).await,
        "density" => density::run(args).await,
        "tasks" => tasks::run(args).await,
        "remote-call" => remote_call::run(args).await,
        "pass" => pass::run(args).await,
        "recover" => recover::run(args).await,
        "wordcount" => wordcount::run(args).await,
        "groupby" => groupby::run(args).await,
        "streaming" => streaming::run(args).await,
        "epochs" => epochs::run(args).await,
        "kernels" => kernels::run(args).await,
        "memory" => pipeline::run(args).await,
        "classify" => classify::run(args).await,
        "sort" => sort::run(args).await,
        "strategies" => strategies::run(args).await,
        "events" => events::run(args).await,
        "gpu" => gpu::run(args).await,
        // Not one of `all`: it wants packages of Python.
        "peers" => peers::run(args).await,
        "all" => {
            for name in NAMES {
                Box::pin(run(name, &[])).await?;
            }
            Ok(())
        }
        _ => bail!("usage: cargo xtask bench [{}|peers|all]", NAMES.join("|")),
    }
}
