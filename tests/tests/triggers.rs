//! Triggers on a real platform: objects, schedules and events fire once, through crashes too; batches are split around what fails;
//! mistakes are named.

use std::time::{Duration, Instant};

use fanfold_tests::{
    cluster::{Cluster, PATIENCE, joined, until as until_holds},
    picture::{black, png},
    platform::Platform,
    triggers::{inputs, keys, put, runs, set, show, until},
};
use serde_json::{Value, json};

const CLOUDEVENT: (&str, &str) = ("content-type", "application/cloudevents+json");

#[tokio::test(flavor = "multi_thread")]
async fn an_object_fires_each_trigger_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    let texts = json!({ "kind": "objects", "function": "echo", "prefix": "in/", "suffix": ".txt" });
    set(&platform, "texts", texts.clone()).await;
    set(&platform, "all", json!({ "kind": "objects", "function": "echo", "on": ["created", "removed"] }))
        .await;
    put(&platform, "in/a.txt", "one").await;
    put(&platform, "in/a.png", "two").await;
    put(&platform, "in/b%20c.txt", "three").await;
    let got = inputs(&platform, "texts").await;
    assert_eq!(keys(&got), ["in/a.txt", "in/b c.txt"], "acknowledged is recorded");
    assert_eq!(
        (&got[0]["type"], &got[0]["data"]["bytes"]),
        (&json!("dev.fanfold.object.created"), &json!(3))
    );
    assert_eq!(runs(&show(&platform, "all").await).len(), 3, "overlapping triggers all fire");

    // Told again, before and after a crash: the same run.
    let again = async |platform: &Platform| {
        let answer = platform.send("POST", "/v1/events", &[CLOUDEVENT], got[0].to_string()).await;
        let view = answer.expect(202).json();
        let outcomes = view["outcomes"].as_array().expect("outcomes").clone();
        outcomes.iter().map(|outcome| outcome["invocation"].clone()).collect::<Vec<_>>()
    };
    let first = again(&platform).await;
    assert_eq!(first.len(), 2);
    platform.kill();
    let platform = Platform::start(dir.path());
    assert_eq!(again(&platform).await, first);
    assert_eq!(runs(&show(&platform, "texts").await).len(), 2);

    platform.send("DELETE", "/v1/objects/in/a.txt", &[], "").await.expect(204);
    let gone = inputs(&platform, "all").await;
    assert_eq!(gone.last().expect("a run")["type"], "dev.fanfold.object.removed");
    let mut paused = texts;
    paused["paused"] = json!(true);
    set(&platform, "texts", paused).await;
    put(&platform, "in/d.txt", "four").await;
    assert_eq!(runs(&show(&platform, "texts").await).len(), 2, "a paused trigger lets events pass");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_finds_what_no_event_told_of() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    for n in 0..3 {
        put(&platform, &format!("old/{n}"), "x").await;
    }
    let listed = |backfill: bool| json!({ "kind": "objects", "function": "echo", "prefix": "old/", "on": ["created", "removed"], "listing": "1s", "backfill": backfill });
    set(&platform, "backfill", listed(true)).await;
    set(&platform, "fresh", listed(false)).await;
    until(&platform, "backfill", |trigger| runs(trigger).len() == 3).await;
    until(&platform, "fresh", |trigger| trigger["listing"]["objects"] == 3).await;
    // Put while it listens, and found by the next listing, too: one run.
    put(&platform, "old/3", "x").await;
    let told = until(&platform, "backfill", |trigger| trigger["listing"]["objects"] == 4).await;
    assert_eq!(runs(&told).len(), 4, "{told}");

    // While the platform is down, an object comes and another goes.
    platform.kill();
    let objects = dir.path().join("objects/old+");
    std::fs::copy(objects.join("3"), objects.join("4")).expect("the layout of objects");
    std::fs::remove_file(objects.join("0")).expect("the layout of objects");
    let platform = Platform::start(dir.path());
    until(&platform, "backfill", |trigger| runs(trigger).len() == 6).await;
    until(&platform, "fresh", |trigger| runs(trigger).len() == 3).await;
    let got = inputs(&platform, "fresh").await;
    let mut got: Vec<_> = got.iter().map(|event| (&event["data"]["key"], &event["data"]["change"])).collect();
    got.sort_by_key(|(key, _)| key.to_string());
    let wanted =
        [("old/0", "removed"), ("old/3", "created"), ("old/4", "created")].map(|(k, c)| (json!(k), json!(c)));
    assert_eq!(got, wanted.iter().map(|(key, change)| (key, change)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_split_around_what_fails_as_a_whole() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    // With room for small photos only: a large one takes the function down.
    let manifest = "name = \"inbox\"\n[resources]\nmemory = \"64MiB\"\n[retry]\nattempts = 1\n[[trigger]]\nkind = \"objects\"\n\
                    prefix = \"inbox/\"\noutput = \"thumbnails/\"\ninput = \"manifest\"\nbatch = { max = 100, window = \"1h\" }\n";
    platform.deploy_as("inbox", manifest).await;
    assert_eq!(show(&platform, "inbox").await["manifest_of"], "inbox");
    let photo = png(64, 32);
    for n in 0..99 {
        put(&platform, &format!("inbox/{n}.png"), photo.clone()).await;
    }
    let waiting = show(&platform, "inbox").await;
    assert_eq!((&waiting["waiting"], runs(&waiting).len()), (&json!(99), 0));
    // What waits survives, and the last one closes the batch.
    platform.kill();
    let platform = Platform::start(dir.path());
    assert_eq!(show(&platform, "inbox").await["waiting"], 99);
    put(&platform, "inbox/bad.png", black(12_000, 8_000)).await;

    // Of 100 events with the bad one at their end: 50, 25, 12, 6, 3, 1.
    const LETTERS: usize = 7;
    let letter = the_only_letter(&platform, LETTERS, 99).await;
    assert_eq!(letter["error"]["kind"], "limit", "{letter}");
    assert_eq!(show(&platform, "inbox").await["waiting"], 0);
    // Mended, it may be tried again.
    put(&platform, "inbox/bad.png", photo).await;
    retry(&platform, &letter).await;
    // The trigger goes with the manifest, and what waits for it fires.
    platform.deploy_as("inbox", "name = \"inbox\"\n").await;
    platform.get("/v1/triggers/inbox").await.expect_problem(
        404,
        "not-found",
        "trigger",
        "there is no trigger",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_says_which_of_its_items_failed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let manifest = "name = \"inbox\"\n[[trigger]]\nkind = \"objects\"\nprefix = \"inbox/\"\noutput = \"thumbnails/\"\n\
                    input = \"manifest\"\nbatch = { max = 20, window = \"1h\", partial = true }\n";
    platform.deploy_as("inbox", manifest).await;
    // What the function writes fires without a listing.
    let made = json!({ "kind": "objects", "function": "echo", "prefix": "thumbnails/", "listing": "0s" });
    platform.deploy("echo").await.expect(201);
    set(&platform, "made", made).await;
    let photo = png(64, 32);
    for n in 0..19 {
        let bytes = if n == 7 { b"no photo".to_vec() } else { photo.clone() };
        put(&platform, &format!("inbox/{n}.png"), bytes).await;
    }
    put(&platform, "inbox/19.png", photo.clone()).await;
    let letter = the_only_letter(&platform, 1, 19).await;
    let why = letter["error"]["message"].as_str().expect("a message");
    assert!(why.starts_with("inbox/7.png: "), "{why}");
    until(&platform, "made", |trigger| runs(trigger).len() == 10).await;
    assert_eq!(inputs(&platform, "made").await[0]["fanfoldhops"], "2", "and a chain of runs has an end");
    let shown = show(&platform, "inbox").await;
    assert_eq!(runs(&shown).len(), 2, "the batch, and its item that failed: {shown}");
    // After a crash, too, it is the only one, and may be tried again once it is mended.
    platform.kill();
    let platform = Platform::start(dir.path());
    the_only_letter(&platform, 1, 19).await;
    retry(&platform, &letter).await;
    let again = until(&platform, "inbox", |trigger| runs(trigger).len() == 4).await;
    assert_eq!(again["runs"][0]["error"]["message"], why, "as it fails again, it is given up again");
}

/// The one dead letter that was not tried again, once there are so many letters in all, and so many thumbnails.
async fn the_only_letter(platform: &Platform, letters: usize, thumbnails: usize) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = platform.get("/v1/dead-letters?limit=1000").await.json();
        let all = all["items"].as_array().expect("items");
        let made = platform.get("/v1/objects?prefix=thumbnails/&limit=1000").await.json();
        let made = made["items"].as_array().expect("items").iter();
        let is_index = |key: &Value| key.as_str().is_some_and(|key| key.starts_with("thumbnails/index/"));
        let made = made.filter(|object| !is_index(&object["key"])).count();
        let open: Vec<_> = all.iter().filter(|letter| letter["retried_as"].is_null()).collect();
        if made == thumbnails && open.len() == 1 && all.len() == letters {
            return open[0].clone();
        }
        assert!(Instant::now() < deadline, "{made} thumbnails, {all:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Tries a dead letter again; the run ends well.
async fn retry(platform: &Platform, letter: &Value) {
    let retry = format!("/v1/dead-letters/{}/retry", letter["id"].as_str().expect("an id"));
    let again = platform.post(&retry, "").await.expect(202).json();
    let ended = platform.ended(again["id"].as_str().expect("an id")).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
}

/// Whether a gateway knows the owners of all shards, which takes a second or so.
async fn until_seen(gateway: &Platform) -> bool {
    until_holds(PATIENCE, async || gateway.get("/v1/jobs").await.status == 200).await
}

#[tokio::test(flavor = "multi_thread")]
async fn times_fire_once_wherever_gateways_die() {
    let cluster = Cluster::start();
    let (a, b) = (cluster.gateway("a"), cluster.gateway("b"));
    let _executor = cluster.executor("e", &[]);
    joined(&a, 1).await;
    joined(&b, 1).await;
    for gateway in [&a, &b] {
        let seen = until_seen(gateway).await;
        assert!(seen, "the gateways see each other");
    }
    b.deploy("echo").await.expect(201);
    let beat =
        json!({ "kind": "interval", "every": "1s", "function": "echo", "overlap": "allow", "missed": "all" });
    set(&b, "beat", beat.clone()).await;
    set(&a, "objects", json!({ "kind": "objects", "function": "echo", "prefix": "in/" })).await;
    until(&b, "beat", |trigger| runs(trigger).len() >= 3).await;
    // Either gateway takes objects, and both know of the runs.
    put(&a, "in/a", "x").await;
    put(&b, "in/b", "x").await;
    assert_eq!(runs(&show(&a, "objects").await), runs(&show(&b, "objects").await));
    assert_eq!(keys(&inputs(&b, "objects").await), ["in/a", "in/b"]);

    // The first gateway keeps the keys, so it is the one to die; the other takes over and makes up for what was missed.
    let before = show(&b, "beat").await["last_at_ms"].as_u64().expect("a time");
    a.kill();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = b.get("/v1/triggers/beat").await;
        if answer.status == 200 && answer.json()["last_at_ms"].as_u64() >= Some(before + 9_000) {
            break;
        }
        assert!(Instant::now() < deadline, "{}", answer.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let times: Vec<_> = inputs(&b, "beat").await.iter().map(|event| event["time"].clone()).collect();
    let seconds =
        |time: &Value| time.as_str().and_then(|time| time.get(17..19)?.parse::<i64>().ok()).expect("seconds");
    for pair in times.windows(2) {
        assert_eq!((seconds(&pair[1]) - seconds(&pair[0])).rem_euclid(60), 1, "each second once: {times:?}");
    }
    put(&b, "in/c", "x").await;
    assert_eq!(runs(&show(&b, "objects").await).len(), 3);

    let paused = json!({ "kind": "interval", "every": "1s", "function": "echo", "paused": true });
    assert!(set(&b, "beat", paused).await["next_at_ms"].is_null());
}

/// A platform whose trigger `orders` waits for events of the example's types, and `raw` for one of them.
async fn with_orders(dir: &std::path::Path) -> Platform {
    let platform = Platform::start(dir);
    platform.deploy("echo").await.expect(201);
    let orders = json!({ "kind": "event", "function": "echo", "filter": { "type": "com.example.*" } });
    set(&platform, "orders", orders).await;
    let raw = json!({ "kind": "event", "function": "echo", "input": "data", "filter": { "type": "com.example.raw" } });
    set(&platform, "raw", raw).await;
    platform
}

fn order(id: &str) -> Value {
    json!({ "specversion": "1.0", "id": id, "source": "/shop", "type": "com.example.new", "data_base64": "AP8=" })
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_as_the_specification_says() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = with_orders(dir.path()).await;
    let binary =
        [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/shop"), ("ce-type", "com.example.new")];
    platform.send("POST", "/v1/events", &binary, "").await.expect(202);
    platform.send("POST", "/v1/events", &binary, "").await.expect(202);
    let raw =
        [("ce-specversion", "1.0"), ("ce-id", "2"), ("ce-source", "/shop"), ("ce-type", "com.example.raw")];
    let long = vec![b'x'; 1 << 20];
    let outcomes = platform.send("POST", "/v1/events", &raw, long.clone()).await.expect(202).json();
    assert_eq!(outcomes["outcomes"].as_array().map(Vec::len), Some(2));
    let batched = [("content-type", "application/cloudevents-batch+json")];
    platform
        .send("POST", "/v1/events", &batched, json!([order("3"), order("4")]).to_string())
        .await
        .expect(202);
    let got = inputs(&platform, "orders").await;
    assert_eq!(
        got.iter().map(|event| event["id"].as_str().expect("an id")).collect::<Vec<_>>(),
        ["1", "2", "3", "4"]
    );
    assert_eq!(got[3]["data_base64"], "AP8=");
    let run = &runs(&show(&platform, "raw").await)[0];
    platform.ended(run).await;
    assert_eq!(platform.get(&format!("/v1/invocations/{run}/output")).await.expect(200).body, long);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_tells_of_its_objects() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    let bucket = json!({ "kind": "objects", "function": "echo", "bucket": "photos", "prefix": "in/" });
    set(&platform, "bucket", bucket).await;
    let notification = |key: &str| {
        let object = json!({ "key": key, "size": 3, "eTag": "e", "sequencer": "01" });
        json!({ "Records": [{ "eventName": "ObjectCreated:Put", "s3": { "bucket": { "name": "photos" }, "object": object } }] })
    };
    let webhook = [("content-type", "application/json")];
    for key in ["in/a+b.jpg", "in/a+b.jpg", "out/c.jpg"] {
        platform.send("POST", "/v1/events", &webhook, notification(key).to_string()).await.expect(202);
    }
    assert_eq!(keys(&inputs(&platform, "bucket").await), ["in/a b.jpg"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_tried_out_and_what_is_none_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = with_orders(dir.path()).await;
    // What would fire, and why not, without a run.
    let tried = platform
        .send("POST", "/v1/events?dry_run=true", &[CLOUDEVENT], order("9").to_string())
        .await
        .expect(200);
    let outcomes = tried.json()["outcomes"].clone();
    let of = |name: &str| {
        outcomes.as_array().and_then(|all| all.iter().find(|o| o["trigger"] == name)).expect("there").clone()
    };
    assert_eq!(of("orders")["fires"], true);
    assert!(of("raw")["why"].as_str().is_some_and(|why| why.contains("com.example.raw")));
    assert_eq!(runs(&show(&platform, "orders").await).len(), 0);

    let webhook = [("content-type", "application/json")];
    for (headers, body, part) in [
        (
            &[CLOUDEVENT][..],
            json!({ "specversion": "1.0", "id": "1", "source": "/s" }).to_string(),
            "`type` is missing",
        ),
        (
            &[CLOUDEVENT],
            json!({ "specversion": "0.3", "id": "1", "source": "/s", "type": "t" }).to_string(),
            "0.3",
        ),
        (&webhook, json!({ "Records": [{}] }).to_string(), "Records[0]"),
        (&webhook, String::from("{"), "no JSON"),
        (&[], String::from("x"), "no CloudEvent"),
    ] {
        let refused = platform.send("POST", "/v1/events", headers, body).await;
        refused.expect_problem(400, "invalid", "event", part);
    }
    let mut hops = order("5");
    hops["fanfoldhops"] = json!(8);
    let looped = platform.send("POST", "/v1/events", &[CLOUDEVENT], hops.to_string()).await;
    looped.expect_problem(400, "invalid", "event", "looks like a loop");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    let send =
        async |definition: Value| platform.send("PUT", "/v1/triggers/t", &[], definition.to_string()).await;
    for (definition, part) in [
        (json!({ "kind": "cron", "function": "echo", "schedule": "61 * * * *" }), "cannot be read"),
        (json!({ "kind": "cron", "function": "echo", "schedule": "0 0 30 2 *" }), "never fires"),
        (
            json!({ "kind": "cron", "function": "echo", "schedule": "0 0 * * *", "timezone": "Mars/Olympus" }),
            "is not known",
        ),
        (
            json!({ "kind": "objects", "function": "echo", "prefix": "in/", "output": "in/done/" }),
            "would fire itself",
        ),
        (json!({ "kind": "event", "function": "echo" }), "filter is empty"),
        (json!({ "kind": "objects" }), "function is missing"),
    ] {
        send(definition).await.expect_problem(400, "invalid", "trigger", part);
    }
    let missing = send(json!({ "kind": "interval", "every": "1m", "function": "ecoh" })).await;
    missing.expect_problem(404, "not-found", "function", "did you mean `echo`");
    send(json!({ "kind": "objects", "function": "echo", "sufix": "x" }))
        .await
        .expect_problem(400, "invalid", "request", "sufix");

    set(&platform, "t", json!({ "kind": "objects", "function": "echo", "prefix": "in/", "output": "out/" }))
        .await;
    let back = json!({ "kind": "objects", "function": "echo", "prefix": "out/", "output": "in/" });
    let back = platform.send("PUT", "/v1/triggers/back", &[], back.to_string()).await;
    back.expect_problem(400, "invalid", "trigger", "by way of t");
    let remove = platform.send("DELETE", "/v1/functions/echo", &[], "").await;
    remove.expect_problem(409, "conflict", "trigger", "trigger `t` calls `echo`");
    platform.send("DELETE", "/v1/triggers/t", &[], "").await.expect(204);
    platform.send("DELETE", "/v1/functions/echo", &[], "").await.expect(204);

    let out = platform.cli(&["--json", "trigger", "ls"]).output().expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "[]");
    platform.deploy("echo").await;
    let add = [
        "trigger",
        "add",
        "nightly",
        "--function",
        "echo",
        "--cron",
        "0 3 * * *",
        "--timezone",
        "Europe/Berlin",
    ];
    assert!(platform.cli(&add).status().expect("the command runs").success());
    let shown = platform.cli(&["trigger", "show", "nightly"]).output().expect("the command runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("0 3 * * * Europe/Berlin") && shown.contains("next time"), "{shown}");
}
