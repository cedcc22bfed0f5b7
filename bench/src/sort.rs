//! `sort`: CloudSort in small: 100-byte records, generated, sorted and validated, embedded or on a cluster with an S3 server and
//! Redis. Beside the time stands the bound that this machine sets, and what the job's own bill says.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use fanfold_shuffle::strategy::auto::Spill;
use serde_json::{Value, json};

use crate::{bound::Bound, cluster::Platform, job, report, rest::Rest, server::component};

/// Of all executors together, for partitions; the rest of it is for functions.
const CACHE_BYTES: u64 = 320 << 20;
const MEMORY_BYTES: u64 = 1 << 30;
/// For functions, of each executor, where partitions have more: room for a task beside the driver, which waits.
const FUNCTIONS_BYTES: u64 = 512 << 20;

/// Memory that somebody who sorts may take, in the page cache too, by the size of the input.
pub const MEMORY_SHARE: u64 = 3;

/// What to measure.
#[derive(Clone)]
pub struct Plan {
    /// Of records.
    pub bytes: u64,
    /// Its name.
    pub strategy: String,
    /// Processes of one slot; none: `fanfold up` with as many slots as cores.
    executors: Option<usize>,
    /// How often.
    pub rounds: usize,
    objects: Option<u64>,
    reducers: Option<u64>,
    /// For partitions, of all executors together.
    pub cache_bytes: u64,
    /// For partitions and functions, of all executors together, if it is said.
    memory_bytes: Option<u64>,
    /// Where partitions are that do not fit there.
    pub spill: Spill,
    /// Each round is two sorts, and in the second one an executor is killed when half of the tasks are done.
    kill: bool,
    /// Where to draw what was measured, if it can be.
    pub plots: Option<PathBuf>,
}

impl Plan {
    /// Takes the arguments of [`run`].
    pub fn parse(args: &[String]) -> Result<Self> {
        let mut plan = Self {
            bytes: 1_000_000_000,
            strategy: "auto".to_owned(),
            executors: None,
            rounds: 3,
            objects: None,
            reducers: None,
            cache_bytes: CACHE_BYTES,
            memory_bytes: None,
            spill: Spill::Disk,
            kill: false,
            plots: None,
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            if flag == "--kill" {
                plan.kill = true;
                continue;
            }
            let value = args.next().with_context(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--size" => plan.bytes = parse_size(value)?,
                "--strategy" => plan.strategy.clone_from(value),
                "--executors" => plan.executors = Some(value.parse()?),
                "--rounds" => plan.rounds = value.parse()?,
                "--objects" => plan.objects = Some(value.parse()?),
                "--reducers" => plan.reducers = Some(value.parse()?),
                "--cache" => plan.cache_bytes = parse_size(value)?,
                "--memory" => plan.memory_bytes = Some(parse_size(value)?),
                "--plots" => plan.plots = Some(value.into()),
                _ => bail!("unknown: {flag}"),
            }
        }
        Ok(plan)
    }
}

fn parse_size(text: &str) -> Result<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "GB" => 1_000_000_000,
        "MB" => 1_000_000,
        "" => 1,
        _ => bail!("`{text}`: say a size as 4GB or 500MB"),
    };
    Ok(number.parse::<u64>()? * unit)
}

/// Runs `sort`. Arguments: `--size 1GB|4GB|10GB`, `--strategy NAME`, `--executors N` (a cluster), `--rounds N`, `--objects N`,
/// `--reducers N`, `--cache SIZE` (for partitions, of all executors together), `--memory SIZE` (for functions too), `--kill` (each
/// round sorts twice, and in the second sort an executor is killed at half of the tasks).
pub async fn run(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    let dir = tempfile::tempdir()?;
    let mut bench = Bench::start(dir.path(), &plan).await?;
    if plan.kill {
        return kills(&mut bench, &plan).await;
    }
    for round in 0..plan.rounds {
        report::warm_memory(MEMORY_SHARE * plan.bytes)?;
        let figures = bench.round(&plan, round, json!({})).await?;
        report::line("sort", &plan.strategy, figures);
    }
    Ok(())
}

/// Undisturbed sorts and such with a kill, in turn: a cluster's first one, which loads code, is not counted.
async fn kills(bench: &mut Bench, plan: &Plan) -> Result<()> {
    let mut seconds = [Vec::new(), Vec::new()];
    let sorts = [false].into_iter().chain((0..plan.rounds).flat_map(|_| [false, true]));
    for (n, kill) in sorts.enumerate() {
        report::warm_memory(MEMORY_SHARE * plan.bytes)?;
        let figures = bench.round(&Plan { kill, ..plan.clone() }, n, json!({})).await?;
        bench.remove(n).await?;
        if n > 0 {
            seconds[usize::from(kill)].extend(figures["seconds"].as_f64());
            report::line("sort", if kill { "killed" } else { "undisturbed" }, figures);
        }
    }
    let [undisturbed, killed] = seconds.map(report::median);
    let figures = json!({ "undisturbed_seconds": undisturbed, "killed_seconds": killed, "ratio": killed / undisturbed });
    report::line("sort", "medians", figures);
    Ok(())
}

fn platform(dir: &Path, plan: &Plan) -> Result<Platform> {
    let share = plan.executors.unwrap_or(1) as u64;
    let memory = match (plan.memory_bytes, plan.cache_bytes) {
        (Some(memory), _) => memory,
        // A gibibyte has to do for all executors together.
        (None, ..=CACHE_BYTES) => MEMORY_BYTES,
        (None, cache) => cache + share * FUNCTIONS_BYTES,
    } / share;
    let (memory, cache) = (memory.to_string(), (plan.cache_bytes / share).to_string());
    let mut args = vec!["--memory", &memory, "--cache-memory", &cache];
    if plan.spill == Spill::Store {
        args.extend(["--spill-max", "0"]);
    }
    Platform::start(dir, plan.executors, &args)
}

/// A platform with the functions deployed and the input generated.
pub struct Bench {
    platform: Platform,
    rest: Rest,
    made: Value,
    bound: Option<Bound>,
}

impl Bench {
    /// Starts one on `dir`.
    pub async fn start(dir: &Path, plan: &Plan) -> Result<Self> {
        let platform = platform(dir, plan)?;
        let mut rest = Rest::connect(platform.server().address).await?;
        rest.joined(plan.executors.unwrap_or(1)).await?;
        let manifests = [
            ("gensort", include_str!("../../functions/gensort/fanfold.toml")),
            ("sort", include_str!("../../functions/sort/fanfold.toml")),
            ("valsort", include_str!("../../functions/valsort/fanfold.toml")),
        ];
        for (name, manifest) in manifests {
            rest.deploy(name, manifest, &std::fs::read(component(name)?)?).await?;
        }
        let mut data = json!({ "prefix": "in/", "bytes": plan.bytes });
        if let Some(objects) = plan.objects {
            data["objects"] = objects.into();
        }
        let made = job::start(&mut rest, "gensort", "", &data).await?;
        job::end(&mut rest, &made).await?;
        let made = job::output(&mut rest, &made).await?;
        let bound = match &platform {
            Platform::Up(_) => {
                report::warm_memory(MEMORY_SHARE * plan.bytes)?;
                Some(Bound::measure(&dir.join("objects"), dir, plan.bytes, plan.cache_bytes, cores())?)
            }
            Platform::Cluster(_) => None,
        };
        Ok(Self { platform, rest, made, bound })
    }

    /// Sorts once, and validates; over a new connection: one that has long been idle may be closed.
    pub async fn round(&mut self, plan: &Plan, round: usize, more: Value) -> Result<Value> {
        self.rest = Rest::connect(self.platform.server().address).await?;
        let output = format!("out-{round}/");
        let slots = plan.executors.unwrap_or_else(cores);
        let mut sort = json!({
            "input": "in/", "output": output, "strategy": plan.strategy, "slots": slots, "memory_bytes": plan.cache_bytes, "spill": plan.spill,
        });
        if let Some(reducers) = plan.reducers {
            sort["reducers"] = reducers.into();
        }
        if let (Value::Object(sort), Value::Object(more)) = (&mut sort, more) {
            sort.extend(more);
        }
        let (cpu_before, begin) = (self.platform.cpu_us(), Instant::now());
        let id = job::start(&mut self.rest, "sort", "", &sort).await?;
        let killed_us = if plan.kill { self.kill_at_half(&id).await? } else { 0 };
        let view = job::end(&mut self.rest, &id).await?;
        let seconds = begin.elapsed().as_secs_f64();
        // What a process that is gone had used is not counted by the system any more.
        let cpu_s = (self.platform.cpu_us() + killed_us - cpu_before) as f64 / 1e6;
        let peaks: Vec<u64> = self.platform.workers().into_iter().map(report::peak_bytes).collect();
        let done = job::output(&mut self.rest, &id).await?;
        self.validate(&output).await?;
        let bill = self.rest.send("GET", &format!("/v1/jobs/{id}/cost"), "", "").await?;
        let bill: Value = serde_json::from_slice(&bill.body)?;
        let terabytes = plan.bytes as f64 / 1e12;
        let per_tb = |amount: &Value| amount.as_f64().map(|dollars| dollars / terabytes);
        let mut figures = json!({
            "round": round, "bytes": plan.bytes, "seconds": seconds, "mb_per_second": plan.bytes as f64 / 1e6 / seconds,
            "cpu_s_per_gb": cpu_s / (plan.bytes as f64 / 1e9), "peak_bytes": peaks.iter().sum::<u64>(), "executors": plan.executors,
            "strategy": done["stages"]["strategy"], "reason": done["reason"], "retries": view["progress"]["retries"],
            "bytes_read": view["usage"]["bytes_read"], "bytes_written": view["usage"]["bytes_written"],
            "dollars_per_tb": per_tb(&bill["total"]), "request_dollars_per_tb": per_tb(&bill["requests"]["all"]["amount"]),
            "requests": bill["requests"],
        });
        if let Some(bound) = &self.bound {
            figures["bound"] = json!({
                "seconds": bound.seconds(), "read": bound.read, "sort": bound.sort, "write": bound.write,
                "write_synced": bound.write_synced, "passes": bound.passes,
            });
            figures["of_bound"] = (bound.seconds() / seconds).into();
        }
        Ok(figures)
    }

    /// Keys of a round's output.
    async fn output(&mut self, round: usize) -> Result<Vec<String>> {
        let list =
            self.rest.send("GET", &format!("/v1/objects?prefix=out-{round}/&limit=1000"), "", "").await?;
        let list: Value = serde_json::from_slice(&list.body)?;
        let keys = list["items"].as_array().context("no list of objects")?.iter();
        keys.map(|object| Ok(object["key"].as_str().context("an object without a key")?.to_owned())).collect()
    }

    /// Removes a round's output.
    pub async fn remove(&mut self, round: usize) -> Result<()> {
        for key in self.output(round).await? {
            self.rest.send("DELETE", &format!("/v1/objects/{key}"), "", "").await?;
        }
        Ok(())
    }

    /// Of a round's output: equal where all objects are, byte for byte.
    pub async fn digest(&mut self, round: usize) -> Result<u64> {
        let mut hashes = Vec::new();
        for key in self.output(round).await? {
            let body = self.rest.send("GET", &format!("/v1/objects/{key}"), "", "").await?.body;
            hashes.extend(fanfold_shuffle::hash(&body).to_le_bytes());
        }
        ensure!(!hashes.is_empty(), "round {round} has no output");
        Ok(fanfold_shuffle::hash(&hashes))
    }

    async fn validate(&mut self, output: &str) -> Result<()> {
        let check =
            json!({ "input": output, "checksum": self.made["checksum"], "records": self.made["records"] });
        let id = job::start(&mut self.rest, "valsort", "", &check).await?;
        job::end(&mut self.rest, &id).await?;
        let found = job::output(&mut self.rest, &id).await?;
        ensure!(found["valid"] == true, "the output is not what went in, sorted: {found}");
        Ok(())
    }

    /// Kills an executor when half of the tasks are done, and starts another one. The processor time that it had used.
    async fn kill_at_half(&mut self, id: &str) -> Result<u64> {
        let Platform::Cluster(cluster) = &mut self.platform else { bail!("--kill needs --executors") };
        loop {
            let view = self.rest.send("GET", &format!("/v1/jobs/{id}"), "", "").await?;
            let view: Value = serde_json::from_slice(&view.body)?;
            let count = |name: &str| view["progress"][name].as_u64().unwrap_or(0);
            // Reducers are submitted with the maps, so the tasks are known early.
            if count("tasks") > 8 && count("finished") * 2 >= count("tasks") {
                break;
            }
            ensure!(view["state"] == "running" || view["state"] == "queued", "too short a job: {view}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let victim = cluster.executors.remove(0);
        let used = report::cpu_us(victim.pid());
        drop(victim);
        cluster.add_executor()?;
        Ok(used)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
