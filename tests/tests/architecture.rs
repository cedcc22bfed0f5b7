//! The rules of ARCHITECTURE.md as tests: which crate may know which, and what every file owes its reader.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Direct dependencies among our crates that are allowed. Whatever is not here is forbidden.
const ALLOWED: &[(&str, &[&str])] = &[
    ("fanfold-protocol", &[]),
    ("fanfold-store", &["fanfold-protocol"]),
    ("fanfold-peer", &["fanfold-protocol"]),
    ("fanfold-scheduler", &["fanfold-protocol"]),
    ("fanfold-gpu", &["fanfold-protocol"]),
    ("fanfold-executor", &["fanfold-gpu", "fanfold-peer", "fanfold-protocol", "fanfold-store"]),
    ("fanfold-triggers", &["fanfold-protocol"]),
    (
        "fanfold-gateway",
        &["fanfold-peer", "fanfold-protocol", "fanfold-scheduler", "fanfold-store", "fanfold-triggers"],
    ),
    ("fanfold-client", &["fanfold-protocol"]),
    ("fanfold-macros", &[]),
    ("fanfold", &["fanfold-macros"]),
    ("fanfold-shuffle", &["fanfold"]),
    ("fanfold-pipeline", &["fanfold"]),
    (
        "fanfold-cli",
        &[
            "fanfold-protocol",
            "fanfold-gateway",
            "fanfold-executor",
            "fanfold-store",
            "fanfold-client",
            "fanfold-peer",
        ],
    ),
    ("fanfold-tests", &["fanfold-protocol", "fanfold-scheduler", "fanfold-store", "fanfold-client"]),
    ("fanfold-bench", &["fanfold-shuffle", "fanfold-store"]),
    ("xtask", &[]),
];

/// Foreign crates that only the named crates of ours may use directly.
const OWNED: &[(&str, &[&str])] = &[
    ("object_store", &["fanfold-store"]),
    ("redis", &["fanfold-store"]),
    ("aws-sdk-s3", &["fanfold-store"]),
    ("aws-sdk-sqs", &["fanfold-store"]),
    ("wasmtime", &["fanfold-executor"]),
    ("wasmtime-wasi", &["fanfold-executor"]),
    ("wasmtime-wasi-http", &["fanfold-executor"]),
    ("wgpu", &["fanfold-gpu"]),
    ("axum", &["fanfold-gateway"]),
    ("rustls", &["fanfold-peer"]),
    ("tokio-rustls", &["fanfold-peer"]),
    ("clap", &["fanfold-cli"]),
    ("wit-bindgen", &["fanfold"]),
];

/// Crates that stay pure: no runtime, no I/O.
const PURE: &[&str] = &["fanfold-protocol", "fanfold-scheduler", "fanfold-triggers"];
const IMPURE: &[&str] = &["tokio", "hyper", "reqwest", "object_store", "rand", "tracing"];

/// Lines after which a file wants to be split. STYLE aims at 400 before tests; this is where it becomes a failure.
const FILE_LINES_MAX: usize = 600;

fn root() -> PathBuf {
    fanfold_tests::platform::crate_folder().parent().expect("the repository").to_path_buf()
}

/// Normal dependencies of every crate of the workspace, by name.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let normal = |package: &Value| {
        let all = package["dependencies"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|d| d["kind"].is_null()).map(|d| text(&d["name"])).collect()
    };
    let packages = metadata["packages"].as_array().expect("packages");
    packages.iter().map(|package| (text(&package["name"]), normal(package))).collect()
}

#[test]
fn crates_know_only_what_they_may() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let ours: BTreeSet<_> = dependencies().into_keys().collect();
    let mut wrong = Vec::new();
    for (name, dependencies) in dependencies() {
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} is not in the table of allowed edges"));
            continue;
        };
        for other in dependencies.iter().filter(|other| ours.contains(*other)) {
            if !allowed.contains(&other.as_str()) {
                wrong.push(format!("{name} must not know {other}"));
            }
        }
        for (foreign, owners) in OWNED {
            if dependencies.contains(*foreign) && !owners.contains(&name.as_str()) {
                wrong.push(format!("{name} must not use {foreign}: it belongs to {owners:?}"));
            }
        }
        for impure in IMPURE.iter().filter(|_| PURE.contains(&name.as_str())) {
            if dependencies.contains(*impure) {
                wrong.push(format!("{name} is pure and must not use {impure}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_open_with_their_purpose_and_stay_short() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    assert!(files.len() > 50, "found only {} files: is this the repository?", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        let shown = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        if !text.lines().take(5).any(|line| line.starts_with("//!")) {
            wrong.push(format!("{shown}: does not open with `//!`"));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            wrong.push(format!("{shown}: {lines} lines; split it"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
