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
/// Goes: both sides take turns, so that what else the machine does meets both, each time in other memory, because which pages a
/// process happens to get makes a fifth of the time of the small sort. The least time of each counts, which nothing disturbed.
const GOES: usize = 9;

/// Runs the benchmark.
pub async fn run(_: &[String]) -> Result<()> {
    let mut least = [Times { wasm: u64::MAX, native: u64::MAX }; CASES.len()];
    for _ in 0..GOES {
        let dir = tempfile::tempdir()?;
        let server = Server::fanfold(dir.path())?;
        let mut rest = Rest::connect(server.address).await?;
        let manifest = include_str!("../../functions/kernels/fanfold.toml");
        rest.deploy("kernels", manifest, &std::fs::read(component("kernels")?)?).await?;
        for ((what, kernel, rows, distinct), least) in CASES.into_iter().zip(&mut least) {
            let request = Request { kernel, rows, distinct, rounds: (GO_ROWS / rows).max(ROUNDS_MIN) };
            let times = go(&mut rest, request).await.context(what)?;
            *least = Times { wasm: least.wasm.min(times.wasm), native: least.native.min(times.native) };
        }
    }
    for ((what, _, rows, _), Times { wasm, native }) in CASES.into_iter().zip(least) {
        let per_row = |ns: u64| ns as f64 / f64::from(rows);
        let figures = json!({
            "rows": rows, "wasm_ns_per_row": per_row(wasm), "native_ns_per_row": per_row(native),
            "ratio": wasm as f64 / native as f64,
        });
        report::line("kernels", what, figures);
    }
    Ok(())
}

/// Nanoseconds of the fastest round.
#[derive(Clone, Copy)]
struct Times {
    wasm: u64,
    native: u64,
}

async fn go(rest: &mut Rest, request: Request) -> Result<Times> {
    let answer = rest.call("kernels", serde_json::to_vec(&json!(request))?).await?;
    let there: Report = serde_json::from_slice(&answer.body)?;
    let here = ::kernels::kernels(request).map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(there.checksum == here.checksum, "the results differ");
    Ok(Times { wasm: least(&there)?, native: least(&here)? })
}

fn least(report: &Report) -> Result<u64> {
    report.ns.iter().copied().min().context("no rounds")
}
