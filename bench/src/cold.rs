//! `cold`: the first call of a deployed component after a start of the platform: load, instantiate, run.

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    report,
    rest::{Answer, Rest},
    server::{Server, component, variant},
};

const COMPONENTS: u32 = 100;

/// Runs the benchmark: deploys variants of two components, restarts the platform, calls each once, then once more.
pub async fn run(_: &[String]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let functions = ["hello-http", "echo"];
    {
        let server = Server::fanfold(dir.path())?;
        let mut rest = Rest::connect(server.address).await?;
        for function in functions {
            let bytes = std::fs::read(component(function)?)?;
            for number in 0..COMPONENTS {
                let name = format!("{function}-{number}");
                rest.deploy(&name, &format!("name = \"{name}\""), &variant(&bytes, number)).await?;
            }
        }
    }
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    rest.send("GET", "/healthz", "", "").await?;
    for function in functions {
        for round in ["first", "second"] {
            calls(&mut rest, function, round).await?;
        }
    }
    Ok(())
}

async fn calls(rest: &mut Rest, function: &str, round: &str) -> Result<()> {
    let (mut whole, mut load, mut instantiate, mut cold) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for number in 0..COMPONENTS {
        let path = format!("/function/{function}-{number}");
        let sent = std::time::Instant::now();
        let answer = rest.send("POST", &path, "text/plain", "hello").await?;
        whole.push(sent.elapsed().as_micros() as u64);
        load.push(timing(&answer, "compile").context("no Server-Timing for compile")?);
        instantiate.push(timing(&answer, "instantiate").context("no Server-Timing for instantiate")?);
        cold += u32::from(answer.headers.get("fanfold-start").is_some_and(|start| start == "cold"));
    }
    let figures = json!({
        "call": round, "calls": COMPONENTS, "cold": cold,
        "whole_p50_us": report::percentile(&mut whole, 0.5), "whole_p99_us": report::percentile(&mut whole, 0.99),
        "load_p50_us": report::percentile(&mut load, 0.5), "instantiate_p50_us": report::percentile(&mut instantiate, 0.5),
    });
    report::line("cold", function, figures);
    Ok(())
}

/// One entry of `Server-Timing`, in microseconds.
fn timing(answer: &Answer, name: &str) -> Option<u64> {
    let header = answer.headers.get("server-timing")?.to_str().ok()?;
    let entry = header.split(',').find(|entry| entry.trim().starts_with(name))?;
    let milliseconds: f64 = entry.split("dur=").nth(1)?.trim().parse().ok()?;
    Some((milliseconds * 1000.0).round() as u64)
}
