//! `wordcount`: megabytes per second of a whole batch job over generated text, put in as objects.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use crate::{
    report,
    rest::Rest,
    server::{Server, component},
};

const MEGABYTES: usize = 256;
const OBJECT_BYTES: usize = 4 << 20;
const WORDS: usize = 50_000;

/// Runs the benchmark. An argument is the number of megabytes.
pub async fn run(args: &[String]) -> Result<()> {
    let megabytes = args.first().map(|n| n.parse()).transpose()?.unwrap_or(MEGABYTES);
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/wordcount/fanfold.toml");
    rest.deploy("wordcount", manifest, &std::fs::read(component("wordcount")?)?).await?;
    let mut bytes = 0;
    for number in 0..megabytes * 1_000_000 / OBJECT_BYTES {
        let text = text(number as u64);
        bytes += text.len();
        rest.send("PUT", &format!("/v1/objects/text/{number:05}"), "text/plain", text).await?;
    }
    for round in 0..3 {
        let cpu = report::cpu_us(server.pid());
        let begin = Instant::now();
        let view =
            job(&mut rest, &json!({ "function": "wordcount", "input": { "prefix": "text/", "top": 20 } }))
                .await?;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_s = (report::cpu_us(server.pid()) - cpu) as f64 / 1e6;
        let figures = json!({
            "round": round, "bytes": bytes, "seconds": seconds, "mb_per_second": bytes as f64 / 1e6 / seconds,
            "cpu_s_per_gb": cpu_s / (bytes as f64 / 1e9), "tasks": view["progress"]["tasks"],
            "resident_bytes": report::resident_bytes(server.pid()),
        });
        report::line("wordcount", "generated text", figures);
    }
    Ok(())
}

/// Runs a job to its end.
async fn job(rest: &mut Rest, request: &Value) -> Result<Value> {
    let accepted = rest.send("POST", "/v1/jobs", "application/json", request.to_string()).await?;
    let accepted: Value = serde_json::from_slice(&accepted.body)?;
    let id = accepted["id"].as_str().context("the job has no id")?;
    loop {
        let view = rest.send("GET", &format!("/v1/invocations/{id}?wait=60s"), "", "").await?;
        let view: Value = serde_json::from_slice(&view.body)?;
        match view["state"].as_str() {
            Some("succeeded") => return Ok(view),
            Some("failed" | "cancelled") => bail!("the job failed: {view}"),
            _ => {}
        }
    }
}

/// Text with the word frequencies of prose: the rank of a word is drawn so that rank and frequency multiply to a constant.
fn text(seed: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut text = Vec::with_capacity(OBJECT_BYTES + 32);
    while text.len() < OBJECT_BYTES {
        let rank = (WORDS as f64).powf(random.random::<f64>()) as usize;
        text.extend_from_slice(format!("w{rank:x}").as_bytes());
        text.push(if random.random_ratio(1, 12) { b'\n' } else { b' ' });
    }
    text
}
