//! `cargo xtask test`: what tests need, then every test.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    build, foreign, packages,
    shell::{self, cargo, has, root, target_dir},
};

/// Functions that have tests of their own, which run natively on the SDK's host in the process.
const FUNCTIONS_TESTED: &[&str] = &[
    "wordcount",
    "thumbnail",
    "conformance",
    "gensort",
    "sort",
    "valsort",
    "groupby",
    "distinct-sketch",
    "sgd",
    "kernels",
    "pipeline-memory",
    "pipeline-balance",
    "matmul",
    "gpu-speed",
    "mlp-classify",
    "genimages",
    "classify",
    "inbox",
    "embed",
];

/// Runs every test, or those whose name contains the first argument.
pub fn run(filter: &[String]) -> Result<()> {
    packages::ensure_tested()?;
    let built = build::for_tests()?;
    let nextest = has("cargo", &["nextest", "--version"]);
    let tests: &[&str] = if nextest {
        &["nextest", "run", "--release", "--workspace"]
    } else {
        eprintln!("note: cargo-nextest is not installed; using cargo test (slower, same tests)");
        // Without a choice of targets, because only then are the examples built that tests start.
        &["test", "--release", "--workspace", "--no-fail-fast"]
    };
    let foreign = foreign::build()?;
    let moto = ensure_moto()?;
    let environment = [
        ("FANFOLD_BIN", &built.binary),
        ("FANFOLD_COMPONENTS", &built.components),
        ("FANFOLD_FOREIGN", &foreign),
        ("FANFOLD_MOTO", &moto),
    ];
    // An option is about the product's tests, and may name what the functions do not have.
    if !filter.iter().any(|word| word.starts_with('-')) {
        functions(nextest, filter)?;
    }
    shell::run(cargo(tests).args(filter).envs(environment))?;
    // `cargo test` has run them.
    if filter.is_empty() && nextest {
        shell::run(cargo(&["test", "--release", "--doc", "--workspace"]).envs(environment))?;
    }
    Ok(())
}

/// A server for S3, SQS and SNS that others wrote.
const MOTO: &str = "moto[server]==5.2.1";

/// Installs it into an environment of its own; returns its program. Without Python there is none, and the tests with it say that
/// they were skipped.
fn ensure_moto() -> Result<PathBuf> {
    let folder = target_dir().join("moto");
    let program = folder.join("bin/moto_server");
    if program.exists() {
        return Ok(program);
    }
    if !has("python3", &["-c", "import venv, ensurepip"]) {
        eprintln!("note: python3 with venv is not installed; queues and topics are not tested");
        return Ok(program);
    }
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    shell::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", MOTO]))?;
    Ok(program)
}

/// The functions' own tests. Unoptimised: the guests' release profile is made for small components, and takes minutes.
fn functions(nextest: bool, filter: &[String]) -> Result<()> {
    let mut test = if nextest {
        // A filter of the product's tests may name none of these.
        cargo(&["nextest", "run", "--no-tests", "pass"])
    } else {
        cargo(&["test", "--lib", "--bins", "--tests"])
    };
    for name in FUNCTIONS_TESTED {
        test.args(["--package", name]);
    }
    // Their folder has the guests' target as its default.
    let host = shell::output(Command::new("rustc").args(["--print", "host-tuple"]).current_dir(root()))?;
    test.args(["--target", host.trim()]).args(filter).current_dir(root().join("functions"));
    shell::run(test.env("CARGO_TARGET_DIR", target_dir().join("functions")))
}
