//! `strategies`: the sort by every strategy, over numbers of partitions, with data that does not fit into memory and data that
//! does; how long it takes, and how many requests it makes. All of them must have the same output.
//!
//! Executors have no disk, so that what does not fit into memory makes requests to the object store.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanfold_shuffle::strategy::auto::Spill;
use serde_json::json;

use crate::{
    plot::{Curve, Plot},
    report,
    sort::{Bench, Plan},
};

const STRATEGIES: [&str; 4] = ["simple", "merge", "push", "push_star"];
const PARTITIONS: [u64; 3] = [50, 100, 200];

/// Runs the benchmark. Arguments as for `sort`, without `--strategy`; `--plots FOLDER` draws it there.
pub async fn run(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    for (place, cache_bytes) in [("beyond", plan.bytes / 4), ("within", plan.bytes * 2)] {
        let mut plan = plan.clone();
        (plan.cache_bytes, plan.spill) = (cache_bytes, Spill::Store);
        let (seconds, requests) = measure(&plan).await?;
        if let Some(folder) = &plan.plots {
            let gigabytes = plan.bytes as f64 / 1e9;
            let title = |what: &str| format!("Sorting {gigabytes} GB {place} memory: {what}");
            let draw = |name: &str, y_name: &str, curves: &[Curve]| {
                draw(&folder.join(format!("strategies-{name}-{place}.svg")), &title(name), y_name, curves)
            };
            draw("time", "seconds", &seconds)?;
            draw("requests", "requests to the object store", &requests)?;
        }
    }
    Ok(())
}

/// Seconds and requests of every strategy.
async fn measure(plan: &Plan) -> Result<(Vec<Curve>, Vec<Curve>)> {
    let dir = tempfile::tempdir()?;
    let mut bench = Bench::start(dir.path(), plan).await?;
    let none = || STRATEGIES.map(|strategy| (strategy.to_owned(), Vec::new())).to_vec();
    let (mut seconds, mut requests): (Vec<Curve>, Vec<Curve>) = (none(), none());
    let mut round = 0;
    for partitions in PARTITIONS {
        let mut first = None;
        for (n, strategy) in STRATEGIES.into_iter().enumerate() {
            let sort = json!({ "split_bytes": plan.bytes / partitions, "reducers": partitions });
            let mut plan = plan.clone();
            strategy.clone_into(&mut plan.strategy);
            let mut figures = bench.round(&plan, round, sort).await?;
            let digest = bench.digest(round).await?;
            round += 1;
            ensure!(*first.get_or_insert(digest) == digest, "{strategy} has another output than the first");
            seconds[n].1.push(figures["seconds"].as_f64());
            requests[n].1.push(figures["requests"]["all"]["quantity"].as_f64());
            figures["partitions"] = partitions.into();
            figures["fits"] = (plan.cache_bytes > plan.bytes).into();
            report::line("strategies", strategy, figures);
        }
    }
    Ok((seconds, requests))
}

fn draw(path: &Path, title: &str, y_name: &str, curves: &[Curve]) -> Result<()> {
    let most = curves.iter().flat_map(|(_, values)| values).flatten().copied().fold(f64::NAN, f64::max);
    ensure!(most.is_finite(), "nothing was measured");
    let plot = Plot {
        title,
        x_name: "inputs and outputs",
        y_name,
        x: &PARTITIONS.map(|partitions| partitions as f64),
        y: (0.0, most),
        curves,
    };
    plot.write(path).context("a plot")
}
