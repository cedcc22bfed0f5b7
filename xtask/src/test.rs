//! `cargo xtask test`: what tests need, then every test.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    build, foreign,
    shell::{self, cargo, has},
};

/// Runs every test, or those whose name contains the first argument.
pub fn run(filter: &[String]) -> Result<()> {
    ensure_redis()?;
    let built = build::for_tests()?;
    let tests: &[&str] = if has("cargo", &["nextest", "--version"]) {
        &["nextest", "run", "--release", "--workspace"]
    } else {
        eprintln!("note: cargo-nextest is not installed; using cargo test (slower, same tests)");
        &["test", "--release", "--workspace", "--lib", "--bins", "--tests"]
    };
    let foreign = foreign::build()?;
    let environment = [
        ("FANFOLD_BIN", &built.binary),
        ("FANFOLD_COMPONENTS", &built.components),
        ("FANFOLD_FOREIGN", &foreign),
    ];
    shell::run(cargo(tests).args(filter).envs(environment))?;
    if filter.is_empty() {
        shell::run(cargo(&["test", "--release", "--doc", "--workspace"]).envs(environment))?;
    }
    Ok(())
}

/// Tests start Redis servers of their own: only the program has to be there.
fn ensure_redis() -> Result<()> {
    if has("redis-server", &["--version"]) {
        return Ok(());
    }
    let root = shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || !has("apt-get", &["--version"]) {
        bail!("redis-server is missing: install it (Debian and Ubuntu: `sudo apt-get install redis-server`)");
    }
    shell::run(Command::new("apt-get").args(["update", "-q"]))?;
    // The package would start a service of its own; not in run level 1.
    shell::run(
        Command::new("apt-get")
            .args(["install", "-q", "-y", "--no-install-recommends", "redis-server"])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1"),
    )
}
