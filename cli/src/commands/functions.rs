//! Functions: listing, describing, rolling back, removing.

use std::collections::BTreeMap;

use fanfold_client::{
    Client,
    rest::{FunctionView, VersionView},
};
use fanfold_protocol::Digest;
use serde_json::json;

use crate::{
    failure::Failure,
    output::Output,
    table::{Table, left, right},
    units,
};

/// A function.
#[derive(Debug, clap::Args)]
pub struct Name {
    /// The function
    name: String,
}

/// `describe`.
#[derive(Debug, clap::Args)]
pub struct Describe {
    /// The function
    name: String,
}

/// `ls`.
pub async fn list(client: &Client, out: Output) -> Result<(), Failure> {
    let functions = client.functions().await?;
    out.print(&functions, |functions| match functions.is_empty() {
        true => "no functions yet: `fanfold new NAME --template http`, then `fanfold deploy NAME`".to_owned(),
        false => listing(functions).to_string(),
    })
}

fn listing(functions: &[FunctionView]) -> Table {
    let columns =
        [left("NAME"), left("KIND"), left("LATEST"), right("VERSIONS"), right("SIZE"), left("DEPLOYED")];
    let mut table = Table::new(columns);
    for function in functions {
        let Some(latest) = latest(function) else { continue };
        table.row([
            function.name.to_string(),
            kind(latest),
            latest.version.short(),
            function.versions.len().to_string(),
            units::bytes(latest.component_bytes),
            units::ago(latest.deployed_at_ms),
        ]);
    }
    table
}

/// The version that `latest` mostly points to, or the newest.
fn latest(function: &FunctionView) -> Option<&VersionView> {
    let weights = function.aliases.get("latest");
    let version =
        weights.and_then(|w| w.iter().max_by_key(|(_, weight)| **weight)).map(|(version, _)| version);
    let named = function.versions.iter().find(|v| Some(&v.version) == version);
    named.or(function.versions.first())
}

/// `describe`.
pub async fn describe(client: &Client, args: &Describe, out: Output) -> Result<(), Failure> {
    let function = client.function(&args.name).await?;
    out.print(&function, description)
}

fn description(function: &FunctionView) -> String {
    let mut versions = Table::new([
        left("VERSION"),
        left("KIND"),
        right("SIZE"),
        right("COMPILED"),
        left("DEPLOYED"),
        left("ALIASES"),
    ]);
    for version in &function.versions {
        versions.row([
            version.version.short(),
            kind(version),
            units::bytes(version.component_bytes),
            units::bytes(version.compiled_bytes),
            units::ago(version.deployed_at_ms),
            aliases_of(function, &version.version),
        ]);
    }
    let details = latest(function).map(details).unwrap_or_default();
    format!("{}\n\n{versions}{details}", function.name)
}

/// `prod 90 %, beta`, of one version.
fn aliases_of(function: &FunctionView, version: &Digest) -> String {
    let share = |weights: &BTreeMap<Digest, u32>| {
        let total: u64 = weights.values().map(|w| u64::from(*w)).sum();
        weights.get(version).map(|weight| u64::from(*weight) * 100 / total.max(1))
    };
    let named = function.aliases.iter().filter_map(|(alias, weights)| match share(weights)? {
        100 => Some(alias.to_string()),
        percent => Some(format!("{alias} {percent} %")),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// What the manifest of the latest version says, and what the component asks for.
fn details(version: &VersionView) -> String {
    let manifest = &version.manifest;
    let mut lines = vec![
        String::new(),
        format!("version      {}", version.version),
        format!("component    {}", version.component),
        format!("timeout      {}", units::duration_us(manifest.timeout.saturating_mul(1000))),
        format!("memory       {}", units::bytes(manifest.resources.memory)),
        format!("concurrency  {} running, {} waiting", manifest.concurrency.max, manifest.concurrency.queue),
        format!("attempts     {}", manifest.retry.attempts),
    ];
    if !manifest.egress.allow.is_empty() {
        lines.push(format!("egress       {}", manifest.egress.allow.join(", ")));
    }
    for (number, import) in version.imports.iter().enumerate() {
        lines.push(format!("{:<13}{import}", if number == 0 { "imports" } else { "" }));
    }
    lines.join("\n") + "\n"
}

fn kind(version: &VersionView) -> String {
    use fanfold_protocol::function::ComponentKind::{Cli, Http, Task};
    match version.kind {
        Http => "http",
        Cli => "cli",
        Task => "task",
    }
    .to_owned()
}

/// `rollback`.
pub async fn roll_back(client: &Client, args: &Name, out: Output) -> Result<(), Failure> {
    let rolled = client.roll_back(&args.name).await;
    let function = rolled
        .map_err(|e| Failure::from(e).fix(format!("`fanfold describe {}` lists its versions", args.name)))?;
    out.print(&function, |function| match latest(function) {
        Some(version) => format!("{} is back at version {}", function.name, version.version.short()),
        None => format!("{} has no version", function.name),
    })
}

/// `rm`.
pub async fn remove(client: &Client, args: &Name, out: Output) -> Result<(), Failure> {
    client.remove_function(&args.name).await?;
    out.print(&json!({ "removed": args.name }), |_| format!("removed {}", args.name))
}
