//! What fires triggers beside objects, times and posted events: ends of jobs, events that results emit, queues, streams.

use fanfold_store::failpoint::VARIABLE;
use fanfold_tests::{
    cluster::{PATIENCE, until as until_holds},
    moto::Moto,
    platform::{Platform, binary, component},
    redis::Redis,
    triggers::{inputs, keys, runs, set, show, until},
};
use serde_json::{Value, json};

const CLOUDEVENT: (&str, &str) = ("content-type", "application/cloudevents+json");

/// The access key of the queues.
const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// A platform with an environment.
fn start_with(dir: &std::path::Path, env: &[(&str, &str)]) -> Platform {
    let mut command = std::process::Command::new(binary());
    command.args(["up", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(dir);
    for (name, _) in KEY {
        command.env_remove(name);
    }
    command.envs(env.iter().copied());
    Platform::spawn(command, dir).expect("it starts")
}

/// A platform whose process dies at a place.
fn armed(dir: &std::path::Path, point: &str) -> Platform {
    start_with(dir, &[KEY[0], KEY[1], (VARIABLE, point)])
}

async fn dies(mut platform: Platform) {
    assert!(
        until_holds(PATIENCE, async || !platform.alive()).await,
        "nothing came to the place where it dies"
    );
}

/// Deploys a component under another name.
async fn deploy_other(platform: &Platform, of: &str, name: &str) {
    let bytes = std::fs::read(component(of)).expect("the component");
    platform
        .deploy_bytes(name, &format!("name = \"{name}\"\n[retry]\nattempts = 1\n"), &bytes)
        .await
        .expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_end_fires_once_through_a_crash() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    deploy_other(&platform, "misbehave", "work").await;
    set(&platform, "all", json!({ "kind": "job", "after": "work", "function": "echo" })).await;
    set(&platform, "bad", json!({ "kind": "job", "after": "work", "on": ["failed"], "function": "echo" }))
        .await;
    let own = json!({ "kind": "job", "after": "echo", "function": "echo" }).to_string();
    let own = platform.send("PUT", "/v1/triggers/own", &[], own).await;
    own.expect_problem(400, "invalid", "trigger", "the end of `echo` is what it waits for");

    let good = platform.invoke_async("work", r#"{"do":"nothing"}"#).await;
    until(&platform, "all", |trigger| runs(trigger).len() == 1).await;
    assert_eq!(inputs(&platform, "all").await.len(), 1);
    // Dies when the end is recorded and nobody knows of it.
    platform.kill();
    let platform = armed(dir.path(), "end-durable:1");
    let bad = platform.invoke_async("work", r#"{"do":"error"}"#).await;
    dies(platform).await;
    let platform = Platform::start(dir.path());
    until(&platform, "all", |trigger| runs(trigger).len() == 2).await;
    until(&platform, "bad", |trigger| runs(trigger).len() == 1).await;
    let got = inputs(&platform, "all").await;
    let of = |event: &Value| (event["id"].clone(), event["type"].clone(), event["subject"].clone());
    assert_eq!(of(&got[0]), (json!(good), json!("dev.fanfold.job.succeeded"), json!("work")));
    assert_eq!(of(&got[1]), (json!(bad), json!("dev.fanfold.job.failed"), json!("work")));
    assert_eq!(got[1]["fanfoldhops"], "1");
    assert!(got[1]["data"]["error"]["message"].is_string(), "{}", got[1]);

    // Told again, by whomever, it is the same end.
    let told =
        platform.send("POST", "/v1/events", &[CLOUDEVENT], got[1].to_string()).await.expect(202).json();
    assert_eq!(told["outcomes"].as_array().map(Vec::len), Some(2));
    platform.kill();
    let platform = Platform::start(dir.path());
    let third = platform.invoke_async("work", r#"{"do":"nothing"}"#).await;
    let all = until(&platform, "all", |trigger| runs(trigger).len() == 3).await;
    assert_eq!(inputs(&platform, "all").await[2]["id"], json!(third), "{all}");
    assert_eq!(runs(&show(&platform, "bad").await).len(), 1);
}

/// An event whose data is what a function that echoes answers.
fn asking(id: &str, answer: Value) -> String {
    json!({ "specversion": "1.0", "id": id, "source": "/s", "type": "ask", "data": answer }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_an_event_goes_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    let first = json!({ "kind": "event", "filter": { "type": "ask" }, "function": "echo", "input": "data", "emits": "answer.*" });
    set(&platform, "first", first).await;
    set(
        &platform,
        "second",
        json!({ "kind": "event", "filter": { "type": "answer.*" }, "function": "echo" }),
    )
    .await;
    let looping =
        json!({ "kind": "event", "filter": { "type": "answer.a" }, "function": "echo", "emits": "ask" });
    let looping = platform.send("PUT", "/v1/triggers/third", &[], looping.to_string()).await;
    looping.expect_problem(400, "invalid", "trigger", "by way of first");

    let answer = |id: &str, kind: &str| json!({ "specversion": "1.0", "id": id, "source": "/echo", "type": kind, "fanfoldhops": "0" });
    let send =
        async |body: String| platform.send("POST", "/v1/events", &[CLOUDEVENT], body).await.expect(202);
    send(asking("1", answer("a", "answer.a"))).await;
    send(asking("2", json!([answer("b", "answer.b"), answer("a", "answer.a")]))).await;
    send(asking("3", json!({ "just": "an answer" }))).await;
    send(asking("4", answer("c", "other"))).await;
    until(&platform, "second", |trigger| runs(trigger).len() == 2).await;
    let refused = until(&platform, "first", |trigger| !trigger["trouble"].is_null()).await;
    assert!(
        refused["trouble"]["error"]["message"].as_str().is_some_and(|why| why.contains("`other`")),
        "{refused}"
    );
    let mut got = inputs(&platform, "second").await;
    got.sort_by_key(|event| event["id"].to_string());
    let got: Vec<_> = got.iter().map(|event| (event["id"].clone(), event["fanfoldhops"].clone())).collect();
    assert_eq!(got, [(json!("a"), json!("2")), (json!("b"), json!("2"))], "whatever a function says of hops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buckets_notifications_come_by_queue_and_by_webhook() {
    let Some(moto) = Moto::start() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = start_with(dir.path(), &KEY);
    platform.deploy("echo").await.expect(201);
    let queue = moto.queue("told").await;
    moto.topic("told", &format!("{}/v1/events", platform.url())).await;
    moto.bucket("photos", "told", "told").await;
    let photos = json!({ "kind": "objects", "function": "echo", "bucket": "photos", "prefix": "in/" });
    set(&platform, "webhook", photos.clone()).await;
    let mut by_queue = photos;
    by_queue["queue"] = json!(queue);
    by_queue["region"] = json!("us-east-1");
    set(&platform, "queue", by_queue.clone()).await;
    let mut narrow = by_queue;
    narrow["prefix"] = json!("in/b");
    set(&platform, "narrow", narrow).await;
    for key in ["in/a.jpg", "in/b%20c.jpg", "out/d.jpg"] {
        moto.put(&format!("/photos/{key}"), "a photo").await;
    }
    for trigger in ["webhook", "queue"] {
        until(&platform, trigger, |trigger| runs(trigger).len() == 2).await;
        let inputs = inputs(&platform, trigger).await;
        let mut keys = keys(&inputs);
        keys.sort_unstable();
        assert_eq!(keys, ["in/a.jpg", "in/b c.jpg"], "{trigger}");
    }
    until(&platform, "narrow", |trigger| runs(trigger).len() == 1).await;
    assert!(
        until_holds(PATIENCE, async || moto.messages(&queue).await == 0).await,
        "what is recorded is deleted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_taken_once_and_poison_stays() {
    let Some(moto) = Moto::start() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let queue = moto.queue("orders").await;
    let orders = json!({ "kind": "event", "function": "echo", "queue": queue, "region": "us-east-1" });
    let platform = start_with(dir.path(), &[]);
    platform.deploy("echo").await.expect(201);
    let unkeyed = platform.send("PUT", "/v1/triggers/orders", &[], orders.to_string()).await;
    unkeyed.expect_problem(400, "invalid", "request", "AWS_ACCESS_KEY_ID is not set");
    platform.kill();

    // Dies when a run is recorded and its message not deleted, which comes again.
    let platform = armed(dir.path(), "accept-durable:1");
    set(&platform, "orders", orders).await;
    moto.send(&queue, r#"{"order":1}"#).await;
    dies(platform).await;
    let platform = start_with(dir.path(), &KEY);
    let event = json!({ "specversion": "1.0", "id": "2", "source": "/shop", "type": "order" }).to_string();
    for body in [event.as_str(), "three", r#"{"specversion":"1.0","id":"4"}"#] {
        moto.send(&queue, body).await;
    }
    assert!(until_holds(PATIENCE, async || moto.messages(&queue).await == 1).await, "one is not taken");
    let shown = until(&platform, "orders", |trigger| !trigger["trouble"].is_null()).await;
    let why = shown["trouble"]["error"]["message"].as_str().expect("a message");
    assert!(why.contains("stays in the queue") && why.contains("is missing"), "{why}");
    let got = inputs(&platform, "orders").await;
    assert_eq!(got.len(), 3, "{got:?}");
    assert_eq!(
        (&got[0]["data"], &got[0]["type"]),
        (&json!({ "order": 1 }), &json!("dev.fanfold.queue.message"))
    );
    assert!(got.iter().any(|event| event["id"] == "2") && got.iter().any(|event| event["data"] == "three"));
    // What is posted does not come by the queue.
    let posted =
        platform.send("POST", "/v1/events", &[CLOUDEVENT], event.replace("\"2\"", "\"5\"")).await.expect(202);
    assert_eq!(posted.json()["outcomes"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_stream_are_taken_once() {
    let redis = Redis::start();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    let stream = json!({ "kind": "stream", "function": "echo", "stream": "orders" });
    let nowhere = platform.send("PUT", "/v1/triggers/new", &[], stream.to_string()).await;
    nowhere.expect_problem(400, "invalid", "trigger", "redis is missing");
    let mut stream = stream;
    stream["redis"] = json!(redis.url());
    redis.add("orders", "order", "0");
    let new = set(&platform, "new", stream.clone()).await;
    stream["backfill"] = json!(true);
    set(&platform, "all", stream).await;
    redis.add("orders", "order", "1");
    until(&platform, "new", |trigger| runs(trigger).len() == 1).await;
    until(&platform, "all", |trigger| runs(trigger).len() == 2).await;
    assert_eq!(inputs(&platform, "new").await[0]["data"], json!({ "order": "1" }));
    assert_eq!(inputs(&platform, "all").await.len(), 2);
    platform.kill();

    // Dies when a run is recorded and its entry not acknowledged, which the next reader claims.
    let platform = armed(dir.path(), "accept-durable:1");
    redis.add("orders", "order", "2");
    dies(platform).await;
    redis.add("orders", "order", "3");
    let platform = Platform::start(dir.path());
    until(&platform, "all", |trigger| runs(trigger).len() == 4).await;
    until(&platform, "new", |trigger| runs(trigger).len() == 3).await;
    let group = format!("fanfold:new:{}", new["created_at_ms"]);
    assert!(
        until_holds(PATIENCE, async || redis.pending("orders", &group) == 0).await,
        "all are acknowledged"
    );
    let got: Vec<_> =
        inputs(&platform, "new").await.iter().map(|event| event["data"]["order"].clone()).collect();
    assert_eq!(got.len(), 3, "{got:?}");
    assert!(["1", "2", "3"].iter().all(|order| got.contains(&json!(order))), "{got:?}");
}
