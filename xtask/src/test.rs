//! `cargo xtask test`: what tests need, then every test.

use anyhow::Result;

use crate::{
    build, foreign,
    shell::{self, cargo, has},
};

/// Runs every test, or those whose name contains the first argument.
pub fn run(filter: &[String]) -> Result<()> {
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
