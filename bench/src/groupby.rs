//! `groupby`: 100 million rows of an integer key, one in a million, and a number: count and sum by key, and with extremes.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    job, report,
    rest::Rest,
    server::{Server, component},
};

const ROWS: u64 = 100_000_000;
const DISTINCT: u64 = 1_000_000;
/// Rows of one object.
const OBJECT_ROWS: u64 = 1_000_000;
const ROUNDS: usize = 3;

/// Runs the benchmark. Arguments: rows, then different keys.
pub async fn run(args: &[String]) -> Result<()> {
    let number =
        |at: usize, default| args.get(at).map(|n| n.parse()).transpose().map(|n| n.unwrap_or(default));
    let dir = tempfile::tempdir()?;
    let mut bench = Bench::start(dir.path(), number(0, ROWS)?, number(1, DISTINCT)?).await?;
    for aggregates in [json!(["count", "sum"]), json!(["count", "sum", "mean", "min", "max"])] {
        let mut checksum = None;
        for round in 0..ROUNDS {
            let figures = bench.round(&aggregates, round).await?;
            let first = checksum.get_or_insert_with(|| figures["checksum"].clone());
            ensure!(*first == figures["checksum"], "two runs differ: {first} and {figures}");
            report::line("groupby", &aggregates.to_string(), figures);
        }
    }
    Ok(())
}

/// A platform with the function deployed and the rows generated, below `objects/` as Arrow files.
pub struct Bench {
    server: Server,
    rest: Rest,
    rows: u64,
}

impl Bench {
    /// The rows that the benchmark is about.
    pub async fn of_default_size(dir: &Path) -> Result<Self> {
        Self::start(dir, ROWS, DISTINCT).await
    }

    async fn start(dir: &Path, rows: u64, distinct: u64) -> Result<Self> {
        let server = Server::fanfold(dir)?;
        let mut rest = Rest::connect(server.address).await?;
        let manifest = include_str!("../../functions/groupby/fanfold.toml");
        rest.deploy("groupby", manifest, &std::fs::read(component("groupby")?)?).await?;
        let objects = rows.div_ceil(OBJECT_ROWS);
        let data = json!({ "prefix": "rows/", "rows": rows, "distinct": distinct, "objects": objects });
        let made = job::start(&mut rest, "groupby", "generate", &data).await?;
        job::end(&mut rest, &made).await?;
        Ok(Self { server, rest, rows })
    }

    /// Groups once, over a new connection: one that has long been idle may be closed.
    pub async fn round(&mut self, aggregates: &Value, round: usize) -> Result<Value> {
        self.rest = Rest::connect(self.server.address).await?;
        let request =
            json!({ "input": "rows/", "key": "key", "value": "value", "aggregates": aggregates, "top": 1 });
        let (result, cost) = job::measured(&self.server, &mut self.rest, "groupby", &request).await?;
        let rows = self.rows;
        ensure!(result["rows"] == rows, "{rows} rows went in: {result}");
        Ok(json!({
            "round": round, "rows": rows, "groups": result["groups"], "seconds": cost.seconds,
            "cpu_seconds": cost.cpu_seconds, "ns_cpu_per_row": cost.cpu_seconds * 1e9 / rows as f64,
            "bytes": result["bytes"], "exchanged_bytes": result["exchanged_bytes"], "maps": result["maps"],
            "reducers": result["reducers"], "checksum": result["checksum"],
            "resident_bytes": report::resident_bytes(self.server.pid()),
            "peak_bytes": report::peak_bytes(self.server.pid()),
        }))
    }
}
