//! `classify`: what a pipeline over a processor and a gpu gets of both.
//!
//! The real one: `functions/classify` on pictures that `genimages` draws, in images a second, beside what its halves do alone on the
//! same machine: decoding (the processor's bound) and naming what was decoded (the gpu's). A gpu in software computes on the same
//! processor; then the bound is what both halves take one after the other. And a simulated one, `functions/pipeline-balance`, whose
//! resources have equally much to do, all of them at once against one stage at a time.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    job, report,
    rest::Rest,
    server::{Server, component},
};

const ROUNDS: usize = 3;
const SLOTS: u32 = 2;
const PICTURES: u64 = 4000;
/// For the first run, which loads the function and the gpu's driver.
const FEW: u64 = 200;
const FUNCTIONS: [(&str, &str); 3] = [
    ("genimages", include_str!("../../functions/genimages/fanfold.toml")),
    ("classify", include_str!("../../functions/classify/fanfold.toml")),
    ("pipeline-balance", include_str!("../../functions/pipeline-balance/fanfold.toml")),
];

/// Runs the benchmark. Arguments: `--count N` pictures, `--only real|balanced`.
pub async fn run(args: &[String]) -> Result<()> {
    let (mut pictures, mut only) = (PICTURES, "");
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a value"))?;
        match (flag.as_str(), value.as_str()) {
            ("--count", count) => pictures = count.parse()?,
            ("--only", "real" | "balanced") => only = value,
            _ => bail!("unknown: {flag} {value}"),
        }
    }
    if only != "balanced" {
        real(pictures).await?;
    }
    if only != "real" {
        balanced().await?;
    }
    Ok(())
}

async fn started(arguments: &[&str]) -> Result<(tempfile::TempDir, Server, Rest)> {
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold_with(dir.path(), arguments)?;
    let mut rest = Rest::connect(server.address).await?;
    for (name, manifest) in FUNCTIONS {
        rest.deploy(name, manifest, &std::fs::read(component(name)?)?).await?;
    }
    Ok((dir, server, rest))
}

async fn real(pictures: u64) -> Result<()> {
    let slots = SLOTS.to_string();
    let (_dir, server, mut rest) = started(&["--slots", &slots, "--gpus", "1"]).await?;
    for (output, count) in [("few/", FEW), ("photos/", pictures)] {
        job::measured(&server, &mut rest, "genimages", &json!({ "output": output, "count": count })).await?;
    }
    let request = |more: Value| {
        let mut request = json!({ "input": "photos/", "output": "labels/", "slots": SLOTS });
        if let (Some(request), Value::Object(more)) = (request.as_object_mut(), more) {
            request.extend(more);
        }
        request
    };
    let few = request(json!({ "input": "few/" }));
    job::measured(&server, &mut rest, "classify", &few).await?;
    let runs = [
        ("cpu-only", request(json!({ "part": "decode", "output": "looks/" }))),
        ("gpu-only", request(json!({ "part": "label", "input": "looks/" }))),
        ("full", request(json!({}))),
        ("staged", request(json!({ "mode": "staged" }))),
    ];
    let mut rates: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, request), rates) in runs.iter().zip(&mut rates) {
            let (answer, cost) = job::measured(&server, &mut rest, "classify", request).await?;
            ensure!(answer["pictures"] == pictures, "pictures are missing: {answer}");
            rates.push(pictures as f64 / cost.seconds);
        }
    }
    let [cpu, gpu, full, staged] = rates.map(report::median);
    for ((what, _), images_per_s) in runs.iter().zip([cpu, gpu, full, staged]) {
        report::line("classify", what, json!({ "pictures": pictures, "images_per_s": images_per_s }));
    }
    let figures = json!({
        "full_by_cpu_only": full / cpu, "full_by_gpu_only": full / gpu,
        "full_by_one_after_the_other": full * (1.0 / cpu + 1.0 / gpu), "full_by_staged": full / staged,
    });
    report::line("classify", "ratios", figures);
    Ok(())
}

/// Three resources with equally much to do, and two: the objects are there.
async fn balanced() -> Result<()> {
    let resources = ["--slots", "4", "--resource", "connection=8", "--resource", "accelerator=2"];
    let (_dir, server, mut rest) = started(&resources).await?;
    let first = json!({ "objects": 4, "fetch_ms": 1, "decode_ms": 1, "infer_ms": 1, "model_ms": 1 });
    job::measured(&server, &mut rest, "pipeline-balance", &first).await?;
    // What is bound by its accelerators has half as much for the others to do.
    let cases = [("balanced-three", 400, 200), ("balanced-two", 0, 200), ("accelerator-bound", 200, 100)];
    for (what, fetch_ms, decode_ms) in cases {
        let mut took = [0.0; 2];
        let mut bounds = Value::Null;
        for (mode, seconds) in ["full", "staged"].into_iter().zip(&mut took) {
            let request = json!({ "mode": mode, "fetch_ms": fetch_ms, "decode_ms": decode_ms });
            let (measured, cost) = job::measured(&server, &mut rest, "pipeline-balance", &request).await?;
            ensure!(measured["complete"] == true, "rows are missing: {measured}");
            *seconds = cost.seconds;
            bounds = measured;
        }
        let [full, staged] = took;
        let figures = json!({
            "full_seconds": full, "staged_seconds": staged, "full_by_staged": staged / full,
            "of_bound": bounds["bound_seconds"].as_f64().map(|bound| bound / full),
            "bound_seconds": bounds["bound_seconds"], "one_after_the_other_seconds": bounds["sum_seconds"],
        });
        report::line("classify", what, figures);
    }
    Ok(())
}
