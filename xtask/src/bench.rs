//! `cargo xtask bench NAME`: builds, then hands over to the `bench` crate.

use anyhow::Result;

use crate::{
    build,
    shell::{self, cargo},
};

/// Runs the named benchmark with the arguments after its name.
pub fn run(args: &[String]) -> Result<()> {
    let built = build::all()?;
    shell::run(
        cargo(&["run", "--release", "--quiet", "--package", "fanfold-bench", "--"])
            .args(args)
            .env("FANFOLD_BIN", built.binary)
            .env("FANFOLD_COMPONENTS", built.components),
    )
}
