//! The `fanfold` binary: every role of the platform and every command of its users.
//!
//! This is the composition root: the only place that knows all parts. The steps are always the same: parse, build
//! what the command needs, run it, tell how it ended.

mod args;
mod cluster;
mod commands;
mod doctor;
mod failure;
mod hints;
mod new;
mod output;
mod progress;
mod runtime;
mod table;
mod units;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{
    args::{Cli, Command},
    output::Output,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Cli { command, url, json } = match Cli::try_parse_from(commands::expand(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return args::refuse(&error),
    };
    let out = Output { json };
    if let Err(error) = fanfold_store::failpoint::arm() {
        return failure::Failure::platform(&error).report(json);
    }
    let ended = match command {
        Command::Up(args) => up::run(&args, out),
        Command::Gateway(args) => cluster::gateway(&args, out),
        Command::Executor(args) => cluster::executor(&args, out),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Infra(command) => runtime::client(commands::infra::run(command, out)),
        Command::New(args) => new::run(&args, out),
        Command::CompileComponent => return fanfold_executor::compile_child(),
        Command::GpuWorker => return fanfold_executor::gpu_worker(),
        Command::Client(command) => runtime::client(commands::run(command, url.as_deref(), out)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}
