//! `gpu`: what functions get of a gpu, on whatever adapter there is: a tiled product of matrices against the multiply-adds that the
//! adapter does in registers, partitions into buffers and back, a partition that is kept in one, and a submission that does nothing.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    report,
    rest::Rest,
    server::{Server, component},
};

/// Memory for the buffers of the job: three matrices and the partition.
const GPU_MEMORY: &str = "512MiB";
const ROUNDS: usize = 3;

/// Runs the benchmark. An argument is the rows and columns of a matrix.
pub async fn run(args: &[String]) -> Result<()> {
    let mut request = json!({});
    if let Some(n) = args.first() {
        request["n"] = json!(n.parse::<u32>()?);
    }
    let dir = tempfile::tempdir()?;
    let server = Server::fanfold_with(dir.path(), &["--gpus", "1", "--gpu-memory", GPU_MEMORY])?;
    let mut rest = Rest::connect(server.address).await?;
    let manifest = include_str!("../../functions/gpu-speed/fanfold.toml");
    rest.deploy("gpu-speed", manifest, &std::fs::read(component("gpu-speed")?)?).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let answer = rest.call("gpu-speed", request.to_string()).await?;
        rounds.push(serde_json::from_slice::<Value>(&answer.body).context("gpu-speed answers JSON")?);
    }
    let figure = |name: &str| {
        let figures = rounds.iter().map(|round| round[name].as_f64().with_context(|| format!("no {name}")));
        Ok::<_, anyhow::Error>(report::median(figures.collect::<Result<_>>()?))
    };
    let f16 = rounds[0]["matmul_f16_gflops"].is_number().then(|| figure("matmul_f16_gflops")).transpose()?;
    let kept = |n: usize| {
        let figures = rounds.iter().map(|round| round["kept_ms"][n].as_f64().context("no kept_ms"));
        Ok::<_, anyhow::Error>(report::median(figures.collect::<Result<_>>()?))
    };
    let (matmul, peak) = (figure("matmul_gflops")?, figure("peak_gflops")?);
    let figures = json!({
        "software": rounds[0]["software"],
        "matmul_gflops": matmul,
        "matmul_f16_gflops": f16,
        "peak_gflops": peak,
        "matmul_by_peak": matmul / peak,
        "load_gbs": figure("load_gbs")?,
        "store_gbs": figure("store_gbs")?,
        "dispatch_us": figure("dispatch_us")?,
        "kept_first_ms": kept(0)?,
        "kept_again_ms": kept(1)?,
    });
    report::line("gpu", rounds[0]["adapter"].as_str().unwrap_or_default(), figures);
    Ok(())
}
