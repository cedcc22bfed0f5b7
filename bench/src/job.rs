//! Running jobs to their ends, and what they cost the server.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{report, rest::Rest, server::Server};

/// What a job took.
pub struct Cost {
    /// From the request to the answer.
    pub seconds: f64,
    /// Processor time of the server, user and system.
    pub cpu_seconds: f64,
}

/// Starts a job and returns its id.
pub async fn start(rest: &mut Rest, function: &str, entry: &str, input: &Value) -> Result<String> {
    let request = json!({ "function": function, "entry": entry, "input": input });
    let accepted = rest.send("POST", "/v1/jobs", "application/json", request.to_string()).await?;
    let accepted: Value = serde_json::from_slice(&accepted.body)?;
    Ok(accepted["id"].as_str().context("the job has no id")?.to_owned())
}

/// Waits for a job's end and returns how it went.
pub async fn end(rest: &mut Rest, id: &str) -> Result<Value> {
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

/// What a job that has ended returned.
pub async fn output(rest: &mut Rest, id: &str) -> Result<Value> {
    let answer = rest.send("GET", &format!("/v1/invocations/{id}/output"), "", "").await?;
    Ok(serde_json::from_slice(&answer.body)?)
}

/// Runs a job on a server of one process and measures it.
pub async fn measured(
    server: &Server,
    rest: &mut Rest,
    function: &str,
    input: &Value,
) -> Result<(Value, Cost)> {
    let cpu = report::cpu_us(server.pid());
    let begin = Instant::now();
    let id = start(rest, function, "", input).await?;
    end(rest, &id).await?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_seconds = (report::cpu_us(server.pid()) - cpu) as f64 / 1e6;
    Ok((output(rest, &id).await?, Cost { seconds, cpu_seconds }))
}
