//! `fanfold doctor`: what this machine has and lacks, and how to fix each.

mod check;
mod directory;
mod gpu;
mod limits;
mod network;
mod toolchain;

use std::{net::SocketAddr, path::PathBuf};

use crate::{failure::Failure, output::Output, table::printable};

pub use check::{Check, Status};

/// `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that `up` shall use
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The address that `up` shall serve on
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
}

/// Runs every check; fails if one of them did.
pub fn run(args: &Args, out: Output) -> Result<(), Failure> {
    let checks: Vec<Check> = [
        toolchain::checks(),
        directory::checks(&args.dir),
        network::checks(args.listen),
        limits::checks(),
        gpu::checks(),
    ]
    .into_iter()
    .flatten()
    .collect();
    out.print(&checks, |checks| listing(checks))?;
    match checks.iter().filter(|check| check.status == Status::Fail).count() {
        0 => Ok(()),
        failed => Err(Failure::new(
            format!("{failed} of {} checks failed", checks.len()),
            "each line marked FAIL says how to fix it; run `fanfold doctor` again afterwards",
        )),
    }
}

fn listing(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, status, found, fix } in checks {
        let mark = match status {
            Status::Ok => "ok  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        text.push_str(&format!("{mark}  {name:<width$}  {}\n", printable(found)));
        if let Some(fix) = fix {
            text.push_str(&format!("      {:<width$}  fix: {fix}\n", ""));
        }
    }
    text
}
