//! `hello`: requests per second and latency of a trivial function, fresh instance each, beside `wasmtime serve` of the same
//! component and a bare hyper server.
//!
//! Rounds go through the servers in turn, so that a drift of the machine's speed meets all of them; the figures are medians.

use std::{path::Path, time::Duration};

use anyhow::Result;
use serde_json::json;

use crate::{
    load, report,
    rest::Rest,
    server::{Server, component},
};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);

/// One thing to load.
struct Subject {
    name: &'static str,
    server: usize,
    request: Vec<u8>,
}

/// Runs the benchmark. An argument is the number of rounds.
pub async fn run(args: &[String]) -> Result<()> {
    let rounds = args.first().map(|n| n.parse()).transpose()?.unwrap_or(ROUNDS);
    let dir = tempfile::tempdir()?;
    let (servers, subjects) = start(dir.path()).await?;
    for connections in [1, 32] {
        let mut medians = Vec::new();
        let mut seen: Vec<(Vec<f64>, Vec<u64>, u64)> = subjects.iter().map(|_| Default::default()).collect();
        for _ in 0..rounds {
            for (subject, seen) in subjects.iter().zip(&mut seen) {
                let server = &servers[subject.server];
                let cpu = report::cpu_us(server.pid());
                let round = load::run(server.address, &subject.request, connections, ROUND).await?;
                seen.0.push(round.per_second);
                seen.1.extend(round.latencies_us);
                seen.2 += report::cpu_us(server.pid()) - cpu;
            }
        }
        for (subject, (rates, mut latencies, cpu)) in subjects.iter().zip(seen) {
            let rate = report::median(rates);
            // The load's warm-up is a tenth on top of what was counted.
            let cpu_per_request = cpu as f64 / (latencies.len() as f64 * 1.1);
            let figures = json!({
                "connections": connections, "per_second": rate.round(), "server_cpu_us": cpu_per_request,
                "p50_us": report::percentile(&mut latencies, 0.5), "p99_us": report::percentile(&mut latencies, 0.99),
            });
            report::line("hello", subject.name, figures);
            medians.push((subject.name, rate));
        }
        ratios(connections, &medians);
    }
    Ok(())
}

async fn start(dir: &Path) -> Result<(Vec<Server>, Vec<Subject>)> {
    let fanfold = Server::fanfold(dir)?;
    let mut rest = Rest::connect(fanfold.address).await?;
    for name in ["hello-http", "echo"] {
        let manifest = format!("name = \"{name}\"\n[concurrency]\nmax = 256\n");
        rest.deploy(name, &manifest, &std::fs::read(component(name)?)?).await?;
    }
    let mut servers = vec![fanfold, Server::bare_hyper()?];
    let mut subjects = vec![
        Subject {
            name: "fanfold-http",
            server: 0,
            request: load::request("GET", "/function/hello-http/", b""),
        },
        Subject {
            name: "fanfold-task",
            server: 0,
            request: load::request("POST", "/function/echo", b"hello\n"),
        },
        Subject { name: "bare-hyper", server: 1, request: load::request("GET", "/", b"") },
    ];
    match Server::wasmtime_serve(&component("hello-http")?) {
        Ok(server) => {
            servers.push(server);
            let request = load::request("GET", "/", b"");
            subjects.push(Subject { name: "wasmtime-serve", server: 2, request });
        }
        Err(error) => eprintln!("note: no wasmtime to compare with ({error:#})"),
    }
    Ok((servers, subjects))
}

fn ratios(connections: usize, medians: &[(&str, f64)]) {
    let rate = |name: &str| medians.iter().find(|(other, _)| *other == name).map(|(_, rate)| *rate);
    let ratio = |what: &str, a: &str, b: &str| {
        if let (Some(a), Some(b)) = (rate(a), rate(b)) {
            report::line("hello", what, json!({ "connections": connections, "ratio": a / b }));
        }
    };
    ratio("fanfold-http / wasmtime-serve", "fanfold-http", "wasmtime-serve");
    ratio("fanfold-task / fanfold-http", "fanfold-task", "fanfold-http");
    ratio("fanfold-task / bare-hyper", "fanfold-task", "bare-hyper");
}
