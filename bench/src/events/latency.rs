//! How long it is from an event to the start of its run, on an idle platform of one process, for each source.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{deploy, get, notification, now_ms, set, text};
use crate::{
    cluster::{Platform, Redis},
    job, report,
    rest::Rest,
};

/// Events whose way to their runs is timed, one after the other, for each source.
const TIMED: usize = 300;
/// Runs of a schedule that are looked at: as many as a trigger shows.
const TIMES: usize = 10;

/// Where an event comes from.
#[derive(Clone, Copy)]
enum Source {
    /// An object that is put over REST.
    Own,
    /// A notification of an S3 store.
    Told,
    /// A CloudEvent that is posted.
    Sent,
    /// A job that ends.
    Ended,
    /// An entry of a Redis stream.
    Entry,
}

const SOURCES: [(&str, Source); 5] = [
    ("object API", Source::Own),
    ("S3 notification", Source::Told),
    ("CloudEvent", Source::Sent),
    ("end of a job", Source::Ended),
    ("Redis stream", Source::Entry),
];

/// An event that was made: when, and the run that it fired.
struct Made {
    at_ms: u64,
    run: String,
}

/// Times all sources.
pub async fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let platform = Platform::start(dir.path(), None, &[])?;
    let redis = Redis::start()?;
    let mut rest = Rest::connect(platform.server().address).await?;
    deploy(&mut rest).await?;
    let triggers = [
        ("own", json!({ "kind": "objects", "function": "echo", "prefix": "own/" })),
        ("told", json!({ "kind": "objects", "function": "echo", "bucket": "photos" })),
        ("sent", json!({ "kind": "event", "function": "echo", "filter": { "type": "bench" } })),
        (
            "entry",
            json!({ "kind": "stream", "function": "echo", "stream": "s", "redis": format!("redis://{}", redis.address) }),
        ),
        ("times", json!({ "kind": "interval", "function": "echo", "every": "1s" })),
    ];
    for (name, definition) in &triggers {
        set(&mut rest, name, definition).await?;
    }
    for (what, source) in SOURCES {
        if matches!(source, Source::Ended) {
            // Not before: the other sources' runs are jobs, too.
            noop(&mut rest).await?;
        }
        let mut samples = Vec::with_capacity(TIMED);
        for n in 0..TIMED {
            let Made { at_ms, run } = source.fire(&mut rest, &redis, n).await?;
            let run = job::end(&mut rest, &run).await?;
            samples.push(started_ms(&run)?.saturating_sub(at_ms));
        }
        show(what, samples);
    }
    show("interval", times(&mut rest).await?);
    Ok(())
}

fn show(what: &str, mut samples: Vec<u64>) {
    let (p50, p99) = (report::percentile(&mut samples, 0.5), report::percentile(&mut samples, 0.99));
    let figures =
        json!({ "events": samples.len(), "event_to_start_p50_ms": p50, "event_to_start_p99_ms": p99 });
    report::line("events", what, figures);
}

/// A function whose ends fire `echo`.
async fn noop(rest: &mut Rest) -> Result<()> {
    let manifest = include_str!("../../../functions/noop/fanfold.toml");
    rest.deploy("noop", manifest, &std::fs::read(crate::server::component("noop")?)?).await?;
    set(rest, "ended", &json!({ "kind": "job", "function": "echo", "after": "noop" })).await
}

impl Source {
    /// Makes an event and waits for its run.
    async fn fire(self, rest: &mut Rest, redis: &Redis, n: usize) -> Result<Made> {
        let at_ms = now_ms();
        let run = match self {
            Self::Own => {
                rest.send("PUT", &format!("/v1/objects/own/{n}"), "", format!("object {n}")).await?;
                // The put is answered once its run is recorded.
                newest(rest, "own").await?.context("a run")?
            }
            Self::Told => posted(rest, "application/json", &notification([n].into_iter())).await?,
            Self::Sent => {
                let event =
                    json!({ "specversion": "1.0", "id": n.to_string(), "source": "/bench", "type": "bench" });
                posted(rest, "application/cloudevents+json", &event).await?
            }
            Self::Ended => {
                let before = newest(rest, "ended").await?;
                let accepted =
                    rest.send("POST", "/async-function/noop", "application/json", "{\"tasks\":1}").await?;
                let accepted: Value = serde_json::from_slice(&accepted.body)?;
                let ended = job::end(rest, &text(&accepted["id"])?).await?;
                let at_ms = ended["ended_at_ms"].as_u64().context("it has ended")?;
                return Ok(Made { at_ms, run: next(rest, "ended", before).await? });
            }
            Self::Entry => {
                let before = newest(rest, "entry").await?;
                let at_ms = now_ms();
                let mut connection = TcpStream::connect(redis.address)?;
                connection.write_all(format!("XADD s * n {n}\r\n").as_bytes())?;
                connection.read_exact(&mut [0])?;
                return Ok(Made { at_ms, run: next(rest, "entry", before).await? });
            }
        };
        Ok(Made { at_ms, run })
    }
}

/// The last run of a trigger.
async fn newest(rest: &mut Rest, trigger: &str) -> Result<Option<String>> {
    let trigger = get(rest, &format!("/v1/triggers/{trigger}")).await?;
    Ok(trigger["runs"][0]["id"].as_str().map(str::to_owned))
}

/// Waits for another one.
async fn next(rest: &mut Rest, trigger: &str, before: Option<String>) -> Result<String> {
    loop {
        let last = newest(rest, trigger).await?;
        match last {
            Some(run) if Some(&run) != before.as_ref() => return Ok(run),
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// How late the last runs of the schedule began.
async fn times(rest: &mut Rest) -> Result<Vec<u64>> {
    loop {
        let trigger = get(rest, "/v1/triggers/times").await?;
        let runs = trigger["runs"].as_array().cloned().unwrap_or_default();
        if runs.len() < TIMES {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        }
        let created_ms = trigger["created_at_ms"].as_u64().context("it was created")?;
        let mut late = Vec::with_capacity(TIMES);
        for run in &runs {
            let run = job::end(rest, &text(&run["id"])?).await?;
            late.push(started_ms(&run)?.saturating_sub(created_ms) % 1000);
        }
        return Ok(late);
    }
}

/// Posts an event that fires one run; which.
async fn posted(rest: &mut Rest, kind: &str, event: &Value) -> Result<String> {
    let answer = rest.send("POST", "/v1/events", kind, event.to_string()).await?;
    let answer: Value = serde_json::from_slice(&answer.body)?;
    text(&answer["outcomes"][0]["invocation"])
}

/// When a run began, at the latest: its end, which was recorded after it ran, less the time it ran.
fn started_ms(run: &Value) -> Result<u64> {
    let (ended_ms, ran_us) = (run["ended_at_ms"].as_u64(), run["usage"]["run_us"].as_u64());
    let (ended_ms, ran_us) = ended_ms.zip(ran_us).with_context(|| format!("it has ended: {run}"))?;
    Ok(ended_ms - ran_us / 1_000)
}
