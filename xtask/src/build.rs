//! Building the product and the guests, installing the wasm target where it is missing.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

use crate::shell::{cargo, has, output, root, run, target_dir};

/// The target of every guest.
pub const GUEST_TARGET: &str = "wasm32-wasip2";

/// Where the parts are after a build.
pub struct Built {
    /// The `fanfold` binary.
    pub binary: PathBuf,
    /// The benchmarks' binary.
    pub bench: PathBuf,
    /// The folder with the functions' components.
    pub components: PathBuf,
}

/// Builds the product, the functions, the benchmarks and the S3 server that clusters are tried with, in one go (see
/// [`for_tests`]); or takes what `FANFOLD_BIN` and `FANFOLD_COMPONENTS` name, to try an installed platform.
pub fn all() -> Result<Built> {
    if let (Some(binary), Some(components)) = (env("FANFOLD_BIN"), env("FANFOLD_COMPONENTS")) {
        return Ok(Built { binary, components, ..built() });
    }
    functions()?;
    run(&mut cargo(&["build", "--release", "--workspace", "--bins"]))?;
    Ok(built())
}

/// Builds the product and every test, in one go: cargo chooses features for all that it builds together, so a separate build
/// of the binary would compile most dependencies a second time.
pub fn for_tests() -> Result<Built> {
    functions()?;
    run(&mut cargo(&["build", "--release", "--workspace", "--bins", "--tests"]))?;
    Ok(built())
}

/// The places where builds put things.
fn built() -> Built {
    let target = target_dir();
    Built {
        binary: target.join("release/fanfold"),
        bench: target.join("release/fanfold-bench"),
        components: target.join("functions").join(GUEST_TARGET).join("release"),
    }
}

fn env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Builds the functions to components.
pub fn functions() -> Result<()> {
    ensure_target(GUEST_TARGET)?;
    let mut build = cargo(&["build", "--release", "--target", GUEST_TARGET]);
    run(build.current_dir(root().join("functions")).env("CARGO_TARGET_DIR", target_dir().join("functions")))
}

/// Adds a target through rustup unless it is there.
pub fn ensure_target(target: &str) -> Result<()> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    if PathBuf::from(sysroot.trim()).join("lib/rustlib").join(target).exists() {
        return Ok(());
    }
    if !has("rustup", &["--version"]) {
        bail!("the target {target} is missing and rustup is not there to add it: install rustup");
    }
    run(Command::new("rustup").args(["target", "add", target]).current_dir(root()))
        .with_context(|| format!("could not add the target {target}"))
}
