//! What it takes to build functions in Rust. Functions in other languages need none of it, hence only warnings.

use std::{path::Path, process::Command};

use super::Check;

const TARGET: &str = "wasm32-wasip2";
/// The first release whose `wasm32-wasip2` has what the guest SDK uses.
const RUST_MIN: (u32, u32) = (1, 85);

pub fn checks() -> Vec<Check> {
    let Some(version) = output("rustc", &["--version"]) else {
        let fix = "to write functions in Rust, install it from https://rustup.rs";
        return vec![Check::warn("rust", "no rustc", fix)];
    };
    vec![rust(&version), target()]
}

fn rust(version: &str) -> Check {
    match parse_version(version) {
        Some(found) if found < RUST_MIN => Check::warn("rust", version, "rustup update stable"),
        _ if output("cargo", &["--version"]).is_none() => {
            Check::warn("rust", format!("{version}, no cargo"), "install cargo: https://rustup.rs")
        }
        _ => Check::ok("rust", version),
    }
}

/// `rustc 1.95.0 (abc 2026-01-01)` to `(1, 95)`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn target() -> Check {
    let sysroot = output("rustc", &["--print", "sysroot"]).unwrap_or_default();
    match Path::new(&sysroot).join("lib/rustlib").join(TARGET).is_dir() {
        true => Check::ok("wasm target", TARGET),
        false => Check::warn(
            "wasm target",
            format!("{TARGET} is not installed"),
            format!("rustup target add {TARGET}"),
        ),
    }
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("rustc 1.95.0 (x 2026)"), Some((1, 95)));
        assert!(parse_version("rustc 1.9.0").unwrap() < RUST_MIN);
        assert_eq!(parse_version("nonsense"), None);
    }
}
