//! The contract of the members' directory, over memory and a real Redis; and what a Redis does to it.

#[path = "support/redis.rs"]
mod redis_server;

use std::{sync::Arc, time::Duration};

use fanfold_protocol::{
    Kind,
    cluster::{Member, Role, ShardLease},
};
use fanfold_store::{Members, members::View};
use redis_server::Redis;
use tokio::time::{Instant, timeout};

fn member(id: u64) -> Member {
    Member {
        id,
        role: if id.is_multiple_of(2) { Role::Gateway } else { Role::Executor },
        name: format!("member-{id}"),
        url: String::new(),
        peer: format!("127.0.0.1:{id}"),
        protocol: 1,
        shards: vec![ShardLease { name: "a".into(), epoch: id }],
    }
}

/// Waits until somebody sees what is wanted; how long that took.
async fn until(members: &Members, what: &str, mut wanted: impl FnMut(&View) -> bool) -> Duration {
    let started = Instant::now();
    let mut view = members.view();
    let seen = view.wait_for(|view: &Arc<View>| wanted(view));
    let seen = timeout(Duration::from_secs(10), seen).await;
    assert!(seen.is_ok_and(|seen| seen.is_ok()), "{what}: {:?}", members.view().borrow());
    started.elapsed()
}

fn ids(view: &View) -> Vec<u64> {
    view.members.iter().map(|member| member.id).collect()
}

async fn they_come_and_go(a: Members, b: Members) {
    let one = a.announce(member(1));
    let two = b.announce(member(2));
    until(&a, "both", |view| view.members == [member(1), member(2)]).await;
    until(&b, "both", |view| view.members == [member(1), member(2)]).await;

    // An update is seen by oneself at once, and by others within a turn.
    two.update(|member| member.shards.clear());
    let own = until(&b, "the update", |view| view.members[1].shards.is_empty()).await;
    assert!(own < Duration::from_millis(700), "{own:?}");
    until(&a, "the update", |view| view.members[1].shards.is_empty()).await;

    two.withdraw().await;
    assert_eq!(ids(&b.view().borrow()), [1], "it is gone when `withdraw` returns");
    until(&a, "the withdrawal", |view| ids(view) == [1]).await;

    // One that vanishes expires, and not before its time.
    drop(one);
    let expired = until(&b, "the end", |view| view.members.is_empty()).await;
    assert!(expired.as_secs() >= 1, "{expired:?}");
}

#[tokio::test]
async fn members_of_one_process_come_and_go() {
    let members = Members::in_memory();
    they_come_and_go(members.clone(), members).await;
}

#[tokio::test]
async fn members_over_redis_come_and_go() {
    let redis = Redis::start(&[]);
    let a = Members::redis(&redis.url(), "n").await.unwrap();
    let b = Members::redis(&redis.url(), "n").await.unwrap();
    let other = Members::redis(&redis.url(), "other").await.unwrap();
    let _else = other.announce(member(9));
    they_come_and_go(a, b).await;
    until(&other, "its own", |view| ids(view) == [9]).await;
}

#[tokio::test]
async fn what_redis_forgets_is_there_again() {
    let mut redis = Redis::start(&[]);
    let a = Members::redis(&redis.url(), "n").await.unwrap();
    let b = Members::redis(&redis.url(), "n").await.unwrap();
    let _announced = (a.announce(member(1)), b.announce(member(2)));
    until(&a, "both", |view| ids(view) == [1, 2]).await;

    for forget in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
        redis.command(forget).await;
        let flushed = Instant::now();
        until(&a, "both again", |view| view.at > flushed && ids(view) == [1, 2]).await;
    }

    // While it is away everybody keeps what was last seen, and knows that it is old.
    redis.kill();
    until(&a, "its absence", |view| !view.reachable && ids(view) == [1, 2]).await;
    until(&b, "its absence", |view| !view.reachable && ids(view) == [1, 2]).await;
    redis.run();
    until(&a, "its return", |view| view.reachable && ids(view) == [1, 2]).await;
}

#[tokio::test]
async fn wrong_addresses_and_passwords_are_told() {
    let redis = Redis::start(&["--requirepass", "right"]);
    let host = redis.url().replace("redis://", "");
    for (url, kind, retryable, words) in [
        (format!("redis://:wrong@{host}"), Kind::Platform, false, "refuses the user or the password"),
        (format!("redis://{host}"), Kind::Platform, false, "refuses the user or the password"),
        ("redis://127.0.0.1:1".to_owned(), Kind::Platform, true, "127.0.0.1:1 cannot be reached"),
        ("http://127.0.0.1:1".to_owned(), Kind::Invalid, false, "write `redis://"),
        ("nonsense".to_owned(), Kind::Invalid, false, "write `redis://"),
    ] {
        let refused = Members::redis(&url, "n").await.unwrap_err();
        assert_eq!((refused.kind, refused.retryable), (kind, retryable), "{url}: {refused}");
        assert!(refused.to_string().contains(words) && !refused.to_string().contains("wrong"), "{refused}");
    }
    let right = Members::redis(&format!("redis://:right@{host}"), "n").await.unwrap();
    assert!(right.view().borrow().reachable);
    assert_eq!(Members::redis(&redis.url(), "N{x}").await.unwrap_err().kind, Kind::Invalid);
}
