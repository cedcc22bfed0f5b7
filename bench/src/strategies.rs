//! `strategies`: the sort by every strategy, over numbers of partitions, with data that does not fit into memory and data that
//! does; how long it takes, and how many requests it makes, medians of some rounds. All of them must have the same output.
//!
//! Executors have no disk, so that what does not fit into memory makes requests to the object store.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanfold_shuffle::strategy::auto::Spill;
use serde_json::{Value, json};

use crate::{
    plot::{Curve, Plot},
    report,
    sort::{Bench, MEMORY_SHARE, Plan},
};

/// The first is what the others are compared with.
const STRATEGIES: [&str; 4] = ["simple", "merge", "push", "push_star"];
const PARTITIONS: [u64; 3] = [50, 100, 200];
const DATA: [&str; 2] = ["beyond", "within"];

/// Runs the benchmark. Arguments as for `sort`, without `--strategy`; `--partitions 50,100` and `--data beyond|within` do only that;
/// `--plots FOLDER` draws it there.
pub async fn run(args: &[String]) -> Result<()> {
    let mut args = args.to_vec();
    let partitions = take(&mut args, "--partitions")?;
    let partitions: Vec<u64> = partitions
        .map_or(Ok(PARTITIONS.to_vec()), |list| list.split(',').map(str::parse).collect())
        .context("--partitions takes numbers with commas between them")?;
    ensure!(!partitions.contains(&0), "--partitions: at least one");
    let data = take(&mut args, "--data")?;
    ensure!(data.as_deref().is_none_or(|data| DATA.contains(&data)), "--data takes one of {DATA:?}");
    let plan = Plan::parse(&args)?;
    for (place, cache_bytes) in DATA.into_iter().zip([plan.bytes / 4, plan.bytes * 2]) {
        if data.as_ref().is_some_and(|data| data != place) {
            continue;
        }
        let mut plan = plan.clone();
        (plan.cache_bytes, plan.spill) = (cache_bytes, Spill::Store);
        let (seconds, requests) = measure(&plan, &partitions).await?;
        if let Some(folder) = &plan.plots {
            let gigabytes = plan.bytes as f64 / 1e9;
            let title = |what: &str| format!("Sorting {gigabytes} GB {place} memory: {what}");
            let draw = |name: &str, y_name: &str, curves: &[Curve]| {
                let path = folder.join(format!("strategies-{name}-{place}.svg"));
                draw(&path, &title(name), y_name, &partitions, curves)
            };
            draw("time", "seconds", &seconds)?;
            draw("requests", "requests to the object store", &requests)?;
        }
    }
    Ok(())
}

/// Takes a flag and its value out.
fn take(args: &mut Vec<String>, flag: &str) -> Result<Option<String>> {
    let Some(place) = args.iter().position(|arg| arg == flag) else { return Ok(None) };
    ensure!(place + 1 < args.len(), "{flag} needs a value");
    Ok(args.drain(place..place + 2).nth(1))
}

/// Seconds and requests of every strategy: medians.
async fn measure(plan: &Plan, partitions: &[u64]) -> Result<(Vec<Curve>, Vec<Curve>)> {
    let dir = tempfile::tempdir()?;
    let mut bench = Bench::start(dir.path(), plan).await?;
    let none = || STRATEGIES.map(|strategy| (strategy.to_owned(), Vec::new())).to_vec();
    let (mut seconds, mut requests, mut by_simple): (Vec<Curve>, Vec<Curve>, Vec<Curve>) =
        (none(), none(), none());
    // Executors fetch a function's code when they first need it. That is nobody's.
    bench.round(plan, 0, json!({})).await?;
    bench.remove(0).await?;
    for &count in partitions {
        let taken = sorts(&mut bench, plan, count).await?;
        let simple = taken[0].0.clone();
        for (n, (s, r)) in taken.into_iter().enumerate() {
            // Those of one round ran within a minute; from round to round a machine may be half as fast.
            let ratios = s.iter().zip(&simple).map(|(theirs, simple)| theirs / simple).collect();
            by_simple[n].1.push(Some(report::median(ratios)));
            seconds[n].1.push(Some(report::median(s)));
            requests[n].1.push(Some(report::median(r)));
        }
    }
    let by_strategy = |curves: &[Curve]| -> Value { curves.iter().cloned().collect() };
    report::line(
        "strategies",
        "medians",
        json!({
            "partitions": partitions, "fits": plan.cache_bytes > plan.bytes,
            "seconds": by_strategy(&seconds), "by_simple": by_strategy(&by_simple), "requests": by_strategy(&requests),
        }),
    );
    Ok((seconds, requests))
}

/// Seconds and requests of every strategy, a figure for each round.
async fn sorts(
    bench: &mut Bench,
    plan: &Plan,
    partitions: u64,
) -> Result<[(Vec<f64>, Vec<f64>); STRATEGIES.len()]> {
    let mut first = None;
    let mut taken = STRATEGIES.map(|_| (Vec::new(), Vec::new()));
    // Each has another place in each round.
    let turns = (0..plan.rounds)
        .flat_map(|round| (0..STRATEGIES.len()).map(move |n| (round, (round + n) % STRATEGIES.len())));
    for (round, n) in turns {
        let strategy = STRATEGIES[n];
        let sort = json!({ "split_bytes": plan.bytes / partitions, "reducers": partitions });
        let mut plan = plan.clone();
        strategy.clone_into(&mut plan.strategy);
        report::warm_memory(MEMORY_SHARE * plan.bytes)?;
        let mut figures = bench.round(&plan, round, sort).await?;
        let digest = bench.digest(round).await?;
        // The next one writes to the same place.
        bench.remove(round).await?;
        ensure!(*first.get_or_insert(digest) == digest, "{strategy} has another output than the first");
        taken[n].0.extend(figures["seconds"].as_f64());
        taken[n].1.extend(figures["requests"]["all"]["quantity"].as_f64());
        figures["partitions"] = partitions.into();
        figures["fits"] = (plan.cache_bytes > plan.bytes).into();
        report::line("strategies", strategy, figures);
    }
    Ok(taken)
}

fn draw(path: &Path, title: &str, y_name: &str, partitions: &[u64], curves: &[Curve]) -> Result<()> {
    let x: Vec<f64> = partitions.iter().map(|&count| count as f64).collect();
    let most = curves.iter().flat_map(|(_, values)| values).flatten().copied().fold(f64::NAN, f64::max);
    ensure!(most.is_finite(), "nothing was measured");
    let plot = Plot { title, x_name: "inputs and outputs", y_name, x: &x, y: (0.0, most), curves };
    plot.write(path).context("a plot")
}
