//! Components that others wrote, for `wasmtime serve` and `wasmtime run`: published crates, built unmodified, for the tests
//! that deploy them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    build,
    shell::{cargo, output, run, target_dir},
};

/// An HTTP server for WASI 0.2: the example of the crate `wstd`.
const SERVER: (&str, &str, &str) = ("wstd", "0.6.8", "http_server");
/// Programs, each with the target it is built for: WASI 0.2 and preview 1.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("pulldown-cmark", "0.13.0", "wasm32-wasip2"), ("hexyl", "0.17.0", "wasm32-wasip1")];

/// Builds what is not there yet; returns the folder with the components.
pub fn build() -> Result<PathBuf> {
    let folder = target_dir().join("foreign");
    std::fs::create_dir_all(&folder)?;
    let (name, version, example) = SERVER;
    once(&folder, example, || server(&folder, name, version, example))?;
    for (name, version, target) in PROGRAMS {
        once(&folder, name, || program(&folder, name, version, target))?;
    }
    Ok(folder)
}

/// Runs `make` unless its component is there, and copies what it made to its place.
fn once(folder: &Path, name: &str, make: impl Fn() -> Result<PathBuf>) -> Result<()> {
    let wanted = folder.join(format!("{name}.wasm"));
    if !wanted.exists() {
        std::fs::copy(make()?, wanted).with_context(|| format!("{name} built no component"))?;
    }
    Ok(())
}

fn server(folder: &Path, name: &str, version: &str, example: &str) -> Result<PathBuf> {
    let source = fetched(folder, name, version)?;
    let target = folder.join("build");
    let manifest = source.to_string_lossy();
    let args =
        ["build", "--release", "--target", build::GUEST_TARGET, "--example", example, "--manifest-path"];
    run(cargo(&args).arg(&*manifest).current_dir(folder).env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join(build::GUEST_TARGET).join(format!("release/examples/{example}.wasm")))
}

/// The manifest of a published crate, as cargo unpacked it.
fn fetched(folder: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let project = folder.join("fetch");
    std::fs::create_dir_all(project.join("src"))?;
    std::fs::write(project.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    std::fs::write(project.join("Cargo.toml"), manifest)?;
    let metadata = output(cargo(&["metadata", "--format-version", "1"]).current_dir(&project))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == name && package["version"] == version);
    let path = package.and_then(|package| package["manifest_path"].as_str());
    Ok(path.with_context(|| format!("{name} {version} was not fetched"))?.into())
}

fn program(folder: &Path, name: &str, version: &str, target: &str) -> Result<PathBuf> {
    build::ensure_target(target)?;
    let root = folder.join("installed").join(target);
    let args = [
        "install",
        "--quiet",
        "--locked",
        "--force",
        "--target",
        target,
        "--version",
        version,
        name,
        "--root",
    ];
    run(cargo(&args).arg(&root).current_dir(folder).env("CARGO_TARGET_DIR", folder.join("build")))?;
    Ok(root.join("bin").join(format!("{name}.wasm")))
}
