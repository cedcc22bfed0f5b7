//! `pass`: a partition of 1 MiB handed from a task to the next one, on one executor and between two: from the moment one
//! starts to write it to the moment the other has read it all, with everything in between (commit, scheduling, a fresh
//! instance).

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    report,
    rest::Rest,
    server::{Server, component},
};

const STEPS: u64 = 2_000;
const BYTES: u64 = 1 << 20;
const ROUNDS: usize = 3;

/// How often a byte is copied in user space, guests' memory included; the kernel's sockets add two between processes.
const COPIES_NEAR: &str = "2: guest -> segment of the cache -> guest";
const COPIES_FAR: &str = "3: guest -> segment of the cache -> socket -> buffer -> guest";

/// Runs the benchmark. An argument is the number of hand-overs.
pub async fn run(args: &[String]) -> Result<()> {
    let steps = args.first().map(|n| n.parse()).transpose()?.unwrap_or(STEPS);
    let dir = tempfile::tempdir()?;
    {
        let up = Server::fanfold(&dir.path().join("up"))?;
        deploy(up.address, 1).await?;
        measure("one process", up.address, steps, &[], COPIES_NEAR).await?;
    }
    let cluster = Cluster::start(&dir.path().join("cluster"), 2)?;
    let ids = deploy(cluster.gateway.address, 2).await?;
    let address = cluster.gateway.address;
    measure("one executor of a cluster", address, steps, &ids[..1], COPIES_NEAR).await?;
    measure("between two executors", address, steps, &ids, COPIES_FAR).await
}

/// Waits for executors and deploys the function; the executors' ids.
async fn deploy(address: SocketAddr, executors: usize) -> Result<Vec<u64>> {
    let mut rest = Rest::connect(address).await?;
    rest.joined(executors).await?;
    let manifest = include_str!("../../functions/pass/fanfold.toml");
    rest.deploy("pass", manifest, &std::fs::read(component("pass")?)?).await?;
    rest.executors().await
}

async fn measure(what: &str, address: SocketAddr, steps: u64, executors: &[u64], copies: &str) -> Result<()> {
    let mut rest = Rest::connect(address).await?;
    let body = json!({ "steps": steps, "bytes": BYTES, "executors": executors }).to_string();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let answer = rest.call("pass", body.clone()).await?;
        let seen: Value = serde_json::from_slice(&answer.body).context("pass answers JSON")?;
        let figure = |name: &str| seen[name].as_f64().with_context(|| format!("no {name}"));
        rounds.push((figure("p50_us")?, figure("p99_us")?, figure("total_us")?));
    }
    let middle = |pick: fn(&(f64, f64, f64)) -> f64| report::median(rounds.iter().map(pick).collect());
    let figures = json!({
        "bytes": BYTES,
        "p50_ms": middle(|round| round.0) / 1e3,
        "p99_ms": middle(|round| round.1) / 1e3,
        "mb_per_second": (BYTES * steps) as f64 / middle(|round| round.2),
        "copies": copies,
    });
    report::line("pass", what, figures);
    Ok(())
}
