//! Measures what the executor itself costs, without a gateway: `measure COMPONENT.wasm [SECONDS]`.
//!
//! Prints one JSON line for each of: compiling in the child, loading compiled code from the disk by step (median of
//! many), the first call after it, and calls on fresh instances per second at 1 and 32 at once.

use std::{
    env, fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fanfold_executor::{Config, Executor, engine::Engine, load::Loader};
use fanfold_protocol::{
    Digest, Error, Manifest,
    direct::{Body, DirectLane, Reply},
    function::{ComponentKind, FunctionVersion},
};
use fanfold_store::Store;
use http::Request;
use http_body_util::{BodyExt, Empty};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let path = args.next().ok_or("usage: measure COMPONENT.wasm [SECONDS]")?;
    let seconds = args.next().map_or(Ok(2.0), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let store = Store::open_dir(dir.path()).await?;
    let component = store.put_component(fs::read(&path)?.into()).await?;
    let config = Config { compiler: vec![child()?.into()], ..Config::default() };

    let executor = Executor::start(config.clone(), store.clone()).await?;
    let info = executor.prepare(component).await?;
    println!(
        r#"{{"measure":"compile","component_bytes":{},"compiled_bytes":{},"us":{}}}"#,
        info.component_bytes, info.compiled_bytes, info.compile_us
    );
    load(&config, &store, component).await?;

    let mut manifest = Manifest::named("measured".parse()?);
    manifest.resources.memory = 16 << 20;
    let name = manifest.name.clone();
    let version = FunctionVersion::digest(component, &manifest);
    let function = Arc::new(FunctionVersion { name, version, component, manifest, info, deployed_at_ms: 0 });
    for at_once in [1, 32] {
        calls(&executor, &function, at_once, Duration::from_secs_f64(seconds)).await?;
    }
    executor.stop().await;
    Ok(())
}

/// The compile child, built beside this program.
fn child() -> Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name("compile_child"))
}

/// Loads compiled code again and again, each time by a loader that knows nothing.
async fn load(config: &Config, store: &Store, component: Digest) -> Result<()> {
    let engine = Arc::new(Engine::start(1 << 30)?);
    let mut all = Vec::new();
    for _ in 0..200 {
        let loader = Loader::new(config, engine.clone(), store.clone()).await?;
        let begun = Instant::now();
        let loaded = loader.get(component).await?;
        let steps = loaded.steps;
        all.push([
            begun.elapsed().as_micros() as u64,
            steps.read_us,
            steps.verify_us,
            steps.map_us,
            steps.link_us,
        ]);
    }
    let median = |index: usize| {
        let mut values: Vec<u64> = all.iter().map(|steps| steps[index]).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    println!(
        r#"{{"measure":"load","us":{},"read_us":{},"verify_us":{},"map_us":{},"link_us":{}}}"#,
        median(0),
        median(1),
        median(2),
        median(3),
        median(4)
    );
    Ok(())
}

/// Calls for a while, `at_once` at a time.
async fn calls(
    executor: &Executor,
    function: &Arc<FunctionVersion>,
    at_once: usize,
    time: Duration,
) -> Result<()> {
    let first = Instant::now();
    call(executor, function).await?;
    let first = first.elapsed();
    let until = Instant::now() + time;
    let mut workers = JoinSet::new();
    for _ in 0..at_once {
        let (executor, function) = (executor.clone(), function.clone());
        workers.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < until {
                let begun = Instant::now();
                call(&executor, &function).await?;
                times.push(begun.elapsed());
            }
            Ok::<_, Error>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = workers.join_next().await {
        times.extend(done??);
    }
    times.sort_unstable();
    println!(
        r#"{{"measure":"calls","at_once":{at_once},"per_s":{:.0},"first_us":{},"p50_us":{:.1},"p99_us":{:.1}}}"#,
        times.len() as f64 / time.as_secs_f64(),
        first.as_micros(),
        times[times.len() / 2].as_secs_f64() * 1e6,
        times[times.len() * 99 / 100].as_secs_f64() * 1e6
    );
    Ok(())
}

async fn call(executor: &Executor, function: &Arc<FunctionVersion>) -> std::result::Result<Bytes, Error> {
    let empty: Body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = Request::get("http://localhost/").body(empty);
    let request = request.map_err(|e| Error::internal(e.to_string()))?;
    let called: std::result::Result<Reply, _> = match function.info.kind {
        ComponentKind::Http => executor.http(function.clone(), request).await,
        ComponentKind::Cli | ComponentKind::Task => executor.call(function.clone(), request).await,
    };
    let reply = called.map_err(|failed| failed.error)?;
    Ok(reply.response.into_body().collect().await?.to_bytes())
}
