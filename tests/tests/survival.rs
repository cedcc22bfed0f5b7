//! What was acknowledged survives `kill -9`: nothing lost, nothing committed twice, no committed result changed.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use fanfold_protocol::record::Record;
use fanfold_store::{Journal, Store};
use fanfold_tests::platform::Platform;
use futures::{StreamExt, stream};
use rand::{Rng, SeedableRng, rngs::StdRng};

const KILLS: usize = 50;
const INVOCATIONS: usize = 5000;
const CLIENTS: usize = 16;

/// What the clients know: number of the invocation to the id that was acknowledged for it.
type Acknowledged = Arc<Mutex<HashMap<usize, String>>>;

/// The input of invocation `n`; the echo function must answer the same.
fn input(n: usize) -> Bytes {
    format!("invocation {n} {}", "x".repeat(n % 700)).into()
}

/// One client submits numbers from `next` until it has acknowledged `quota` in this life of the platform, or the
/// platform is gone. A number that was not acknowledged goes back to `again`, and is sent anew with the same key.
async fn submit(platform: &Platform, again: &Mutex<Vec<usize>>, acks: &Acknowledged, left: &AtomicUsize) {
    loop {
        let Some(n) = again.lock().expect("unpoisoned").pop() else { return };
        let key = format!("survival-{n}");
        let answer =
            platform.try_send("POST", "/async-function/echo", &[("idempotency-key", &key)], input(n)).await;
        match answer {
            Ok(answer) if answer.status == 202 => {
                let id = answer.json()["id"].as_str().expect("an id").to_owned();
                acks.lock().expect("unpoisoned").insert(n, id);
                if left.fetch_sub(1, Ordering::Relaxed) <= 1 {
                    return;
                }
            }
            Ok(answer) => {
                assert_eq!(answer.status, 429, "{}", answer.text());
                again.lock().expect("unpoisoned").push(n);
            }
            Err(_) => {
                again.lock().expect("unpoisoned").push(n);
                return;
            }
        }
    }
}

/// Whatever had ended when it was looked at last must still have the same end.
async fn look(
    platform: &Platform,
    acks: &Acknowledged,
    ends: &mut HashMap<String, (String, u64)>,
    some: &[usize],
) {
    for n in some {
        let Some(id) = acks.lock().expect("unpoisoned").get(n).cloned() else { continue };
        let view = platform.get(&format!("/v1/invocations/{id}")).await.expect(200).json();
        if view["state"] == "queued" || view["state"] == "running" {
            continue;
        }
        let end = (view["state"].to_string(), view["ended_at_ms"].as_u64().expect("an end"));
        let first = ends.entry(id.clone()).or_insert_with(|| end.clone());
        assert_eq!(*first, end, "the end of invocation {id} changed");
    }
}

/// Counts the ends in the journal; a second one for the same job is a double commit.
async fn assert_one_end_each(dir: &Path, ids: &[String]) {
    let store = Store::open_dir(dir).await.expect("nobody holds it");
    let (journal, records) = Journal::open(&store, "g0").await.expect("a sound journal");
    let mut ends: HashMap<String, usize> = HashMap::new();
    for record in records {
        if let Record::Ended { job, .. } = record {
            *ends.entry(job.to_string()).or_default() += 1;
        }
    }
    journal.close().await.expect("closable");
    for id in ids {
        assert_eq!(ends.get(id), Some(&1), "invocation {id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_during_five_thousand_invocations_lose_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut random = StdRng::seed_from_u64(20_261_121);
    let again = Mutex::new((0..INVOCATIONS).rev().collect::<Vec<_>>());
    let acks: Acknowledged = Arc::default();
    let mut ends = HashMap::new();
    {
        let platform = Platform::start(dir.path());
        platform.deploy("echo").await;
        platform.kill();
    }
    for _ in 0..KILLS {
        let platform = Platform::start(dir.path());
        let left = AtomicUsize::new(random.random_range(1..2 * INVOCATIONS / KILLS));
        let clients = stream::iter(0..CLIENTS).map(|_| submit(&platform, &again, &acks, &left));
        clients.buffer_unordered(CLIENTS).collect::<Vec<_>>().await;
        let some: Vec<usize> = (0..20).map(|_| random.random_range(0..INVOCATIONS)).collect();
        look(&platform, &acks, &mut ends, &some).await;
        platform.kill();
    }
    let platform = Platform::start(dir.path());
    let left = AtomicUsize::new(usize::MAX);
    let clients = stream::iter(0..CLIENTS).map(|_| submit(&platform, &again, &acks, &left));
    clients.buffer_unordered(CLIENTS).collect::<Vec<_>>().await;

    let acked: Vec<(usize, String)> =
        acks.lock().expect("unpoisoned").iter().map(|(n, id)| (*n, id.clone())).collect();
    assert_eq!(acked.len(), INVOCATIONS);
    let distinct: std::collections::HashSet<_> = acked.iter().map(|(_, id)| id).collect();
    assert_eq!(distinct.len(), INVOCATIONS, "two invocations share an id");
    for (n, id) in &acked {
        let view = platform.ended(id).await;
        assert_eq!(view["state"], "succeeded", "{view}");
        let output = platform.get(&format!("/v1/invocations/{id}/output")).await.expect(200);
        assert_eq!(output.body, input(*n), "the output of invocation {n} is another one's");
    }
    look(&platform, &acks, &mut ends, &(0..INVOCATIONS).collect::<Vec<_>>()).await;
    platform.terminate();
    let ids: Vec<String> = acked.into_iter().map(|(_, id)| id).collect();
    assert_one_end_each(dir.path(), &ids).await;
}
