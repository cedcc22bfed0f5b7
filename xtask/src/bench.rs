//! `cargo xtask bench NAME`: builds, then hands over to the `bench` crate.

use std::process::Command;

use anyhow::Result;

use crate::{build, shell};

/// Runs the named benchmark with the arguments after its name.
pub fn run(args: &[String]) -> Result<()> {
    let built = build::all()?;
    let mut bench = Command::new(built.bench);
    bench.args(args).env("FANFOLD_BIN", built.binary).env("FANFOLD_COMPONENTS", built.components);
    shell::run(bench.current_dir(shell::root()))
}
