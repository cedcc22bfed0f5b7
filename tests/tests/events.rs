//! Twenty thousand objects arrive while gateways and executors are killed and notifications are lost and repeated: a ledger of what
//! was committed has each of them once.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use fanfold_store::Store;
use fanfold_tests::{
    cluster::{Cluster, joined, until},
    platform::Platform,
    signal,
};
use futures::{StreamExt as _, stream};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::RwLock;

const TRIGGER: &str = "/v1/triggers/in";
const OBJECTS: usize = 20_000;
/// Objects of a burst, and how long it is until the next one begins.
const BURST: usize = 2_500;
const PAUSE: Duration = Duration::from_secs(4);
/// How long it is from kill to kill.
const LIFE: Duration = Duration::from_secs(5);
/// Objects that one notification tells of.
const TOLD_TOGETHER: usize = 25;
/// Shares of the notifications that are lost, and that come twice.
const LOST: f64 = 0.05;
const TWICE: f64 = 0.05;
const WRITERS: usize = 16;
/// How long the rest may take once nothing is killed any more.
const PATIENCE: Duration = Duration::from_secs(180);

/// The processes, which are killed and replaced one after the other.
struct Processes {
    gateways: [Platform; 2],
    executors: [Platform; 2],
}

/// Writes one burst past the platform, as a program with the bucket's credentials does, and tells of it by webhook as its store would.
async fn burst(store: &Store, processes: &RwLock<Processes>, rng: &mut StdRng, first: usize) {
    let written = stream::iter(first..first + BURST).map(async |n| {
        let key = format!("in/{n:05}");
        let body = stream::iter([Ok(Bytes::from(format!("object {n}")))]);
        let object = store.objects().put(&key, body).await.expect("the bucket takes it");
        json!({
            "eventName": "ObjectCreated:Put",
            "s3": {
                "bucket": { "name": "fanfold" },
                "object": { "key": format!("test/objects/{key}"), "size": object.bytes, "eTag": object.etag },
            },
        })
    });
    let records: Vec<Value> = written.buffered(WRITERS).collect().await;
    let mut notifications = Vec::new();
    for records in records.chunks(TOLD_TOGETHER) {
        if !rng.random_bool(LOST) {
            notifications.push(json!({ "Records": records }));
        }
        if rng.random_bool(TWICE) {
            notifications.push(json!({ "Records": records }));
        }
    }
    stream::iter(&notifications).for_each_concurrent(4, |told| tell(processes, told.to_string())).await;
}

/// A store tries a few times, here and there, and then gives up.
async fn tell(processes: &RwLock<Processes>, notification: String) {
    for attempt in 0..6 {
        let answer = {
            let processes = processes.read().await;
            let gateway = &processes.gateways[attempt % 2];
            let headers = [("content-type", "application/json")];
            let answer = gateway.try_send("POST", "/v1/events", &headers, notification.clone());
            tokio::time::timeout(Duration::from_secs(5), answer).await
        };
        if matches!(answer, Ok(Ok(answer)) if answer.status == 202) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Kills one process after the other until `done`, and starts another in its place; how many.
async fn kill(cluster: &Cluster, processes: &RwLock<Processes>, done: &AtomicBool) -> usize {
    let mut turn = 0;
    loop {
        tokio::time::sleep(LIFE).await;
        if done.load(Ordering::Relaxed) {
            return turn;
        }
        let (which, name) = (turn / 2 % 2, format!("life-{turn}"));
        let gateway = turn % 2 == 0;
        let pid = {
            let processes = processes.read().await;
            if gateway { processes.gateways[which].pid() } else { processes.executors[which].pid() }
        };
        // Requests on their way break off; who sends more waits until another process is there.
        signal::send(pid, "KILL");
        let mut processes = processes.write().await;
        if gateway {
            processes.gateways[which] = cluster.gateway(&name);
        } else {
            processes.executors[which] = cluster.executor(&name, &[]);
        }
        turn += 1;
    }
}

/// By key, how many committed results have it; `None`: the gateway cannot say yet.
async fn ledger(gateway: &Platform) -> Option<HashMap<String, usize>> {
    let (mut committed, mut after) = (HashMap::new(), String::new());
    loop {
        let page = found(gateway, &format!("/v1/invocations?limit=1000{after}")).await?;
        for run in page["items"].as_array().expect("items") {
            if run["state"] != "succeeded" {
                continue;
            }
            let output = format!("/v1/invocations/{}/output", run["id"].as_str().expect("an id"));
            let events = found(gateway, &output).await?;
            for event in events.as_array().expect("a list of events") {
                let key = event["data"]["key"].as_str().expect("a key");
                *committed.entry(key.to_owned()).or_default() += 1;
            }
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Some(committed),
        }
    }
}

async fn found(gateway: &Platform, path: &str) -> Option<Value> {
    let answer = gateway.get(path).await;
    (answer.status == 200).then(|| answer.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_is_committed_once() {
    let cluster = Cluster::start();
    let gateways = [cluster.gateway("g1"), cluster.gateway("g2")];
    let executors = [cluster.executor("e1", &[]), cluster.executor("e2", &[])];
    for gateway in &gateways {
        joined(gateway, 2).await;
    }
    let [first, _] = &gateways;
    first.deploy_as("echo", "name = \"echo\"\n[retry]\nattempts = 20\n").await;
    let definition = json!({
        "kind": "objects", "function": "echo", "prefix": "in/", "listing": "10s", "backfill": true,
        "batch": { "max": 100, "window": "1s" },
    });
    let answer = first.send("PUT", TRIGGER, &[], definition.to_string()).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());

    let store = cluster.store().await;
    let (processes, done) = (RwLock::new(Processes { gateways, executors }), AtomicBool::new(false));
    let mut rng = StdRng::seed_from_u64(6);
    let arrive = async {
        for first in (0..OBJECTS).step_by(BURST) {
            let next = Instant::now() + PAUSE;
            burst(&store, &processes, &mut rng, first).await;
            tokio::time::sleep_until(next.into()).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let (kills, ()) = tokio::join!(kill(&cluster, &processes, &done), arrive);
    assert!(kills >= 6, "{kills} kills");

    // A listing that began after the last object finds what no notification told of.
    let processes = processes.into_inner();
    let gateway = &processes.gateways[0];
    let mut committed = HashMap::new();
    let all = until(PATIENCE, async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let Some(trigger) = found(gateway, TRIGGER).await else { return false };
        if trigger["waiting"] != 0 || trigger["listing"]["objects"] != OBJECTS {
            return false;
        }
        committed = ledger(gateway).await.unwrap_or_default();
        committed.len() >= OBJECTS
    });
    let (all, trigger) = (all.await, found(gateway, TRIGGER).await);
    assert!(all, "{} of {OBJECTS} objects are committed: {trigger:?}", committed.len());
    let again: Vec<_> = committed.iter().filter(|(_, times)| **times != 1).take(10).collect();
    assert!(again.is_empty(), "committed more than once: {again:?}");
    assert_eq!(committed.len(), OBJECTS);
    let letters = gateway.get("/v1/dead-letters").await.expect(200).json();
    assert_eq!(letters["items"], json!([]));
}
