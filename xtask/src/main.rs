//! Every command a contributor needs, and what CI runs: `cargo xtask demo | test | bench | lint | services | build`.
//!
//! Installs what is missing (through rustup, and apt where it runs as root on Debian) or says how to.

mod bench;
mod build;
mod demo;
mod foreign;
mod lint;
mod native;
mod packages;
mod platform;
mod services;
mod shell;
mod test;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

  demo            build, start a platform, deploy the functions, call them, count the words of the dependencies' sources
  test [FILTER]   install what tests need, build, run every test
  bench NAME      run a benchmark (JSON lines on stdout): hello, cold, density, tasks, wordcount, remote-call, pass, recover,
                  groupby, streaming, epochs, kernels, memory, sort, strategies, events, gpu, all of these with `all`; or peers
  lint            formatting, clippy, documentation and dependency rules
  services [stop] an S3 server and a Redis to try a cluster with; prints what to export
  build           build the `fanfold` binary and the functions";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let result = match args.first().map(String::as_str) {
        Some("demo") => demo::run(),
        Some("test") => test::run(rest),
        Some("bench") => bench::run(rest),
        Some("lint") => lint::run(),
        Some("services") => services::run(rest),
        Some("build") => build::all().map(|_| ()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
