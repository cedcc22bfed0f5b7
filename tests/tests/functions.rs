//! Deploy and call: the REST interface as a user meets it, on a real platform.

use bytes::Bytes;
use fanfold_tests::{
    picture::png,
    platform::{Platform, component},
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_function_answers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("hello-http").await;
    platform.deploy("echo").await;
    platform.deploy("greet").await;

    let hello = platform.get("/function/hello-http/any/path?x=1").await.expect(200);
    assert!(hello.text().contains("hello"), "{}", hello.text());
    for name in ["fanfold-version", "fanfold-invocation", "server-timing", "fanfold-start"] {
        assert!(hello.headers.contains_key(name), "no {name} in {:?}", hello.headers);
    }
    let timing = hello.headers["server-timing"].to_str().expect("ASCII");
    for step in ["queue", "compile", "instantiate", "run"] {
        assert!(timing.contains(&format!("{step};dur=")), "{timing}");
    }
    let again = platform.get("/function/hello-http/").await.expect(200);
    assert_eq!(again.headers["fanfold-start"], "warm");

    let body = Bytes::from(vec![7; 300_000]);
    let echoed = platform.post("/function/echo", body.clone()).await.expect(200);
    assert_eq!(echoed.body, body);

    let greeting = platform.post("/function/greet?arg=Ada", "").await.expect(200);
    assert!(greeting.text().contains("Ada"), "{}", greeting.text());
    assert!(platform.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_aliases_and_rollback() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let bytes = std::fs::read(component("greet")).expect("a component");
    let manifest = |greeting: &str| format!("name = \"greet\"\n[env]\nGREETING = \"{greeting}\"\n");
    let first = platform.deploy_bytes("greet", &manifest("one"), &bytes).await.expect(201).json();
    let same = platform.deploy_bytes("greet", &manifest("one"), &bytes).await.expect(200).json();
    assert_eq!(first["version"], same["version"], "a deploy is idempotent by content");
    assert_eq!(same["created"], false);
    let second = platform.deploy_bytes("greet", &manifest("two"), &bytes).await.expect(201).json();
    assert_ne!(first["version"], second["version"]);

    let version = |answer: &fanfold_tests::platform::Answer| {
        answer.headers["fanfold-version"].to_str().expect("ASCII").to_owned()
    };
    let latest = platform.post("/function/greet", "").await.expect(200);
    assert_eq!(version(&latest), second["version"].as_str().expect("a version"));
    let weights = json!({ "weights": { first["version"].as_str().expect("a version"): 1 } }).to_string();
    let json = [("content-type", "application/json")];
    platform.send("POST", "/v1/functions/greet/aliases/stable", &json, weights).await.expect(200);
    let stable = platform.post("/function/greet:stable", "").await.expect(200);
    assert_eq!(version(&stable), first["version"].as_str().expect("a version"));
    platform.post("/v1/functions/greet/rollback", "").await.expect(200);
    let latest = platform.post("/function/greet", "").await.expect(200);
    assert_eq!(version(&latest), first["version"].as_str().expect("a version"));

    // All of it is durable.
    platform.kill();
    let platform = Platform::start(dir.path());
    let latest = platform.post("/function/greet", "").await.expect(200);
    assert_eq!(version(&latest), first["version"].as_str().expect("a version"));
    let described = platform.get("/v1/functions/greet").await.expect(200).json();
    assert_eq!(described["versions"].as_array().map(Vec::len), Some(2));
    platform.send("DELETE", "/v1/functions/greet", &[], "").await.expect(204);
    platform.post("/function/greet", "").await.expect_problem(404, "not-found", "function", "greet");
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_invocations_and_idempotency() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await;
    let key = [("idempotency-key", "k1")];
    let first = platform.send("POST", "/async-function/echo", &key, "one").await.expect(202);
    let location = first.headers["location"].to_str().expect("ASCII").to_owned();
    let id = first.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(location, format!("/v1/invocations/{id}"));
    let again = platform.send("POST", "/async-function/echo", &key, "one").await.expect(202);
    assert_eq!(again.json()["id"], id.as_str(), "the same key and body is the same invocation");
    let other = platform.send("POST", "/async-function/echo", &key, "two").await;
    other.expect_problem(409, "conflict", "idempotency-key", "");
    assert_eq!(platform.ended(&id).await["state"], "succeeded");
    assert_eq!(platform.get(&format!("{location}/output")).await.expect(200).text(), "one");

    // A large input and output go through the object store.
    let large = Bytes::from(vec![b'z'; 3 << 20]);
    let prefer = [("prefer", "respond-async")];
    let accepted = platform.send("POST", "/function/echo", &prefer, large.clone()).await.expect(202);
    let id = accepted.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(platform.ended(&id).await["state"], "succeeded");
    assert_eq!(platform.get(&format!("/v1/invocations/{id}/output")).await.expect(200).body, large);

    // A keyed synchronous call answers twice what it answered once.
    let key = [("idempotency-key", "k2")];
    let first = platform.send("POST", "/function/echo", &key, "three").await.expect(200);
    let again = platform.send("POST", "/function/echo", &key, "three").await.expect(200);
    assert_eq!(first.body, again.body);
    let other = platform.send("POST", "/function/echo", &key, "four").await;
    other.expect_problem(409, "conflict", "idempotency-key", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_counts_words_and_shows_how() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("wordcount").await;
    let mut wanted: std::collections::BTreeMap<String, u64> = Default::default();
    for n in 0..40 {
        let words: Vec<String> = (0..2000).map(|i| format!("w{}", i * (n + 1) % 97)).collect();
        for word in &words {
            *wanted.entry(word.clone()).or_default() += 1;
        }
        platform.send("PUT", &format!("/v1/objects/in/{n}.txt"), &[], words.join(" ")).await.expect(201);
    }
    let listed = platform.get("/v1/objects?prefix=in/1").await.expect(200).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(11));

    let request = json!({ "function": "wordcount", "input": { "prefix": "in/", "top": 5 } }).to_string();
    let json = [("content-type", "application/json")];
    let job = platform.send("POST", "/v1/jobs", &json, request).await.expect(202).json();
    let id = job["id"].as_str().expect("an id");
    let view = platform.ended(id).await;
    assert_eq!(view["state"], "succeeded", "{view}");
    assert!(view["progress"]["tasks"].as_u64() >= Some(3), "{view}");
    let result = platform.get(&format!("/v1/invocations/{id}/output")).await.expect(200).json();
    assert_eq!(result["words"], 80_000);
    assert_eq!(result["distinct"], wanted.len());
    let mut best: Vec<_> = wanted.into_iter().collect();
    best.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    for (row, (word, count)) in result["top"].as_array().expect("a list").iter().zip(&best) {
        assert_eq!((row["word"].as_str(), row["count"].as_u64()), (Some(word.as_str()), Some(*count)));
    }
    let graph = platform.get(&format!("/v1/jobs/{id}/graph")).await.expect(200).json();
    assert_eq!(
        graph["tasks"].as_array().map(Vec::len),
        view["progress"]["tasks"].as_u64().map(|n| n as usize)
    );
    let cost = platform.get(&format!("/v1/jobs/{id}/cost")).await.expect(200).json();
    assert!(cost.is_object(), "{cost}");
    let jobs = platform.get("/v1/jobs").await.expect(200).json();
    assert!(jobs["items"].as_array().is_some_and(|jobs| jobs.iter().any(|job| job["id"] == id)), "{jobs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_become_thumbnails() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("thumbnail").await;
    let small = platform.post("/function/thumbnail", png(640, 480)).await.expect(200);
    assert!(small.body.len() > 60 && small.body.len() < 200_000, "{} bytes", small.body.len());
    let refused = platform.post("/function/thumbnail", "not a picture").await;
    refused.expect_problem(400, "invalid", "error-returned", "neither a JPEG nor a PNG");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_of_megabytes_is_deployed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let mut large = std::fs::read(component("echo")).expect("a component");
    // A custom section: its kind, its length in LEB128, its name, and bytes that mean nothing.
    let name = b"\x07ballast";
    let length = (5 << 20) + name.len();
    large.push(0);
    large.extend((0..4).map(|n| (length >> (7 * n) & 0x7f) as u8 | if n < 3 { 0x80 } else { 0 }));
    large.extend_from_slice(name);
    large.resize(large.len() + (5 << 20), 0);
    platform.deploy_bytes("large", "name = \"large\"\n", &large).await.expect(201);
    assert_eq!(platform.post("/function/large", "weight").await.expect(200).text(), "weight");
}
