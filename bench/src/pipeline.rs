//! `memory`: pipelines of a processor stage, another one and an accelerator stage within a limit of memory: how near to
//! their bound they are, in each mode of the pipeline library, and that they never go above the limit.
//!
//! The published memory microbenchmark with a tenth of its times and sizes; the work is time, so what is measured is the
//! scheduling, and what the bytes cost on the way. Rows are a tenth again unless `--row-bytes` says otherwise, and the limits
//! with them: the published sizes move 8 GB through each of three stages in 15 seconds, which is this machine's memory and
//! not the scheduler.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    job,
    plot::{Curve, Plot},
    report,
    rest::Rest,
    server::{Server, component},
};

const MODES: [&str; 5] = ["full", "staged", "static", "no-repartition", "no-adaptive"];
/// Of the limits, for rows of 100 KB.
const LIMITS_MB: [u64; 6] = [600, 800, 1000, 1200, 1400, 1600];
const ROW_BYTES: u64 = 10_000;
const SLOTS: &str = "8";
const ACCELERATORS: &str = "accelerator=4";
/// The ratios that the plot shows.
const RATIO_MIN: f64 = 0.9;
const RATIO_MAX: f64 = 2.0;

/// What to measure.
struct Plan {
    row_bytes: u64,
    modes: Vec<String>,
    /// Where to draw the ratios.
    plot: Option<String>,
}

impl Plan {
    fn parse(args: &[String]) -> Result<Self> {
        let modes = MODES.map(str::to_owned).to_vec();
        let mut plan = Self { row_bytes: ROW_BYTES, modes, plot: None };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let value = args.next().with_context(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--row-bytes" => plan.row_bytes = value.parse()?,
                "--mode" => plan.modes = vec![value.clone()],
                "--plot" => plan.plot = Some(value.clone()),
                _ => bail!("unknown: {flag}"),
            }
        }
        Ok(plan)
    }
}

/// Runs the benchmark. Arguments: `--row-bytes N`, `--mode NAME` (one instead of all), `--plot FILE` (an SVG of the ratios).
pub async fn run(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold_with(dir.path(), &["--slots", SLOTS, "--resource", ACCELERATORS])?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/pipeline-memory/fanfold.toml");
    rest.deploy("pipeline-memory", manifest, &std::fs::read(component("pipeline-memory")?)?).await?;
    // The first one loads the function.
    let first = json!({ "loads": 8, "row_bytes": 1000, "limit_bytes": 8_000_000 });
    job::measured(&server, &mut rest, "pipeline-memory", &first).await?;

    let mut curves: Vec<Curve> = Vec::new();
    for mode in &plan.modes {
        let mut ratios = Vec::new();
        for megabytes in LIMITS_MB {
            ratios.push(ratio(&server, &mut rest, &plan, mode, megabytes).await?);
        }
        curves.push((mode.clone(), ratios));
    }
    plan.plot.map_or(Ok(()), |path| draw(Path::new(&path), &curves))
}

/// Ratios over limits, a curve for each mode.
fn draw(path: &Path, curves: &[Curve]) -> Result<()> {
    let plot = Plot {
        title: "Pipeline of three stages within a limit of memory",
        x_name: "limit of memory in MB, for rows of 100 KB",
        y_name: "time by its bound",
        x: &LIMITS_MB.map(|megabytes| megabytes as f64),
        y: (RATIO_MIN, RATIO_MAX),
        curves,
    };
    plot.write(path)
}

/// One run: how long it took by its bound; nothing where a mode cannot run within the limit.
async fn ratio(
    server: &Server,
    rest: &mut Rest,
    plan: &Plan,
    mode: &str,
    megabytes: u64,
) -> Result<Option<f64>> {
    let limit_bytes = megabytes * plan.row_bytes * 10;
    let request = json!({ "mode": mode, "limit_bytes": limit_bytes, "row_bytes": plan.row_bytes });
    let (measured, cost) = match job::measured(server, rest, "pipeline-memory", &request).await {
        Ok(measured) => measured,
        Err(error) if mode == "no-repartition" => {
            let figures = json!({ "limit_bytes": limit_bytes, "failed": format!("{error:#}") });
            report::line("memory", mode, figures);
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    ensure!(measured["complete"] == true, "rows are missing, or there twice: {measured}");
    let library = &measured["report"];
    let peak = library["peak_bytes"].as_u64().context("no peak")?;
    ensure!(peak <= limit_bytes, "{peak} bytes are over the limit of {limit_bytes}");
    let ratio = cost.seconds / measured["bound_seconds"].as_f64().context("no bound")?;
    let tasks = |stage: &Value| stage[1]["tasks"].as_u64();
    let figures = json!({
        "limit_bytes": limit_bytes, "row_bytes": plan.row_bytes, "seconds": cost.seconds, "ratio_to_bound": ratio,
        "peak_share_of_limit": peak as f64 / limit_bytes as f64, "cpu_seconds": cost.cpu_seconds,
        "tasks": library["stages"].as_array().into_iter().flatten().filter_map(tasks).sum::<u64>(),
    });
    report::line("memory", mode, figures);
    Ok(Some(ratio))
}
