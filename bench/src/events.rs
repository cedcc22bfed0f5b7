//! `events`: from objects that arrive, and other events, to the runs that they fire.
//!
//! How long it is from an event to the start of its run, for each source ([`latency`]); how many small objects a second arrive, are
//! batched and committed; what the journal of events costs in requests to S3, and what a listing does.

mod latency;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{cluster::Platform, job, report, rest::Rest, server::component};

/// Small objects that arrive, if no argument says.
const OBJECTS: usize = 20_000;
const OBJECT_BYTES: usize = 1_000;
/// Connections that put them, to one process and to a cluster: there an answer waits for a write of the journal to S3, which as many
/// share as come in the meantime.
const CONNECTIONS: [usize; 2] = [16, 256];
/// Objects that one notification tells of.
const TOLD_TOGETHER: usize = 25;

/// Runs the benchmark. An argument is the number of objects.
pub async fn run(args: &[String]) -> Result<()> {
    let objects = args.first().map(|n| n.parse()).transpose()?.unwrap_or(OBJECTS);
    latency::run().await?;
    for executors in [None, Some(1)] {
        throughput(executors, objects).await?;
    }
    Ok(())
}

/// What an S3 store says of new objects.
fn notification(numbers: impl Iterator<Item = usize>) -> Value {
    let record = |n: usize| {
        json!({
            "eventName": "ObjectCreated:Put",
            "s3": { "bucket": { "name": "photos" }, "object": { "key": format!("told/{n}"), "size": OBJECT_BYTES, "eTag": format!("{n:032x}") } },
        })
    };
    json!({ "Records": numbers.map(record).collect::<Vec<_>>() })
}

/// Many objects at once, in batches of a hundred, and the same number of notifications.
async fn throughput(executors: Option<usize>, objects: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let platform = Platform::start(dir.path(), executors, &["--memory", "1GiB"])?;
    let mut rest = Rest::connect(platform.server().address).await?;
    rest.joined(1).await?;
    deploy(&mut rest).await?;
    let batch = json!({ "max": 100, "window": "200ms" });
    set(&mut rest, "own", &json!({ "kind": "objects", "function": "echo", "prefix": "in/", "batch": batch }))
        .await?;
    set(
        &mut rest,
        "told",
        &json!({ "kind": "objects", "function": "echo", "bucket": "photos", "batch": batch }),
    )
    .await?;
    let place = if executors.is_some() { "gateway, executor, S3 server, Redis" } else { "one process" };
    for (what, own) in [("objects put", true), ("objects told of", false)] {
        let (puts, cpu) = (puts(&platform).await?, platform.cpu_us());
        let (begin, begin_ms) = (Instant::now(), now_ms());
        arrive(&platform, objects, own).await?;
        let taken = begin.elapsed().as_secs_f64();
        let trigger = if own { "own" } else { "told" };
        // The other connection may have been idle for too long.
        let mut rest = Rest::connect(platform.server().address).await?;
        let ended_ms = committed(&mut rest, trigger, begin_ms, objects).await?;
        let seconds = ended_ms.saturating_sub(begin_ms) as f64 / 1e3;
        let mut figures = json!({
            "objects": objects, "bytes_each": OBJECT_BYTES, "taken_per_second": objects as f64 / taken,
            "committed_per_second": objects as f64 / seconds, "seconds": seconds,
            "cpu_us_per_object": (platform.cpu_us() - cpu) as f64 / objects as f64,
        });
        if let (Some(before), Some(after)) = (puts, self::puts(&platform).await?) {
            let beside = (after - before).saturating_sub(if own { objects as u64 } else { 0 });
            figures["puts_per_event"] = json!(beside as f64 / objects as f64);
        }
        report::line("events", &format!("{what}, {place}"), figures);
    }
    list(&platform, objects, place).await
}

/// A first listing of all objects: how long it takes, and how many requests.
async fn list(platform: &Platform, objects: usize, place: &str) -> Result<()> {
    let mut rest = Rest::connect(platform.server().address).await?;
    let before = gets(platform).await?;
    let begin_ms = now_ms();
    set(&mut rest, "listed", &json!({ "kind": "objects", "function": "echo", "prefix": "in/" })).await?;
    let listing = loop {
        let trigger = get(&mut rest, "/v1/triggers/listed").await?;
        if trigger["listing"].is_object() {
            break trigger["listing"].clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    ensure!(listing["objects"] == objects, "it lists {objects} objects: {listing}");
    let seconds = listing["at_ms"].as_u64().context("it has ended")?.saturating_sub(begin_ms) as f64 / 1e3;
    let mut figures = json!({ "objects": objects, "seconds": seconds });
    if let Some((before, after)) = before.zip(gets(platform).await?) {
        // Executors and gateways ask for other things meanwhile, if anything: at most so many are the listing's.
        figures["requests"] = json!(after - before);
    }
    report::line("events", &format!("a listing, {place}"), figures);
    Ok(())
}

/// Puts objects, or tells of them, over several connections.
async fn arrive(platform: &Platform, objects: usize, own: bool) -> Result<()> {
    let connections = CONNECTIONS[usize::from(matches!(platform, Platform::Cluster(_)))];
    let mut running = JoinSet::new();
    for connection in 0..connections {
        let mut rest = Rest::connect(platform.server().address).await?;
        running.spawn(async move {
            if own {
                for n in (connection..objects).step_by(connections) {
                    rest.send("PUT", &format!("/v1/objects/in/{n}"), "", vec![b'x'; OBJECT_BYTES]).await?;
                }
            } else {
                for first in (connection * TOLD_TOGETHER..objects).step_by(connections * TOLD_TOGETHER) {
                    let told = notification(first..objects.min(first + TOLD_TOGETHER));
                    rest.send("POST", "/v1/events", "application/json", told.to_string()).await?;
                }
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// Waits until results with all the objects are committed; when the last one was.
async fn committed(rest: &mut Rest, trigger: &str, since_ms: u64, objects: usize) -> Result<u64> {
    let path = format!("/v1/triggers/{trigger}");
    while get(rest, &path).await?["waiting"] != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (mut seen, mut last_ms, mut after) = (0, 0, String::new());
    loop {
        let page = get(rest, &format!("/v1/invocations?limit=1000{after}")).await?;
        for run in page["items"].as_array().into_iter().flatten() {
            if run["accepted_at_ms"].as_u64().is_none_or(|at| at < since_ms) {
                continue;
            }
            let id = text(&run["id"])?;
            let run = job::end(rest, &id).await?;
            last_ms = last_ms.max(run["ended_at_ms"].as_u64().context("it ended")?);
            seen += job::output(rest, &id).await?.as_array().map_or(0, Vec::len);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    ensure!(seen == objects, "{seen} of {objects} objects are in committed results");
    Ok(last_ms)
}

/// Objects that were put to the S3 server so far, by anybody.
async fn puts(platform: &Platform) -> Result<Option<u64>> {
    requests(platform, "PUT").await
}

/// Objects and pages of listings that were read.
async fn gets(platform: &Platform) -> Result<Option<u64>> {
    requests(platform, "GET").await
}

async fn requests(platform: &Platform, method: &str) -> Result<Option<u64>> {
    match platform {
        Platform::Up(_) => Ok(None),
        Platform::Cluster(cluster) => Ok(cluster.requests().await?[method].as_u64()),
    }
}

async fn deploy(rest: &mut Rest) -> Result<()> {
    let manifest = include_str!("../../functions/echo/fanfold.toml");
    rest.deploy("echo", manifest, &std::fs::read(component("echo")?)?).await?;
    rest.call("echo", "warm").await?;
    Ok(())
}

async fn set(rest: &mut Rest, name: &str, definition: &Value) -> Result<()> {
    rest.send("PUT", &format!("/v1/triggers/{name}"), "application/json", definition.to_string()).await?;
    Ok(())
}

async fn get(rest: &mut Rest, path: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&rest.send("GET", path, "", "").await?.body)?)
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no text"))?.to_owned())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}
