//! `density`: resident memory per idle function, with many different functions deployed and called once each.

use anyhow::Result;
use serde_json::json;

use crate::{
    report,
    rest::Rest,
    server::{Server, component, variant},
};

const FUNCTIONS: u32 = 1000;

/// Runs the benchmark. An argument is the number of functions.
pub async fn run(args: &[String]) -> Result<()> {
    let functions = args.first().map(|n| n.parse()).transpose()?.unwrap_or(FUNCTIONS);
    let dir = tempfile::tempdir()?;
    let bytes = std::fs::read(component("echo")?)?;
    {
        let server = Server::fanfold(dir.path())?;
        let mut rest = Rest::connect(server.address).await?;
        for number in 0..functions {
            let name = format!("echo-{number}");
            rest.deploy(&name, &format!("name = \"{name}\""), &variant(&bytes, number)).await?;
        }
    }
    // A new process: nothing that compiling left behind is counted.
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let before = report::resident_bytes(server.pid());
    for number in 0..functions {
        rest.call(&format!("echo-{number}"), "hello").await?;
    }
    let after = report::resident_bytes(server.pid());
    let each = after.saturating_sub(before) / u64::from(functions.max(1));
    let figures = json!({
        "functions": functions, "component_bytes": bytes.len(), "resident_before": before, "resident_after": after,
        "bytes_per_function": each,
    });
    report::line("density", "echo", figures);
    Ok(())
}
