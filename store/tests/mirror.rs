//! What the mirror tells, over a real Redis; and what a Redis does to it.

#[path = "support/redis.rs"]
mod redis_server;

use std::time::Duration;

use bytes::Bytes;
use fanfold_protocol::{JobId, Kind, TaskId};
use fanfold_store::{Mirror, mirror::Change};
use redis_server::Redis;

fn job(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

fn field(job: JobId, value: &'static str) -> Change {
    Change::Field { job, field: "view", value: Bytes::from_static(value.as_bytes()) }
}

fn task(job: JobId, n: u8) -> Change {
    Change::Task { job, task: TaskId([n; 16]), value: vec![n].into() }
}

/// Waits until a field has this value: nothing waits for a write but a test.
async fn until(mirror: &Mirror, job: JobId, wanted: Option<&'static str>) {
    let wanted = wanted.map(|text| Bytes::from_static(text.as_bytes()));
    let seen = async {
        while mirror.field(job, "view").await.is_ok_and(|found| found != wanted) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("it is told within ten seconds");
}

#[tokio::test]
async fn what_is_told_is_read_and_goes() {
    let redis = Redis::start(&[]);
    let mirror = Mirror::redis(&redis.url(), "one").unwrap();
    let other = Mirror::redis(&redis.url(), "two").unwrap();
    let (a, b) = (job(1), job(2));
    assert!(mirror.tell(vec![field(a, "first"), task(a, 1), task(a, 2), field(a, "second"), field(b, "b")]));
    until(&mirror, b, Some("b")).await;
    assert_eq!(mirror.field(a, "view").await.unwrap().unwrap(), "second");
    let mut tasks = mirror.tasks(a).await.unwrap();
    tasks.sort();
    assert_eq!(tasks, [vec![1], vec![2]]);
    assert_eq!(other.field(a, "view").await.unwrap(), None, "another namespace");

    assert!(mirror.tell(vec![Change::NoTasks(a), Change::Gone(b)]));
    until(&mirror, b, None).await;
    assert!(mirror.tasks(a).await.unwrap().is_empty() && mirror.field(a, "view").await.unwrap().is_some());
    assert!(mirror.tell(vec![Change::Gone(a)]));
    until(&mirror, a, None).await;
    assert!(mirror.tasks(a).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_flush_costs_answers_only_and_a_redis_that_is_away_nothing_at_all() {
    let redis = Redis::start(&[]);
    let mirror = Mirror::redis(&redis.url(), "one").unwrap();
    assert!(mirror.tell(vec![field(job(1), "a")]));
    until(&mirror, job(1), Some("a")).await;
    redis.command(&["FLUSHALL"]).await;
    assert_eq!(mirror.field(job(1), "view").await.unwrap(), None);
    assert!(mirror.tell(vec![field(job(1), "b")]));
    until(&mirror, job(1), Some("b")).await;
    drop(redis);
    assert!(mirror.field(job(1), "view").await.unwrap_err().retryable);
    // Told until the queue is full; nobody waits.
    while mirror.tell(vec![field(job(1), "c")]) {}

    let wrong = Mirror::redis("redis://", "one").map(drop).unwrap_err();
    assert_eq!(wrong.kind, Kind::Invalid);
    assert_eq!(Mirror::redis("redis://h", "a b").map(drop).unwrap_err().kind, Kind::Invalid);
}
