//! `groupby`: 100 million rows of an integer key, one in a million, and a number: count and sum by key, and with extremes.

use anyhow::{Result, ensure};
use serde_json::json;

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
    let (rows, distinct): (u64, u64) = (number(0, ROWS)?, number(1, DISTINCT)?);
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/groupby/fanfold.toml");
    rest.deploy("groupby", manifest, &std::fs::read(component("groupby")?)?).await?;
    let data = json!({ "prefix": "rows/", "rows": rows, "distinct": distinct, "objects": rows.div_ceil(OBJECT_ROWS) });
    let made = job::start(&mut rest, "groupby", "generate", &data).await?;
    job::end(&mut rest, &made).await?;

    for aggregates in [json!(["count", "sum"]), json!(["count", "sum", "mean", "min", "max"])] {
        let mut checksum = None;
        for round in 0..ROUNDS {
            let request = json!({ "input": "rows/", "key": "key", "value": "value", "aggregates": aggregates, "top": 1 });
            let (result, cost) = job::measured(&server, &mut rest, "groupby", &request).await?;
            ensure!(result["rows"] == rows, "{rows} rows went in: {result}");
            let first = checksum.get_or_insert_with(|| result["checksum"].clone());
            ensure!(*first == result["checksum"], "two runs differ: {first} and {result}");
            let figures = json!({
                "round": round, "rows": rows, "groups": result["groups"], "seconds": cost.seconds,
                "cpu_seconds": cost.cpu_seconds, "ns_cpu_per_row": cost.cpu_seconds * 1e9 / rows as f64,
                "bytes": result["bytes"], "exchanged_bytes": result["exchanged_bytes"], "maps": result["maps"],
                "reducers": result["reducers"], "resident_bytes": report::resident_bytes(server.pid()),
            });
            report::line("groupby", &aggregates.to_string(), figures);
        }
    }
    Ok(())
}
