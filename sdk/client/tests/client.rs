//! The client against a scripted server: what is repeated, what is not, and what an answer becomes.

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fanfold_client::{
    Client, Error, Upload,
    protocol::{Code, FunctionName, JobId, Kind},
    rest::State,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;
use support::{Server, json as answer, problem, text};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn object(key: &str) -> serde_json::Value {
    json!({ "key": key, "bytes": 1, "etag": "e", "modified_at_ms": 0 })
}

fn job(state: &str) -> serde_json::Value {
    json!({
        "id": ID, "function": "f", "version": "0".repeat(64), "state": state, "accepted_at_ms": 1, "attempts": 1,
        "progress": { "tasks": 1, "finished": 0, "running": 1, "retries": 0, "bytes_read": 0, "bytes_written": 0,
            "stages": {} },
        "usage": { "start_us": 0, "run_us": 0, "cpu_us": 0, "memory_peak": 0, "bytes_read": 0, "bytes_written": 0,
            "cold": false },
    })
}

#[tokio::test]
async fn reads_are_repeated_until_answered() {
    let server = Server::start(|_, before| match before {
        0 => problem(503, "overloaded", "draining", true),
        1 => None,
        _ => answer(&json!({ "items": [] })),
    })
    .await;
    assert!(server.client().functions().await.unwrap().is_empty());
    assert_eq!(server.seen().len(), 3);
    assert_eq!(server.seen()[0].header("authorization"), "Bearer secret");
}

#[tokio::test]
async fn a_call_is_repeated_only_where_nothing_ran() {
    let server = Server::start(|_, before| match before {
        0 => problem(429, "overloaded", "queue-full", true),
        _ => problem(500, "platform", "internal", true),
    })
    .await;
    let error = server.client().invoke("f", "x").await.unwrap_err();
    assert_eq!(server.seen().len(), 2, "the 429 is repeated, the 500 is not");
    assert!(error.is_retryable() && !error.has_no_side_effects());
    assert_eq!(error.problem().unwrap().code, Code::Internal);
}

#[tokio::test]
async fn a_broken_connection_does_not_make_two_invocations() {
    let server =
        Server::start(|_, before| if before < 2 { None } else { answer(&json!({ "id": ID })) }).await;
    let invocation = server.client().invoke_async("f:beta", "input").await.unwrap();
    assert_eq!(invocation.id(), ID.parse::<JobId>().unwrap());
    let seen = server.seen();
    let key = seen[0].header("idempotency-key");
    assert_eq!(key.len(), 32);
    assert!(seen.iter().all(|s| s.header("idempotency-key") == key && &s.body[..] == b"input"));
    assert_eq!(seen[0].uri.path(), "/async-function/f:beta");
}

#[tokio::test]
async fn a_call_with_a_key_is_repeated_and_one_without_is_not() {
    let script = |_: &_, before: usize| if before == 0 { None } else { text("text/plain", "done") };
    let server = Server::start(script).await;
    let error = server.client().invoke("f", "x").await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }) && !error.has_no_side_effects(), "{error:?}");

    let server = Server::start(script).await;
    let reply = server.client().call("f").body("x").idempotency_key("k").send().await.unwrap();
    assert_eq!(&reply.body[..], b"done");
}

#[tokio::test]
async fn an_http_function_may_answer_with_any_status() {
    let server = Server::start(|_, before| {
        let mut response = match before {
            0 => text("text/plain", "no such user")?,
            // A problem, but of the function's own making.
            _ => text("application/problem+json", r#"{"title":"mine"}"#)?,
        };
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        let headers = response.headers_mut();
        headers.insert("server-timing", "queue;dur=0.002, run;dur=1.5".parse().unwrap());
        Some(response)
    })
    .await;
    let call =
        || server.client().call("api").method(http::Method::GET).path("/users/7?full=1").header("x-a", "b");
    let reply = call().send().await.unwrap();
    assert_eq!((reply.head.status.as_u16(), &reply.body[..]), (404, &b"no such user"[..]));
    assert_eq!((reply.head.timing.queue_us, reply.head.timing.run_us), (Some(2), Some(1500)));
    assert_eq!(&call().send().await.unwrap().body[..], br#"{"title":"mine"}"#);
    assert_eq!(server.seen()[0].uri, "/function/api/users/7?full=1");
    assert_eq!(server.seen()[0].header("x-a"), "b");
}

#[tokio::test]
async fn refusals_say_what_to_do_next() {
    let server = Server::start(|_, _| problem(404, "not-found", "function", false)).await;
    let error = server.client().function("nope").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable(), error.has_no_side_effects()),
        (Some(Kind::NotFound), false, true)
    );
    assert_eq!(error.to_string(), "it is function");

    let nobody = Client::new("http://127.0.0.1:1", None).unwrap();
    let error = nobody.invoke("f", "").await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.has_no_side_effects());
    assert!(matches!(Client::new("https://x", None), Err(Error::Request(_))));
    assert!(matches!(Client::new("7070", None), Err(Error::Request(_))));
}

#[tokio::test]
async fn keys_arrive_as_they_are() {
    let server = Server::start(|_, _| answer(&object("k"))).await;
    let client = server.client();
    client.put_object("a b/100%/ü?#.txt", "x").await.unwrap();
    assert_eq!(server.seen()[0].uri, "/v1/objects/a%20b/100%25/%C3%BC%3F%23.txt");
    for bad in ["", "a/../b", ".", "a/."] {
        assert!(client.put_object(bad, "x").await.unwrap_err().has_no_side_effects(), "{bad}");
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn many_small_objects_share_connections() {
    let server = Server::start(|_, _| answer(&object("k"))).await;
    let client = server.client();
    let puts = futures::stream::iter(0..500).map(|n| {
        let client = client.clone();
        async move { client.put_object(&format!("small/{n}"), vec![b'x'; 100]).await }
    });
    puts.buffer_unordered(8).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(server.seen().len(), 500);
    assert!(server.connections() <= 16, "{} connections", server.connections());
}

#[tokio::test]
async fn files_are_sent_again_whole_and_tell_their_progress() {
    let server = Server::start(|_, before| {
        if before == 0 { problem(503, "platform", "storage", true) } else { answer(&object("k")) }
    })
    .await;
    let dir = std::env::temp_dir().join(format!("fanfold-client-{}", std::process::id()));
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    std::fs::write(&dir, &bytes).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let progress = Arc::clone(&sent);
    let upload = Upload::file(&dir).on_progress(move |bytes| progress.store(bytes, Ordering::Relaxed));
    let result = server.client().put_object("big", upload).await;
    std::fs::remove_file(&dir).unwrap();
    result.unwrap();
    let seen = server.seen();
    assert_eq!((seen.len(), seen[1].body.len(), sent.load(Ordering::Relaxed)), (2, 3_000_000, 3_000_000));
    assert!(seen[1].body == bytes && seen[1].header("content-length") == "3000000");

    let error = server.client().put_object("gone", Upload::file(&dir)).await.unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error:?}");
}

#[tokio::test]
async fn a_deploy_carries_manifest_and_component() {
    let version = "1".repeat(64);
    let deployed =
        json!({ "name": "f", "version": version, "kind": "http", "created": true, "compile_us": 5 });
    let server = Server::start(move |_, _| answer(&deployed)).await;
    let name: FunctionName = "f".parse().unwrap();
    let view = server.client().deploy(&name, "name = \"f\"", vec![0u8; 700_000]).await.unwrap();
    assert!(view.created);
    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.uri.path()), ("PUT", "/v1/functions/f"));
    assert!(seen.header("content-type").starts_with("multipart/form-data"));
    let head = String::from_utf8_lossy(&seen.body[..400]).into_owned();
    assert!(head.contains("name=\"manifest\"") && head.contains("name = \"f\""), "{head}");
    assert_eq!(seen.header("content-length"), seen.body.len().to_string());
}

#[tokio::test]
async fn listings_follow_their_pages() {
    let server = Server::start(|seen, _| match seen.uri.query().unwrap_or_default() {
        "prefix=logs%2F&limit=1000" => answer(&json!({ "items": [object("logs/a")], "next": "logs/a" })),
        "prefix=logs%2F&limit=1000&after=logs%2Fa" => answer(&json!({ "items": [object("logs/b")] })),
        other => panic!("{other}"),
    })
    .await;
    let objects: Vec<_> = server.client().objects("logs/").try_collect().await.unwrap();
    assert_eq!(objects.iter().map(|o| o.key.as_str()).collect::<Vec<_>>(), ["logs/a", "logs/b"]);
}

#[tokio::test]
async fn a_watch_outlives_its_connection() {
    let server = Server::start(|_, before| match before {
        // Ends in the middle of an event.
        0 => text("text/event-stream", &format!(": hi\n\ndata: {}\n\ndata: {{\"id", job("running"))),
        1 => None,
        _ => text("text/event-stream", &format!("data: {}\n\n", job("succeeded"))),
    })
    .await;
    let invocation = server.client().invocation(ID.parse().unwrap());
    let states: Vec<State> = invocation.watch().map_ok(|view| view.state).try_collect().await.unwrap();
    assert_eq!(states, [State::Running, State::Succeeded]);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_result_waits_and_a_failure_is_an_error() {
    let server = Server::start(|seen, before| match (seen.uri.path().ends_with("/output"), before) {
        (true, _) => text("text/plain", "42"),
        (_, 0) => answer(&job("running")),
        _ => answer(&job("succeeded")),
    })
    .await;
    let invocation = server.client().invocation(ID.parse().unwrap());
    assert_eq!(&invocation.result().await.unwrap()[..], b"42");
    assert_eq!(server.seen()[0].uri.query(), Some("wait=30000ms"));

    let mut failed = job("failed");
    failed["error"] =
        json!({ "kind": "guest", "code": "trap", "message": "unreachable", "retryable": false });
    let server = Server::start(move |_, _| answer(&failed)).await;
    let error = server.client().invocation(ID.parse().unwrap()).result().await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (Some(Kind::Guest), "unreachable"));
}
