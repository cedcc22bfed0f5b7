//! `recover`: a job of many tasks on four executors, one of which is killed, and then the gateway: how long until what was
//! lost runs again, and how much is run twice.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{cluster::Cluster, report, rest::Rest, server::component};

const EXECUTORS: usize = 4;
const ROUNDS: usize = 5;
/// 400 tasks of some 10 ms, each of which reads three partitions and makes one.
const GRAPH: &str = r#"{"layers": 20, "width": 20, "rounds": 4}"#;
const TASKS: u64 = 400;
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(2);
/// After this it is broken, not slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the benchmark; it takes no arguments.
pub async fn run(_: &[String]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = Cluster::start(dir.path(), EXECUTORS)?;
    let mut rest = Rest::connect(cluster.gateway.address).await?;
    rest.joined(EXECUTORS).await?;
    let manifest = include_str!("../../functions/layers/fanfold.toml");
    rest.deploy("layers", manifest, &std::fs::read(component("layers")?)?).await?;
    let begin = Instant::now();
    let job = submit(&mut rest).await?;
    seen(&mut rest, &job, |view| view["state"] == "succeeded").await?;
    report::line("recover", "undisturbed", json!({ "tasks": TASKS, "job_ms": millis(begin) }));

    let (mut again_ms, mut again) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let job = submit(&mut rest).await?;
        seen(&mut rest, &job, |view| number(view, "finished") > TASKS / 3).await?;
        cluster.executors.remove(0).kill()?;
        let killed = Instant::now();
        seen(&mut rest, &job, |view| number(view, "retries") > 0).await?;
        again_ms.push(millis(killed));
        let end = seen(&mut rest, &job, |view| view["state"] == "succeeded").await?;
        again.push(number(&end, "retries") as f64);
        cluster.add_executor()?;
        rest.joined(EXECUTORS).await?;
    }
    let figures = json!({
        "rounds": ROUNDS, "until_lost_tasks_run_again_ms": report::median(again_ms), "tasks_run_again": report::median(again),
    });
    report::line("recover", "an executor of four is killed", figures);

    let (mut up_ms, mut progress_ms, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let job = submit(&mut rest).await?;
        seen(&mut rest, &job, |view| number(view, "finished") > TASKS / 3).await?;
        let killed = Instant::now();
        cluster.replace_gateway()?;
        up_ms.push(millis(killed));
        rest = Rest::connect(cluster.gateway.address).await?;
        let first = view(&mut rest, &job).await?;
        let had = number(&first, "finished");
        seen(&mut rest, &job, |view| number(view, "finished") > had.max(TASKS / 3)).await?;
        progress_ms.push(millis(killed));
        seen(&mut rest, &job, |view| view["state"] == "succeeded").await?;
        let attempts = metric(&mut rest, "fanfold_attempts_total").await?;
        // All that had not finished, and the driver.
        again.push(attempts.saturating_sub(TASKS + 1 - had.min(TASKS)) as f64);
    }
    let figures = json!({
        "rounds": ROUNDS, "until_a_gateway_is_up_ms": report::median(up_ms),
        "until_another_task_has_finished_ms": report::median(progress_ms),
        "attempts_beyond_what_was_left": report::median(again),
    });
    report::line("recover", "the gateway is killed and started again", figures);
    Ok(())
}

async fn submit(rest: &mut Rest) -> Result<String> {
    let accepted = rest.send("POST", "/async-function/layers", "application/json", GRAPH).await?;
    let accepted: Value = serde_json::from_slice(&accepted.body)?;
    Ok(accepted["id"].as_str().context("the job has no id")?.to_owned())
}

async fn view(rest: &mut Rest, job: &str) -> Result<Value> {
    let answer = rest.send("GET", &format!("/v1/jobs/{job}"), "", "").await?;
    Ok(serde_json::from_slice(&answer.body)?)
}

/// Looks until it is so.
async fn seen(rest: &mut Rest, job: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let begin = Instant::now();
    loop {
        let view = view(rest, job).await?;
        if wanted(&view) {
            return Ok(view);
        }
        let hopeless = view["state"] == "failed" || begin.elapsed() > PATIENCE;
        ensure!(!hopeless, "the job does not get on: {view}");
        tokio::time::sleep(GLANCE).await;
    }
}

fn number(view: &Value, name: &str) -> u64 {
    view["progress"][name].as_u64().unwrap_or(0)
}

async fn metric(rest: &mut Rest, name: &str) -> Result<u64> {
    let metrics = rest.send("GET", "/metrics", "", "").await?.body;
    let metrics = String::from_utf8_lossy(&metrics);
    let line = metrics.lines().find(|line| line.starts_with(name)).context("no such metric")?;
    Ok(line.rsplit(' ').next().context("no value")?.parse::<f64>()? as u64)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
