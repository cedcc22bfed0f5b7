//! `kernels`: the shuffle library's inner loops in WebAssembly against the same code, natively, in this process.

use ::kernels::{Kernel, Report, Request};
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{
    report,
    rest::Rest,
    server::{Server, component},
};

/// What is timed: name, kernel, rows or records, different keys.
const CASES: [(&str, Kernel, u32, u32); 7] = [
    ("aggregate, 1,000 keys", Kernel::Aggregate, 8_000_000, 1_000),
    ("aggregate, 100,000 keys", Kernel::Aggregate, 8_000_000, 100_000),
    ("aggregate, 1,000,000 keys", Kernel::Aggregate, 8_000_000, 1_000_000),
    ("sort, 20,000 records", Kernel::Sort, 20_000, 1),
    ("sort, 320,000 records", Kernel::Sort, 320_000, 1),
    ("merge, 40 runs", Kernel::Merge, 320_000, 1),
    // So few that the native allocator keeps their memory from round to round, as that of a guest does.
    ("deal, 512 columns", Kernel::Deal, 240_000, 1),
];
/// Rows or records of one case in one go, all rounds together: short cases have more rounds, of which a few are undisturbed.
const GO_ROWS: u32 = 2_000_000;
/// Rounds of one case in one go, at least.
const ROUNDS_MIN: u32 = 3;
/// Goes: both sides take turns, so that what else the machine does meets both. The least time of each counts, which nothing
/// disturbed.
const GOES: usize = 9;

/// Runs the benchmark.
pub async fn run(_: &[String]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold(dir.path())?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/kernels/fanfold.toml");
    rest.deploy("kernels", manifest, &std::fs::read(component("kernels")?)?).await?;
    for (what, kernel, rows, distinct) in CASES {
        let request = Request { kernel, rows, distinct, rounds: (GO_ROWS / rows).max(ROUNDS_MIN) };
        let (mut wasm, mut native) = (u64::MAX, u64::MAX);
        for _ in 0..GOES {
            let answer = rest.call("kernels", serde_json::to_vec(&json!(request))?).await?;
            let there: Report = serde_json::from_slice(&answer.body)?;
            let here = ::kernels::kernels(request).map_err(|error| anyhow::anyhow!("{error}"))?;
            ensure!(there.checksum == here.checksum, "{what}: the results differ");
            wasm = wasm.min(least(&there).context("no rounds")?);
            native = native.min(least(&here).context("no rounds")?);
        }
        let per_row = |ns: u64| ns as f64 / f64::from(rows);
        let figures = json!({
            "rows": rows, "wasm_ns_per_row": per_row(wasm), "native_ns_per_row": per_row(native),
            "ratio": wasm as f64 / native as f64,
        });
        report::line("kernels", what, figures);
    }
    Ok(())
}

fn least(report: &Report) -> Option<u64> {
    report.ns.iter().copied().min()
}
