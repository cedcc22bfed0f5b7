//! The REST interface over a real socket, with a direct lane in memory instead of an executor.

mod client;
mod lane;

use std::time::Duration;

use fanfold_store::Store;
use http::StatusCode;
use serde_json::{Value, json};

use self::{client::Client, lane::Lane};
use crate::{Config, Gateway};

struct Setting {
    gateway: Gateway,
    client: Client,
    lane: Lane,
}

async fn start(config: Config) -> Setting {
    let store = Store::in_memory();
    let lane = Lane::new(store.clone());
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..config };
    let gateway = Gateway::start(config, store, lane.shared(), Vec::new(), None).await.unwrap();
    let client = Client::new(gateway.local_addr());
    Setting { gateway, client, lane }
}

#[tokio::test]
async fn a_function_lives_from_deploy_to_removal() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    let first = client.deploy("up", "", "task 1").await.expect(201).json();
    assert_eq!(client.deploy("up", "", "task 1").await.expect(200).json()["created"], json!(false));
    let second = client.deploy("up", "", "task 2").await.expect(201).json();
    let called = client.post("/function/up", "shout").await.expect(200);
    assert_eq!(called.text(), "SHOUT");
    assert_eq!(called.header("fanfold-version"), second["version"].as_str().unwrap());
    assert_eq!(called.header("fanfold-start"), "warm");
    assert_eq!(
        called.header("server-timing"),
        "queue;dur=0.000, compile;dur=0.000, instantiate;dur=0.007, run;dur=0.100"
    );

    let weights = json!({ "weights": { first["version"].as_str().unwrap(): 1 } });
    client.post("/v1/functions/up/aliases/old", weights.to_string()).await.expect(200);
    let old = client.post("/function/up:old", "x").await.expect(200);
    assert_eq!(old.header("fanfold-version"), first["version"].as_str().unwrap());
    let back = client.post("/v1/functions/up/rollback", "").await.expect(200).json();
    assert_eq!(back["aliases"]["latest"], json!({ first["version"].as_str().unwrap(): 1 }));
    client.post("/v1/functions/up/rollback", "").await.problem(412, "precondition");

    let listed = client.get("/v1/functions?limit=1").await.expect(200).json();
    assert_eq!((listed["items"][0]["name"].as_str(), listed["next"].as_str()), (Some("up"), None));
    client.send("DELETE", "/v1/functions/up", &[], "").await.expect(204);
    client.post("/function/up", "x").await.problem(404, "function");
    gateway.shutdown().await;
}

#[tokio::test]
async fn refused_uploads_say_why() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    client.deploy("bad", "", "neither").await.problem(422, "no-export");
    client.deploy("bad", "colour = 1", "task").await.problem(400, "manifest");
    client.send("PUT", "/v1/functions/UPPER", &[], "x").await.problem(400, "name");
    client
        .send("PUT", "/v1/functions/bad", &[("content-type", "text/plain")], "x")
        .await
        .problem(400, "request");
    let other = client.deploy_at("other", "name = \"bad\"", "task").await.problem(400, "manifest");
    assert!(other.contains("`bad`") && other.contains("`other`"), "{other}");
    client.deploy("bad", "", &"x".repeat(51 << 20)).await.problem(413, "component-too-large");
    client.get("/v1/functions/bad").await.problem(404, "function");
    gateway.shutdown().await;
}

#[tokio::test]
async fn http_functions_see_their_own_paths() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    client.deploy("site", "", "http").await.expect(201);
    let seen = |path: &'static str, wanted: &'static str, prefix: &'static str| {
        let client = &client;
        async move {
            let seen = client.send("PATCH", path, &[("traceparent", "00-1-2-01")], "").await.expect(200);
            assert_eq!(seen.header("traceparent"), "00-1-2-01");
            let seen = seen.json();
            assert_eq!(
                (seen["uri"].as_str(), seen["prefix"].as_str()),
                (Some(wanted), Some(prefix)),
                "{path}"
            );
            assert_eq!(seen["host"].as_str(), Some("fanfold.test"));
        }
    };
    seen("/function/site", "/", "/function/site").await;
    seen("/function/site/", "/", "/function/site").await;
    seen("/function/site?a=1", "/?a=1", "/function/site").await;
    seen("/function/site/a/b%20c?x=1&y=/2", "/a/b%20c?x=1&y=/2", "/function/site").await;
    seen("/function/site:latest/a", "/a", "/function/site:latest").await;

    client.deploy("up", "", "task").await.expect(201);
    client.get("/function/up").await.problem(405, "method");
    client.post("/function/up/below", "").await.problem(404, "route");
    gateway.shutdown().await;
}

#[tokio::test]
async fn places_are_bounded_and_a_client_that_leaves_frees_its_own() {
    let Setting { gateway, client, lane } = start(Config::default()).await;
    client.deploy("site", "[concurrency]\nmax = 1\nqueue = 0", "http").await.expect(201);
    let mut hanging = Box::pin(client.get("/function/site/hang"));
    tokio::select! {
        _ = &mut hanging => panic!("it hangs"),
        () = lane.hanging() => {}
    }
    let refused = client.get("/function/site/").await;
    assert_eq!(refused.header("retry-after"), "1");
    refused.problem(429, "queue-full");
    drop(hanging);
    lane.dropped().await;
    client.get("/function/site/").await.expect(200);
    gateway.shutdown().await;
}

#[tokio::test]
async fn bodies_are_capped_and_refused_clients_hear_why() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    client.deploy("site", "body_max = \"1KiB\"", "http").await.expect(201);
    client.deploy("up", "", "task").await.expect(201);
    assert_eq!(client.post("/function/site/echo", "x".repeat(1024)).await.expect(200).body.len(), 1024);
    client.post("/function/site/echo", "x".repeat(100_000)).await.problem(413, "body-too-large");
    client
        .post_chunked("/function/site/read", &["x".repeat(700), "y".repeat(700)])
        .await
        .problem(413, "body-too-large");
    client.post("/function/up", "x".repeat(9 << 20)).await.problem(413, "body-too-large");
    client.post("/async-function/up", "x".repeat(9 << 20)).await.problem(413, "body-too-large");
    client.post("/function/nobody", "x".repeat(9 << 20)).await.problem(404, "function");
    client.get("/function/site/big").await.problem(502, "output-too-large");
    assert!(
        client.try_get("/function/site/drip").await.is_err(),
        "a response that turns out too long breaks off"
    );
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_key_makes_a_call_once() {
    let Setting { gateway, client, lane } = start(Config::default()).await;
    client.deploy("site", "", "http").await.expect(201);
    let key = [("idempotency-key", "k")];
    let first = client.send("POST", "/function/site/count", &key, "a").await.expect(200).text();
    assert_eq!(client.send("POST", "/function/site/count", &key, "a").await.expect(200).text(), first);
    client.send("POST", "/function/site/count", &key, "b").await.problem(409, "idempotency-key");
    assert_eq!(lane.calls(), 1);
    client.send("POST", "/function/site/large", &key, "").await.problem(502, "output-too-large");
    client.send("POST", "/function/site/large", &key, "").await.problem(502, "output-too-large");
    assert_eq!(lane.calls(), 2, "a call whose answer cannot be kept is not made again");

    client.deploy("site", "", "http 2").await.expect(201);
    let rolled = client.send("POST", "/v1/functions/site/rollback", &key, "").await.expect(200).json();
    assert_eq!(client.send("POST", "/v1/functions/site/rollback", &key, "").await.expect(200).json(), rolled);
    gateway.shutdown().await;
}

#[tokio::test]
async fn what_is_accepted_can_be_watched_and_cancelled() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    client.deploy("up", "", "task").await.expect(201);
    client.deploy("site", "", "http").await.expect(201);
    let key = [("idempotency-key", "k"), ("traceparent", "00-1-2-01")];
    let accepted = client.send("POST", "/async-function/up", &key, "in").await.expect(202);
    let id = accepted.json()["id"].as_str().unwrap().to_owned();
    let at = format!("/v1/invocations/{id}");
    assert_eq!((accepted.header("location"), accepted.header("traceparent")), (at.as_str(), "00-1-2-01"));
    let again = client.send("POST", "/async-function/up", &key, "in").await.expect(202);
    assert_eq!(again.json()["id"], id.as_str());
    client.send("POST", "/async-function/up", &key, "other").await.problem(409, "idempotency-key");
    client.send("POST", "/function/up", &[("prefer", "respond-async")], "in").await.expect(202);
    client.post("/async-function/site?lost=1", "").await.problem(400, "request");

    // No executor is there, so it stays where it is until somebody cancels it.
    assert_eq!(client.get(&format!("{at}?wait=20ms")).await.expect(200).json()["state"], "queued");
    client.get(&format!("{at}/output")).await.problem(409, "not-finished");
    let waiting = async { client.get(&format!("{at}?wait=60s")).await.expect(200).json() };
    let events = async { client.get(&format!("/v1/jobs/{id}/events")).await.expect(200) };
    let following = async { client.get(&format!("{at}/logs?follow=true")).await.expect(200) };
    let cancelling = async { client.post(&format!("{at}/cancel"), "").await.expect(200).json() };
    let (waited, events, followed, _) = futures::join!(waiting, events, following, cancelling);
    assert_eq!(waited["state"], "cancelled");
    assert!(events.text().contains("\"state\":\"cancelled\""), "{}", events.text());
    assert_eq!(followed.text(), "");
    let listed = client.get("/v1/invocations").await.expect(200).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));

    // What was asked for as a batch job is listed as one, whether or not its function calls others.
    let job = client.post("/v1/jobs", r#"{"function": "up", "input": 1}"#).await.expect(202).json();
    let listed = client.get("/v1/jobs").await.expect(200).json();
    let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["id"]).collect();
    assert_eq!(ids, [&job["id"]]);
    gateway.shutdown().await;
}

#[tokio::test]
async fn objects_go_in_and_out() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    let put = client.send("PUT", "/v1/objects/in/a%20b.txt", &[], "hello world").await.expect(201).json();
    assert_eq!((put["key"].as_str(), put["bytes"].as_u64()), (Some("in/a b.txt"), Some(11)));
    assert_eq!(client.get("/v1/objects/in/a%20b.txt").await.expect(200).text(), "hello world");
    let part =
        client.send("GET", "/v1/objects/in/a%20b.txt", &[("range", "bytes=6-99")], "").await.expect(206);
    assert_eq!((part.text().as_str(), part.header("content-range")), ("world", "bytes 6-10/11"));
    let last = client.send("GET", "/v1/objects/in/a%20b.txt", &[("range", "bytes=-5")], "").await.expect(206);
    assert_eq!(last.text(), "world");
    let past = client.send("GET", "/v1/objects/in/a%20b.txt", &[("range", "bytes=11-")], "").await;
    assert_eq!(
        (past.status, past.header("content-range")),
        (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */11")
    );
    let head = client.send("HEAD", "/v1/objects/in/a%20b.txt", &[], "").await.expect(200);
    assert_eq!(head.header("content-length"), "11");
    assert_eq!(head.header("etag").trim_matches('"'), put["etag"].as_str().unwrap());
    client
        .send("GET", "/v1/objects/in/a%20b.txt", &[("if-match", "\"other\"")], "")
        .await
        .problem(412, "precondition");
    let listed = client.get("/v1/objects?prefix=in/").await.expect(200).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    client.send("DELETE", "/v1/objects/in/a%20b.txt", &[], "").await.expect(204);
    client.get("/v1/objects/in/a%20b.txt").await.problem(404, "object");
    client.send("PUT", "/v1/objects/a//b", &[], "x").await.expect(400);
    gateway.shutdown().await;
}

#[tokio::test]
async fn nonsense_gets_problems() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    client.get("/v1/nothing").await.problem(404, "route");
    client.send("PATCH", "/v1/jobs", &[], "").await.problem(405, "method");
    client.get("/v1/invocations/nonsense").await.problem(400, "name");
    client.get("/v1/invocations/01234567-89ab-7def-8123-456789abcdef").await.problem(404, "invocation");
    client.get("/v1/jobs?limit=many").await.problem(400, "request");
    client.get("/v1/functions/%ff").await.problem(400, "request");
    client.post("/v1/jobs", "{").await.problem(400, "request");
    client.post("/v1/jobs", r#"{"function": "nobody"}"#).await.problem(404, "function");
    client.get("/function/../etc").await.problem(400, "name");
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_token_is_asked_for_where_there_is_one() {
    let Setting { gateway, client, .. } =
        start(Config { token: Some("t0ken".into()), ..Config::default() }).await;
    client.get("/healthz").await.expect(200);
    client.get("/readyz").await.expect(200);
    for path in ["/function/x", "/v1/functions", "/metrics", "/openapi.json"] {
        client.get(path).await.problem(401, "token");
    }
    client.send("GET", "/v1/functions", &[("authorization", "Bearer t0ken")], "").await.expect(200);
    gateway.shutdown().await;
}

#[tokio::test]
async fn clients_that_stand_still_are_let_go() {
    let short = Duration::from_millis(200);
    let Setting { gateway, client, .. } =
        start(Config { header_timeout: short, body_timeout: short, ..Config::default() }).await;
    client.deploy("site", "", "http").await.expect(201);
    let closed = client.raw("GET / HTTP/1.1\r\nhost: x\r\nx-sl").await;
    assert_eq!(closed, "");
    let answer =
        client.raw("POST /function/site/read HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345").await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("request-timeout"), "{answer}");
    gateway.shutdown().await;
}

#[tokio::test]
async fn recent_calls_keep_their_logs_and_figures_are_counted() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    client.deploy("site", "", "http").await.expect(201);
    let called = client.get("/function/site/log").await.expect(200);
    let logs = client
        .get(&format!("/v1/invocations/{}/logs", called.header("fanfold-invocation")))
        .await
        .expect(200);
    assert_eq!(logs.text(), "{\"line\":\"hi\"}\n");
    let failed = client.get("/function/site/trap").await.expect(502);
    let logs = client
        .get(&format!("/v1/invocations/{}/logs", failed.header("fanfold-invocation")))
        .await
        .expect(200);
    assert_eq!(logs.text(), "{\"line\":\"last words\"}\n");
    let metrics = client.get("/metrics").await.expect(200).text();
    for line in [
        "fanfold_requests_total{route=\"function\",status=\"200\"} 1",
        "fanfold_direct_calls_total{start=\"warm\"} 1",
        "fanfold_functions 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line} is missing in\n{metrics}");
    }
    gateway.shutdown().await;
}

#[tokio::test]
async fn shutdown_lets_calls_finish_and_cancels_those_that_do_not() {
    let config = Config { drain: Duration::from_millis(300), ..Config::default() };
    let Setting { gateway, client, lane } = start(config).await;
    client.deploy("site", "", "http").await.expect(201);
    let (slow, hung, ()) =
        futures::join!(client.get("/function/site/release"), client.try_get("/function/site/hang"), async {
            lane.hanging().await;
            lane.releasable().await;
            let shutdown = gateway.shutdown();
            futures::join!(shutdown, async { lane.release() });
        });
    slow.expect(200);
    assert!(hung.is_err());
    assert!(client.try_get("/healthz").await.is_err());
    lane.dropped().await;
}

#[tokio::test]
async fn the_document_names_every_route() {
    let Setting { gateway, client, .. } = start(Config::default()).await;
    let document = client.get("/openapi.json").await.expect(200).json();
    let methods = |path: &str| -> Vec<String> {
        let item = document["paths"][path].as_object();
        item.into_iter().flatten().map(|(method, _)| method.clone()).filter(|m| m != "parameters").collect()
    };
    for (path, wanted) in [
        ("/function/{name}", vec!["post"]),
        ("/async-function/{name}", vec!["post"]),
        ("/v1/functions/{name}", vec!["delete", "get", "put"]),
        ("/v1/functions/{name}/aliases/{alias}", vec!["post"]),
        ("/v1/invocations/{id}/logs", vec!["get"]),
        ("/v1/jobs", vec!["get", "post"]),
        ("/v1/jobs/{id}/events", vec!["get"]),
        ("/v1/partitions/{id}/lineage", vec!["get"]),
        ("/v1/executors", vec!["get"]),
        ("/v1/objects/{key}", vec!["delete", "get", "head", "put"]),
        ("/v1/dead-letters/{id}/retry", vec!["post"]),
        ("/metrics", vec!["get"]),
    ] {
        let mut found = methods(path);
        found.sort();
        assert_eq!(found, wanted, "{path}");
    }
    let refused = &document["paths"]["/v1/functions/{name}"]["put"]["responses"]["422"]["content"];
    assert!(refused["application/problem+json"].is_object(), "{refused}");
    assert!(dangling(&document).is_empty(), "{:?}", dangling(&document));
    gateway.shutdown().await;
}

/// References to schemas that the document does not have.
fn dangling(document: &Value) -> Vec<String> {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
                Some(text) if key == "$ref" => found.push(text.to_owned()),
                _ => references(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(document, &mut found);
    found.retain(|reference| document.pointer(reference.trim_start_matches('#')).is_none());
    found
}
