//! Every place between "accepted" and "committed" at which a process may die, tried with a process that dies there: what
//! was acknowledged is finished once, with the right answer.

use fanfold_store::failpoint::{Failpoint, VARIABLE};
use fanfold_tests::{
    cluster::{Cluster, PATIENCE, Start, joined, until},
    history::{Call, History},
    platform::Platform,
};
use futures::future::join_all;

/// A small graph with partitions.
const LAYERS: &str = r#"{"layers": 3, "width": 3, "rounds": 1}"#;
const EXECUTOR_POINTS: [Failpoint; 5] = [
    Failpoint::AttemptReceived,
    Failpoint::FunctionReturned,
    Failpoint::OutputsStored,
    Failpoint::AttemptEnded,
    Failpoint::ResultQueued,
];

/// Places of a gateway or of an executor, with their names.
fn points(of_executor: bool) -> impl Iterator<Item = &'static str> {
    let chosen = move |(_, point): &&(&str, Failpoint)| EXECUTOR_POINTS.contains(point) == of_executor;
    Failpoint::ALL.iter().filter(chosen).map(|(name, _)| *name)
}

/// Calls of one round: some that are small, and a driver with tasks.
fn calls(round: &str, layers: &bytes::Bytes) -> Vec<Call> {
    let mut calls: Vec<Call> = (0..8).map(|n| Call::echo(format!("{round} {n}"))).collect();
    let key = format!("{round} layers");
    calls.push(Call { function: "layers", key, input: LAYERS.into(), expected: layers.clone() });
    calls
}

/// Submits until everything is acknowledged or the gateway is gone; returns what is not.
async fn submit(history: &History, gateway: &Platform, calls: Vec<Call>) -> Vec<Call> {
    let tried = calls.into_iter().map(async |call| (history.try_submit(gateway, &call).await, call));
    join_all(tried).await.into_iter().filter(|(done, _)| !done).map(|(_, call)| call).collect()
}

async fn dies(process: &mut Platform, point: &str) {
    assert!(until(PATIENCE, async || !process.alive()).await, "nobody came to `{point}`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_may_die_anywhere() {
    let cluster = Cluster::start();
    let _executors = ["e1", "e2"].map(|name| cluster.executor(name, &[]));
    let history = History::new();
    let mut gateway = cluster.gateway("g0");
    joined(&gateway, 2).await;
    gateway.deploy("echo").await.expect(201);
    gateway.deploy("layers").await.expect(201);
    let layers = gateway.post("/function/layers", LAYERS).await.expect(200).body;
    for (point, nth) in points(false).flat_map(|point| [(point, 1), (point, 4)]) {
        gateway.kill();
        // Its entry would keep the name until it expires.
        cluster.redis.flush();
        let armed = format!("{point}:{nth}");
        let env = [(VARIABLE, armed.as_str())];
        gateway = cluster.gateway_with("g0", Start { env: &env, ..Start::default() });
        let left = submit(&history, &gateway, calls(&armed, &layers)).await;
        dies(&mut gateway, &armed).await;

        cluster.redis.flush();
        gateway = cluster.gateway("g0");
        join_all(left.iter().map(|call| history.submit(&gateway, call))).await;
        let found = history.check(&gateway).await;
        assert_eq!(found.dead, 0, "{armed}");
    }
    println!("{} invocations, a gateway dead {} times", history.len(), 2 * points(false).count());
    gateway.terminate();
    history.check_journal(&cluster, "g0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_may_die_anywhere() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let history = History::new();
    let first = cluster.executor("first", &[]);
    joined(&gateway, 1).await;
    gateway.deploy("echo").await.expect(201);
    gateway.deploy("layers").await.expect(201);
    let layers = gateway.post("/function/layers", LAYERS).await.expect(200).body;
    first.kill();
    for (point, nth) in points(true).flat_map(|point| [(point, 1), (point, 4)]) {
        let armed = format!("{point}:{nth}");
        let env = [(VARIABLE, armed.as_str())];
        let mut executor = cluster.executor_with("armed", Start { env: &env, ..Start::default() });
        let left = submit(&history, &gateway, calls(&armed, &layers)).await;
        assert!(left.is_empty(), "a gateway without executors accepts: {left:?}");
        dies(&mut executor, &armed).await;
        let sound = cluster.executor("sound", &[]);
        let found = history.check(&gateway).await;
        assert_eq!(found.dead, 0, "{armed}");
        sound.kill();
    }
    gateway.terminate();
    history.check_journal(&cluster, "g0").await;
}
