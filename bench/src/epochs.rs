//! `epochs`: what a full shuffle before every epoch does for a model, and what it costs.

use anyhow::Result;
use serde_json::json;

use crate::{
    job, report,
    rest::Rest,
    server::{Server, component},
};

const SAMPLES: u32 = 500_000;

/// Runs the benchmark. An argument is the number of samples.
pub async fn run(args: &[String]) -> Result<()> {
    let samples: u32 = args.first().map(|n| n.parse()).transpose()?.unwrap_or(SAMPLES);
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/sgd/fanfold.toml");
    rest.deploy("sgd", manifest, &std::fs::read(component("sgd")?)?).await?;
    for seed in 1..=3 {
        let request = json!({ "samples": samples, "seed": seed });
        let (result, cost) = job::measured(&server, &mut rest, "sgd", &request).await?;
        let figures = json!({
            "seed": seed, "samples": samples, "accuracy_shuffled": result["shuffled"],
            "accuracy_unshuffled": result["unshuffled"], "samples_shuffled": result["samples_shuffled"],
            "seconds": cost.seconds, "cpu_seconds": cost.cpu_seconds,
        });
        report::line("epochs", "softmax regression on data sorted by label", figures);
    }
    Ok(())
}
