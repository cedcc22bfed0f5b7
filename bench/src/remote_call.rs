//! `remote-call`: what a call costs more where the executor is another process than the gateway: the same function, called
//! over one connection, on `fanfold up` and on a gateway with one executor, in turn.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::{
    cluster::Cluster,
    load, report,
    rest::Rest,
    server::{Server, component},
};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);

/// Runs the benchmark. An argument is the number of rounds.
pub async fn run(args: &[String]) -> Result<()> {
    let rounds = args.first().map(|n| n.parse()).transpose()?.unwrap_or(ROUNDS);
    let dir = tempfile::tempdir()?;
    let near = Server::fanfold(&dir.path().join("near"))?;
    let far = Cluster::start(&dir.path().join("far"), 1)?;
    for address in [near.address, far.gateway.address] {
        let mut rest = Rest::connect(address).await?;
        rest.joined(1).await?;
        rest.deploy("echo", "name = \"echo\"", &std::fs::read(component("echo")?)?).await?;
    }
    let request = load::request("POST", "/function/echo", b"hello\n");
    let mut latencies = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (address, seen) in [near.address, far.gateway.address].into_iter().zip(&mut latencies) {
            seen.extend(load::run(address, &request, 1, ROUND).await?.latencies_us);
        }
    }
    let [near, far] =
        latencies.map(|mut seen| (report::percentile(&mut seen, 0.5), report::percentile(&mut seen, 0.99)));
    let figures = json!({
        "near_p50_us": near.0, "near_p99_us": near.1, "far_p50_us": far.0, "far_p99_us": far.1,
        "added_p50_us": far.0 as i64 - near.0 as i64,
    });
    report::line("remote-call", "echo", figures);
    Ok(())
}
