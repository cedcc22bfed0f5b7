//! `memory`: pipelines of a processor stage, another one and an accelerator stage within a limit of memory: how near to
//! their bound they are, in each mode of the pipeline library, and that they never go above the limit.
//!
//! The published memory microbenchmark with a tenth of its times and sizes; the work is time, so what is measured is the
//! scheduling, and what the bytes cost on the way. Rows are a tenth again unless `--row-bytes` says otherwise, and the limits
//! with them: the published sizes move 8 GB through each of three stages in 15 seconds, which is this machine's memory and
//! not the scheduler.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    job, report,
    rest::Rest,
    server::{Server, component},
};

const MODES: [&str; 5] = ["full", "staged", "static", "no-repartition", "no-adaptive"];
/// Of the limits, for rows of 100 KB.
const LIMITS_MB: [u64; 6] = [600, 800, 1000, 1200, 1400, 1600];
const ROW_BYTES: u64 = 10_000;
const SLOTS: &str = "8";
const ACCELERATORS: &str = "accelerator=4";

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

    let mut lines = Vec::new();
    for mode in &plan.modes {
        let mut ratios = Vec::new();
        for megabytes in LIMITS_MB {
            ratios.push((megabytes, ratio(&server, &mut rest, &plan, mode, megabytes).await?));
        }
        lines.push((mode.as_str(), ratios));
    }
    if let Some(path) = &plan.plot {
        std::fs::write(path, svg(&lines)).with_context(|| format!("could not write {path}"))?;
    }
    Ok(())
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

const COLORS: [&str; 5] = ["#0b6e4f", "#a23b72", "#c98a00", "#2e5eaa", "#b3401f"];
/// Of the plot, in pixels, without its margins.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 280.0;
/// The ratios it shows; larger ones are at its upper edge.
const RATIO_MIN: f64 = 0.9;
const RATIO_MAX: f64 = 2.0;

/// Ratios over limits, a line for each mode.
fn svg(lines: &[(&str, Vec<(u64, Option<f64>)>)]) -> String {
    let curves = (0..).zip(lines).map(|(n, (mode, ratios))| curve(n, mode, ratios));
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 780 350\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"780\" height=\"350\" fill=\"white\"/>\n",
    );
    svg += &axes();
    svg.extend(curves);
    svg + "</svg>\n"
}

/// Where a limit is.
fn x(megabytes: u64) -> f64 {
    60.0 + (megabytes - LIMITS_MB[0]) as f64 / (LIMITS_MB[5] - LIMITS_MB[0]) as f64 * WIDTH
}

/// Where a ratio is.
fn y(ratio: f64) -> f64 {
    20.0 + (RATIO_MAX - ratio.min(RATIO_MAX)) / (RATIO_MAX - RATIO_MIN) * HEIGHT
}

fn axes() -> String {
    let ratio = |tenths: u32| {
        let (ratio, at) = (f64::from(tenths) / 10.0, y(f64::from(tenths) / 10.0));
        let text = at + 4.0;
        format!(
            "<line x1=\"60\" x2=\"620\" y1=\"{at:.0}\" y2=\"{at:.0}\" stroke=\"#ddd\"/>\
             <text x=\"54\" y=\"{text:.0}\" text-anchor=\"end\">{ratio:.1}</text>\n"
        )
    };
    let limit = |&megabytes: &u64| {
        format!("<text x=\"{:.0}\" y=\"318\" text-anchor=\"middle\">{megabytes}</text>\n", x(megabytes))
    };
    let names = "<text x=\"340\" y=\"340\" text-anchor=\"middle\">limit of memory in MB, rows of 100 KB</text>\n\
                 <text x=\"16\" y=\"160\" transform=\"rotate(-90 16 160)\" text-anchor=\"middle\">time by bound</text>\n";
    let ratios = (10..=20).step_by(2).map(ratio);
    ratios.chain(LIMITS_MB.iter().map(limit)).chain([names.to_owned()]).collect()
}

/// One mode: its points, the line through them, and its name.
fn curve(n: usize, mode: &str, ratios: &[(u64, Option<f64>)]) -> String {
    let color = COLORS[n % COLORS.len()];
    let points: Vec<(f64, f64)> =
        ratios.iter().filter_map(|&(megabytes, ratio)| Some((x(megabytes), y(ratio?)))).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.0},{y:.1}")).collect();
    let line = format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\n");
    let dots = points
        .iter()
        .map(|(x, y)| format!("<circle cx=\"{x:.0}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>\n"));
    let (at, text) = (40 + 20 * n, 44 + 20 * n);
    let name = format!(
        "<line x1=\"640\" x2=\"660\" y1=\"{at}\" y2=\"{at}\" {line}<text x=\"666\" y=\"{text}\">{mode}</text>\n"
    );
    [format!("<polyline points=\"{}\" {line}", path.join(" "))]
        .into_iter()
        .chain(dots)
        .chain([name])
        .collect()
}
