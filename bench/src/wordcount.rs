//! `wordcount`: megabytes per second of a whole batch job over generated text, put in as objects.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use crate::{
    job, report,
    rest::Rest,
    server::{Server, component},
    text,
};

const MEGABYTES: usize = 256;

/// Runs the benchmark. An argument is the number of megabytes.
pub async fn run(args: &[String]) -> Result<()> {
    let megabytes = args.first().map(|n| n.parse()).transpose()?.unwrap_or(MEGABYTES);
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/wordcount/fanfold.toml");
    rest.deploy("wordcount", manifest, &std::fs::read(component("wordcount")?)?).await?;
    let bytes = text::put(&mut rest, "text/", megabytes).await?;
    for round in 0..3 {
        let cpu = report::cpu_us(server.pid());
        let begin = Instant::now();
        let id = job::start(&mut rest, "wordcount", "", &json!({ "prefix": "text/", "top": 20 })).await?;
        let view = job::end(&mut rest, &id).await?;
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
