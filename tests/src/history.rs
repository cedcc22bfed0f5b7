//! What clients were told, and whether it holds at the end.
//!
//! Clients of a test write down each invocation that was acknowledged, with the answer that an undisturbed run would give. At
//! the end [`History::check`] asks over REST, and [`History::check_journal`] reads the journal itself:
//!
//! - every acknowledged invocation has ended well with that answer, or is in the dead-letter list;
//! - no invocation has two ends, and no task two commits, that say different things. (The same record twice is what an
//!   unknown write leaves that was repeated; the fold takes the first.)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use fanfold_protocol::{AttemptId, record::Record};
use fanfold_store::Journal;
use serde_json::Value;

use crate::{
    cluster::{Cluster, PATIENCE, until},
    platform::Platform,
};

/// What clients were told.
#[derive(Debug, Default)]
pub struct History(Mutex<BTreeMap<String, Bytes>>);

/// A request of a client, and what an undisturbed run answers.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function.
    pub function: &'static str,
    /// Its `Idempotency-Key`.
    pub key: String,
    /// The body.
    pub input: Bytes,
    /// The answer.
    pub expected: Bytes,
}

impl Call {
    /// A call of `echo`, which answers what it is sent.
    pub fn echo(key: impl Into<String>) -> Self {
        let key = key.into();
        let body = Bytes::from(format!("{key} {}", "x".repeat(key.len() * 37 % 500)));
        Self { function: "echo", key, input: body.clone(), expected: body }
    }
}

/// How acknowledged invocations ended.
#[derive(Debug, Default)]
pub struct Found {
    /// Acknowledged invocations that ended well.
    pub succeeded: usize,
    /// Acknowledged invocations that were given up.
    pub dead: usize,
}

impl History {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client was told that this invocation is accepted; its answer must be `expected`.
    pub fn acknowledged(&self, id: &str, expected: impl Into<Bytes>) {
        let before = self.told().insert(id.to_owned(), expected.into());
        assert!(before.is_none(), "two requests were told the id {id}");
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.told().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Invokes a function asynchronously as a client does that does not give up: it repeats the request with the same
    /// `Idempotency-Key` until somebody acknowledges it.
    pub async fn submit(&self, gateway: &Platform, call: &Call) {
        let done = until(PATIENCE, async || self.try_submit(gateway, call).await).await;
        assert!(done, "nobody acknowledged {}", call.key);
    }

    /// One try of that; `false`: it may or may not have been accepted, which the same key will find out.
    pub async fn try_submit(&self, gateway: &Platform, call: &Call) -> bool {
        let path = format!("/async-function/{}", call.function);
        let headers = [("idempotency-key", call.key.as_str())];
        let Ok(answer) = gateway.try_send("POST", &path, &headers, call.input.clone()).await else {
            return false;
        };
        if answer.status == 202 {
            let id = answer.json()["id"].as_str().expect("an id").to_owned();
            self.acknowledged(&id, call.expected.clone());
            return true;
        }
        // A refusal may say that nothing is gained by trying again until somebody mends something; tests do.
        let waits = answer.status == 429 || answer.status >= 500;
        assert!(waits, "{} {}", answer.status, answer.text());
        false
    }

    /// Waits for the end of every acknowledged invocation, and compares its answer.
    pub async fn check(&self, gateway: &Platform) -> Found {
        let told = self.told().clone();
        let letters: BTreeSet<String> = dead_letters(gateway).await;
        let mut found = Found::default();
        for (id, expected) in told {
            if letters.contains(&id) {
                found.dead += 1;
                continue;
            }
            let view = gateway.ended(&id).await;
            assert_eq!(view["state"], "succeeded", "{view:#}");
            let output = gateway.get(&format!("/v1/invocations/{id}/output")).await.expect(200);
            assert!(
                output.body == expected,
                "invocation {id} answers something else than undisturbed: {}",
                output.text()
            );
            found.succeeded += 1;
        }
        found
    }

    /// Reads the journal of `shard`, whose gateway must have ended, and looks for what it must not say.
    pub async fn check_journal(&self, cluster: &Cluster, shard: &str) {
        let mut ends: BTreeMap<String, Record> = BTreeMap::new();
        let mut commits = BTreeMap::new();
        for record in journal(cluster, shard).await {
            match &record {
                Record::Ended { job, .. } => {
                    let first = ends.entry(job.to_string()).or_insert_with(|| record.clone());
                    assert_eq!(*first, record, "two ends of job {job}");
                }
                Record::Committed(committed) => {
                    let AttemptId { task, .. } = committed.attempt;
                    let first: &mut AttemptId = commits.entry(task).or_insert(committed.attempt);
                    assert_eq!(*first, committed.attempt, "two commits of task {task:?}");
                }
                _ => {}
            }
        }
        for id in self.told().keys() {
            assert!(ends.contains_key(id), "the journal has no end of invocation {id}");
        }
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All records of a journal. Its owner must have ended; one that has not is fenced by this.
pub async fn journal(cluster: &Cluster, shard: &str) -> Vec<Record> {
    let store = cluster.store().await;
    let (journal, records) = Journal::open(&store, shard).await.expect("a sound journal");
    journal.close().await.expect("closable");
    records
}

async fn dead_letters(gateway: &Platform) -> BTreeSet<String> {
    let letters = gateway.get("/v1/dead-letters?limit=1000").await.expect(200).json();
    let items = letters["items"].as_array().cloned().unwrap_or_default();
    let id = |letter: &Value| letter["id"].as_str().or(letter["job"].as_str()).unwrap_or_default().to_owned();
    items.iter().map(id).collect()
}
