//! `tasks`: no-op tasks per second from one driver, and the latency of a lone one; fresh instance each.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{cluster::Platform, report, rest::Rest, server::component};

const TASKS: u64 = 10_000;
const LONE: u64 = 2_000;
const ROUNDS: usize = 5;
/// How many times as many tasks the jobs have that show what a finished one takes, and how many are unfinished at a time.
const SMALLER: u64 = 3;
const LARGER: u64 = 10;
const BATCH: u64 = 500;

/// Runs the benchmark. Arguments: the number of tasks; `--executors N` measures a cluster with S3 and Redis instead of
/// `fanfold up`.
pub async fn run(args: &[String]) -> Result<()> {
    let (executors, args) = match args {
        [flag, count, rest @ ..] if flag == "--executors" => (Some(count.parse()?), rest),
        _ => (None, args),
    };
    let tasks = args.first().map(|n| n.parse()).transpose()?.unwrap_or(TASKS);
    let dir = tempfile::tempdir()?;
    let memory = if executors.is_some() { &["--memory", "1GiB"][..] } else { &[] };
    let platform = Platform::start(dir.path(), executors, memory)?;
    let server = platform.server();
    let what = executors.map_or("from one driver".to_owned(), |n| format!("from one driver, {n} executors"));
    let mut rest = Rest::connect(server.address).await?;
    rest.joined(executors.unwrap_or(1)).await?;
    let manifest = include_str!("../../functions/noop/fanfold.toml");
    rest.deploy("noop", manifest, &std::fs::read(component("noop")?)?).await?;

    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        rest.call("noop", json!({ "tasks": tasks, "lone": false }).to_string()).await?;
        rates.push(tasks as f64 / begin.elapsed().as_secs_f64());
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    let figures = json!({ "tasks": tasks, "per_second": report::median(rates).round(), "best_per_second": best.round() });
    report::line("tasks", &what, figures);

    let answer = rest.call("noop", json!({ "tasks": LONE, "lone": true }).to_string()).await?;
    let lone: Value = serde_json::from_slice(&answer.body).context("noop answers JSON")?;
    report::line(
        "tasks",
        "lone",
        json!({ "tasks": LONE, "p50_us": lone["p50_us"], "p99_us": lone["p99_us"] }),
    );
    // Of two jobs whose tasks are referred to until the end, and finish a few at a time, the larger one takes so much more.
    let mut peaks = Vec::new();
    for tasks in [tasks * SMALLER, tasks * LARGER] {
        rest.call("noop", json!({ "tasks": tasks, "batch": BATCH }).to_string()).await?;
        peaks.push(report::peak_bytes(server.pid()));
    }
    let (small, large) = (peaks[0], peaks[1]);
    let per_task = large.saturating_sub(small) / (tasks * (LARGER - SMALLER));
    let who = if executors.is_some() { "the gateway" } else { "the whole process" };
    report::line("tasks", who, json!({ "peak_bytes": large, "bytes_per_finished_task": per_task }));
    Ok(())
}
