//! Building a component with cargo.

use std::{
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::failure::Failure;

/// The target whose linker emits components.
pub const TARGET: &str = "wasm32-wasip2";

/// The part of cargo's messages that is of interest here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Builds the package in `dir`; cargo's own messages go to stderr. Answers where the component is, as cargo says,
/// since target directories move.
pub fn build(dir: &Path) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"]);
    let spawned = cargo.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut cargo = spawned.map_err(|e| {
        Failure::new(
            format!("cannot run cargo: {e}"),
            "install Rust from https://rustup.rs, or deploy with --component",
        )
    })?;
    let manifest = dir.join("Cargo.toml").canonicalize().unwrap_or_default();
    let component =
        cargo.stdout.take().and_then(|messages| last_component(BufReader::new(messages), &manifest));
    let status =
        cargo.wait().map_err(|e| Failure::new(format!("cargo cannot be waited for: {e}"), "try again"))?;
    if !status.success() {
        let fix =
            format!("mend what cargo says above; a missing target comes with `rustup target add {TARGET}`");
        return Err(Failure::new("cargo could not build the component", fix));
    }
    component.ok_or_else(|| {
        Failure::new(
            "cargo built no component",
            "set crate-type = [\"cdylib\"] in the [lib] section of Cargo.toml",
        )
    })
}

fn last_component(messages: impl std::io::BufRead, manifest: &Path) -> Option<PathBuf> {
    let parsed =
        messages.lines().map_while(Result::ok).filter_map(|l| serde_json::from_str::<Message>(&l).ok());
    let ours = parsed.filter(|m| m.reason == "compiler-artifact" && m.manifest_path == manifest);
    let is_wasm = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "wasm");
    // All lines are read, so that cargo never waits for us.
    ours.flat_map(|message| message.filenames).filter(is_wasm).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_own_component_is_found() {
        let messages = r#"
{"reason":"compiler-artifact","manifest_path":"/x/dep/Cargo.toml","filenames":["/t/dep.wasm"]}
{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","filenames":["/t/a_b.wasm","/t/a_b.d"]}
not json
{"reason":"build-finished","success":true}"#;
        let found = last_component(messages.as_bytes(), Path::new("/p/Cargo.toml"));
        assert_eq!(found.as_deref(), Some(Path::new("/t/a_b.wasm")));
    }
}
