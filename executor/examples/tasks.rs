//! Measures the scheduled lane against an owner that schedules nothing: what a task costs on an executor.
//!
//! `cargo run --release -p fanfold-executor --example tasks [fan|lone|handed|direct]`. Prints one JSON line per figure.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{Fixture, inline, owner::Owner, root};
use fanfold_executor::{Config, Executor};
use fanfold_protocol::{
    Digest,
    direct::DirectLane as _,
    function::FunctionVersion,
    message::Argument,
    value::{Output, Value},
};
use fanfold_store::Store;
use http_body_util::{BodyExt as _, Full};

#[path = "../tests/common/mod.rs"]
mod common;

/// Tasks of one driver: what one wait can name.
const FAN: u16 = 10_000;
const LONE: u16 = 5_000;
const HANDED: usize = 2_000;
const DIRECT: usize = 50_000;

#[tokio::main]
async fn main() {
    let fixture = Fixture::start(Config::default(), Store::in_memory(), common::guest()).await;
    let (version, executor, function) =
        (fixture.function.version, fixture.executor.clone(), fixture.function);
    let mut owner = Owner::new(fixture.session, fixture.events);
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    for _ in 0..3 {
        if wanted("fan") {
            fan(&mut owner, version).await;
        }
        if wanted("lone") {
            lone(&mut owner, version).await;
        }
        if wanted("handed") {
            handed(&mut owner, version).await;
        }
        if wanted("direct") {
            direct(&executor, &function).await;
        }
    }
    executor.stop().await;
}

async fn direct(executor: &Executor, function: &Arc<FunctionVersion>) {
    let mut times = Vec::with_capacity(DIRECT);
    for _ in 0..DIRECT {
        let body = Full::new(Bytes::from_static(b"hello")).map_err(|never| match never {}).boxed_unsync();
        let begin = Instant::now();
        executor.call(function.clone(), http::Request::new(body)).await.unwrap();
        times.push(begin.elapsed());
    }
    report("direct call of a task function", &mut times);
}

async fn fan(owner: &mut Owner, version: Digest) {
    let begin = Instant::now();
    owner.run(root(version, "fan", vec![inline(&FAN.to_le_bytes())])).await.result.unwrap();
    let rate = f64::from(FAN) / begin.elapsed().as_secs_f64();
    println!("{{\"what\":\"tasks of one driver\",\"tasks\":{FAN},\"per_second\":{rate:.0}}}");
}

async fn lone(owner: &mut Owner, version: Digest) {
    let begin = Instant::now();
    let mut driver = root(version, "one by one", vec![inline(&LONE.to_le_bytes())]);
    driver.timeout_ms = 600_000;
    owner.run(driver).await.result.unwrap();
    let mean = begin.elapsed().as_secs_f64() * 1e6 / f64::from(LONE);
    println!("{{\"what\":\"lone task, submit to get\",\"tasks\":{LONE},\"mean_us\":{mean:.1}}}");
}

/// One task writes a mebibyte, the next reads it.
async fn handed(owner: &mut Owner, version: Digest) {
    let (mut both, mut reading) = (Vec::new(), Vec::new());
    for _ in 0..HANDED {
        let begin = Instant::now();
        let output = owner.run(root(version, "write", vec![inline(&[1])])).await.result.unwrap().remove(0);
        let written = Instant::now();
        let Output::Stored(stored) = &output else { panic!("not stored") };
        let id = stored.key.partition;
        let free = stored.key;
        let mut reader = root(version, "read", vec![]);
        reader.args = vec![Argument { value: Value::Partition(id), output: Some(output) }];
        owner.run(reader).await.result.unwrap();
        both.push(begin.elapsed());
        reading.push(written.elapsed());
        owner.free(free).await;
    }
    report("1 MiB written by one task and read by the next", &mut both);
    report("of which the task that reads", &mut reading);
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e6;
    println!(
        "{{\"what\":\"{what}\",\"times\":{},\"p50_us\":{:.1},\"p99_us\":{:.1}}}",
        times.len(),
        at(50),
        at(99)
    );
}
