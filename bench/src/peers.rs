//! `peers`: our sort and groupby, embedded, in turn with what others would be used for the same: a shuffle written by hand for Ray
//! and NumPy, NumPy over processes and files, DuckDB, Polars, Dask, Ray Data, Spark (programs in `bench/peers`, which validate what
//! they made).
//!
//! All take the same files, which the page cache has, find memory that the host has given already, and write to
//! the same disk, one after the other in each round, so that a ratio is of one run on one machine. Starting a
//! server, Ray or a pool of processes is not measured. What ours makes is on the disk when it ends; theirs is in the page
//! cache, so there are two ratios: to when they end, and to when what they made is on the disk too. Memory: of ours the most
//! that was resident, of peers what no file backs, of all their processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{bound, groupby, report, sort};

/// Programs and arguments after their input and output.
const SORTS: [(&str, &[&str]); 9] = [
    ("sort_ray_numpy.py", &[]),
    ("sort_ray_numpy.py", &["--push"]),
    ("sort_numpy.py", &[]),
    ("sort_numpy.py", &["--lexsort"]),
    ("sort_duckdb.py", &[]),
    ("sort_polars.py", &[]),
    ("sort_dask.py", &[]),
    ("sort_ray_data.py", &[]),
    ("sort_spark.py", &[]),
];
const GROUPBYS: [&str; 2] = ["duckdb", "polars"];

/// Runs the benchmark. Arguments as for `sort`; its rounds are those of groupby too.
pub async fn run(args: &[String]) -> Result<()> {
    let plan = sort::Plan::parse(args)?;
    sorts(&plan).await?;
    groupbys(plan.rounds).await
}

async fn sorts(plan: &sort::Plan) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let objects = dir.path().join("objects");
    let mut bench = sort::Bench::start(dir.path(), plan).await?;
    let input = folder(&objects, "in")?;
    let mut ratios = Ratios::default();
    for round in 0..plan.rounds {
        prepare(&input)?;
        let ours = bench.round(plan, round, json!({})).await?;
        // Nobody shall wait for the disk because of what was validated already.
        std::fs::remove_dir_all(folder(&objects, &format!("out-{round}"))?)?;
        report::line("peers sort", "fanfold", ours.clone());
        for (program, more) in SORTS {
            let output = tempfile::tempdir_in(dir.path())?;
            let mut command = python(program)?;
            prepare(&input)?;
            let theirs = measured(command.arg(&input).arg(output.path()).args(more))?;
            ratios.add("peers sort", round, &ours, theirs)?;
        }
    }
    ratios.report("peers sort");
    Ok(())
}

async fn groupbys(rounds: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut bench = groupby::Bench::of_default_size(dir.path()).await?;
    let input = folder(&dir.path().join("objects"), "rows")?;
    let mut ratios = Ratios::default();
    for round in 0..rounds {
        prepare(&input)?;
        let ours = bench.round(&json!(["count", "sum"]), round).await?;
        report::line("peers groupby", "fanfold", ours.clone());
        for peer in GROUPBYS {
            prepare(&input)?;
            let theirs = measured(python("groupby.py")?.arg(peer).arg(&input))?;
            ratios.add("peers groupby", round, &ours, theirs)?;
        }
    }
    ratios.report("peers groupby");
    Ok(())
}

/// Our time divided by theirs, by peer, of every round: to when they end, and to when their output is on the disk.
#[derive(Default)]
struct Ratios(BTreeMap<String, Vec<(f64, f64)>>);

impl Ratios {
    /// Prints what a peer took beside what we took in the same round.
    fn add(&mut self, bench: &str, round: usize, ours: &Value, mut theirs: Value) -> Result<()> {
        let seconds = |of: &Value, name: &str| of[name].as_f64();
        let ours = seconds(ours, "seconds").context("no seconds were measured")?;
        let ended = seconds(&theirs, "seconds").context("the peer measured no seconds")?;
        let (to_end, to_disk) = (ours / ended, ours / seconds(&theirs, "synced_seconds").unwrap_or(ended));
        let peer = theirs["peer"].as_str().context("the peer does not say who it is")?.to_owned();
        theirs["round"] = round.into();
        theirs["ours_by_theirs"] = to_end.into();
        theirs["ours_by_theirs_synced"] = to_disk.into();
        report::line(bench, &peer, theirs);
        self.0.entry(peer).or_default().push((to_end, to_disk));
        Ok(())
    }

    /// Prints the medians.
    fn report(self, bench: &str) {
        let medians = self.0.into_iter().map(|(peer, ratios)| {
            let (to_end, to_disk) = ratios.into_iter().unzip();
            (peer, json!({ "ended": report::median(to_end), "synced": report::median(to_disk) }))
        });
        let medians: BTreeMap<String, Value> = medians.collect();
        report::line(bench, "ours by theirs, medians", json!(medians));
    }
}

/// Where the objects under a prefix lie: folders of a local store have a mark at the end of their names.
fn folder(objects: &Path, prefix: &str) -> Result<PathBuf> {
    let marked = objects.join(format!("{prefix}+"));
    ensure!(marked.is_dir(), "no objects in {}", marked.display());
    Ok(marked)
}

/// Brings the machine to the same state before everybody: there is memory for what is written in between, for output and for
/// programs, and the input is in the page cache.
fn prepare(input: &Path) -> Result<()> {
    let mut files = Vec::new();
    bound::list(input, &mut files)?;
    let sizes = files.iter().map(|file| Ok(file.metadata()?.len()));
    report::warm_memory(sort::MEMORY_SHARE * sizes.sum::<Result<u64>>()?)?;
    for file in files {
        std::io::copy(&mut std::fs::File::open(file)?, &mut std::io::sink())?;
    }
    Ok(())
}

/// One of the programs, to be run with the packages it needs.
fn python(program: &str) -> Result<Command> {
    let variable = |name: &str| -> Result<OsString> {
        std::env::var_os(name).with_context(|| format!("{name} is not set: use `cargo xtask bench peers`"))
    };
    let mut command = Command::new(variable("FANFOLD_PEERS_PYTHON")?);
    command.arg(Path::new(&variable("FANFOLD_PEERS")?).join(program));
    Ok(command)
}

/// Runs a program; the line of JSON that it ends with.
fn measured(command: &mut Command) -> Result<Value> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("could not start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed ({})", output.status);
    let output = String::from_utf8_lossy(&output.stdout);
    let line = output.lines().last().context("the program printed nothing")?;
    serde_json::from_str(line).with_context(|| format!("no line of JSON: {line}"))
}
