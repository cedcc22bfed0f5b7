//! `streaming`: how soon a first partial result is there, what partial results cost, and how wrong they are.
//!
//! The same job with one result at the end is the measure. Partial results are log lines; they are timed as they come.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    job, report,
    rest::Rest,
    server::{Server, component},
    text,
};

const MEGABYTES: usize = 1_000;
const ROUNDS: usize = 3;

/// Runs the benchmark. An argument is the number of megabytes.
pub async fn run(args: &[String]) -> Result<()> {
    let megabytes = args.first().map(|n| n.parse()).transpose()?.unwrap_or(MEGABYTES);
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/distinct-sketch/fanfold.toml");
    rest.deploy("distinct-sketch", manifest, &std::fs::read(component("distinct-sketch")?)?).await?;
    let bytes = text::put(&mut rest, "text/", megabytes).await?;
    let request = |strategy| json!({ "prefix": "text/", "strategy": strategy });

    // The first job reads the data into the system's memory, and loads the function.
    job::measured(&server, &mut rest, "distinct-sketch", &request("simple")).await?;
    for round in 0..ROUNDS {
        let (simple, cost) = job::measured(&server, &mut rest, "distinct-sketch", &request("simple")).await?;
        let cpu = report::cpu_us(server.pid());
        let begin = Instant::now();
        let id = job::start(&mut rest, "distinct-sketch", "", &request("streaming")).await?;
        let first = first_partial(&server, &id, begin).await?;
        job::end(&mut rest, &id).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_seconds = (report::cpu_us(server.pid()) - cpu) as f64 / 1e6;
        let streaming = job::output(&mut rest, &id).await?;
        ensure!(simple["words"] == streaming["words"], "{simple} and {streaming}");
        let errors = |of: &str| -> Vec<Value> {
            streaming["rounds"].as_array().into_iter().flatten().map(|round| round[of].clone()).collect()
        };
        let figures = json!({
            "round": round, "bytes": bytes, "simple_seconds": cost.seconds, "streaming_seconds": seconds,
            "first_partial_seconds": first, "first_share_of_simple": first / cost.seconds,
            "total_ratio": seconds / cost.seconds, "cpu_ratio": cpu_seconds / cost.cpu_seconds,
            "maps": errors("maps"), "share_errors": errors("share_error"), "distinct_missing": errors("distinct_missing"),
        });
        report::line("streaming", "distinct words, partial results per round", figures);
    }
    Ok(())
}

/// Seconds from `begin` until the log shows a partial result.
async fn first_partial(server: &Server, id: &str, begin: Instant) -> Result<f64> {
    let mut rest = Rest::connect(server.address).await?;
    let mut log = rest.follow(&format!("/v1/invocations/{id}/logs?follow=true")).await?;
    let mut seen = String::new();
    while !seen.contains("partial 1:") {
        let piece = log.next().await?.context("the job ended without a partial result")?;
        seen.push_str(&String::from_utf8_lossy(&piece));
    }
    Ok(begin.elapsed().as_secs_f64())
}
