//! `cargo xtask lint`: formatting, clippy, documentation, dependency rules.

use anyhow::Result;

use crate::{
    build::{self, GUEST_TARGET},
    shell::{self, cargo, has, root, target_dir},
};

/// Runs every lint; the first that fails ends it.
pub fn run() -> Result<()> {
    for component in ["rustfmt", "clippy"] {
        if !has("cargo", &[if component == "rustfmt" { "fmt" } else { "clippy" }, "--version"]) {
            shell::run(
                std::process::Command::new("rustup")
                    .args(["component", "add", component])
                    .current_dir(root()),
            )?;
        }
    }
    let functions = root().join("functions");
    shell::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    shell::run(cargo(&["fmt", "--all", "--check"]).current_dir(&functions))?;
    shell::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    build::ensure_target(GUEST_TARGET)?;
    let guests = target_dir().join("functions");
    shell::run(
        cargo(&["clippy", "--release", "--target", GUEST_TARGET, "--", "-D", "warnings"])
            .current_dir(&functions)
            .env("CARGO_TARGET_DIR", guests),
    )?;
    // Its binary has the name of the guest SDK, and cargo writes both to one place.
    let doc = ["doc", "--no-deps", "--workspace", "--exclude", "fanfold-cli", "--document-private-items"];
    shell::run(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links"))?;
    if has("cargo", &["deny", "--version"]) {
        shell::run(&mut cargo(&["deny", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!(
            "note: cargo-deny is not installed; licence and source rules were not checked (tests check edges)"
        );
    }
    Ok(())
}
