//! `cargo xtask bench NAME`: builds, then hands over to the `bench` crate; for `peers` with Java and the packages of Python they need.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{build, packages, shell};

/// Runs the named benchmark with the arguments after its name.
pub fn run(args: &[String]) -> Result<()> {
    let built = build::all()?;
    let mut bench = Command::new(built.bench);
    bench.args(args).env("FANFOLD_BIN", built.binary).env("FANFOLD_COMPONENTS", built.components);
    if args.first().is_some_and(|name| name == "peers") {
        packages::ensure_java()?;
        let programs = shell::root().join("bench/peers");
        bench.env("FANFOLD_PEERS_PYTHON", python(&programs)?).env("FANFOLD_PEERS", programs);
    }
    shell::run(bench.current_dir(shell::root()))
}

/// A Python with the packages that `requirements.txt` names, in an environment of its own below the target folder. It is made
/// once, and again when other packages are wanted.
fn python(programs: &Path) -> Result<PathBuf> {
    let environment = shell::target_dir().join("peers");
    let (python, installed) = (environment.join("bin/python"), environment.join("installed.txt"));
    let wanted = programs.join("requirements.txt");
    if fs::read(&installed).ok() != Some(fs::read(&wanted)?) {
        shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        shell::run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(&wanted))?;
        fs::copy(&wanted, &installed)?;
    }
    Ok(python)
}
