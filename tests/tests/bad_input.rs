//! Bad input: each gets a clear, typed error; nothing is lost and the server stays healthy.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use fanfold_tests::platform::{Platform, component};
use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct Setting {
    platform: Platform,
    _dir: tempfile::TempDir,
}

fn setting() -> Setting {
    let dir = tempfile::tempdir().expect("a temporary directory");
    Setting { platform: Platform::start(dir.path()), _dir: dir }
}

fn manifest(name: &str) -> String {
    format!("name = \"{name}\"\n")
}

/// A module with one memory-less function `n` times.
fn many_functions(n: usize) -> Vec<u8> {
    let mut text = String::from("(module\n");
    for _ in 0..n {
        text.push_str("(func)\n");
    }
    text.push(')');
    wat::parse_str(text).expect("WAT")
}

#[tokio::test(flavor = "multi_thread")]
async fn components_that_are_none_are_refused() {
    let setting = setting();
    let platform = &setting.platform;
    let echo = std::fs::read(component("echo")).expect("a component");
    let unknown = wat::parse_str(
        r#"(component
            (import "acme:rocket/engine@1.2.3" (instance (export "ignite" (func)) (export "thrust" (func))))
            (import "acme:fuel/tank@0.1.0" (instance (export "level" (func))))
            (instance $run)
            (export "wasi:cli/run@0.2.0" (instance $run)))"#,
    )
    .expect("WAT");
    let nothing = wat::parse_str("(component)").expect("WAT");
    let cases: [(&[u8], &str, &str); 5] = [
        (b"hello", "not-wasm", "not"),
        (&echo[..echo.len() / 2], "malformed-component", ""),
        (&unknown, "missing-imports", "acme:rocket/engine@1.2.3"),
        (&nothing, "no-export", ""),
        (&many_functions(200_000), "component-too-large", "100000"),
    ];
    for (bytes, code, part) in cases {
        let answer = platform.deploy_bytes("bad", &manifest("bad"), bytes).await;
        assert!((400..500).contains(&answer.status), "{code}: {} {}", answer.status, answer.text());
        let status = answer.status;
        answer.expect_problem(status, "invalid", code, part);
    }
    let all = platform.deploy_bytes("bad", &manifest("bad"), &unknown).await.json();
    assert!(
        all["detail"].as_str().is_some_and(|d| d.contains("acme:fuel/tank@0.1.0")),
        "all are named: {all}"
    );
    let large = vec![0; 60 << 20];
    let answer = platform.deploy_bytes("bad", &manifest("bad"), &large).await;
    answer.expect_problem(413, "invalid", "component-too-large", "50");
    platform.get("/v1/functions/bad").await.expect(404);
    platform.get("/healthz").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_and_names_are_checked() {
    let setting = setting();
    let platform = &setting.platform;
    let echo = std::fs::read(component("echo")).expect("a component");
    let cases = [
        ("name = \"echo\"\ntimeout = true\n", "manifest", "30s"),
        ("name = \"echo\"\ncolour = \"red\"\n", "manifest", "colour"),
        ("name = \"echo\"\n[resources]\nmemory = 0\n", "manifest", "memory"),
        ("name = \"other\"\n", "manifest", "other"),
        ("name = \"../echo\"\n", "manifest", "../echo"),
    ];
    for (manifest, code, part) in cases {
        platform.deploy_bytes("echo", manifest, &echo).await.expect_problem(400, "invalid", code, part);
    }
    for path in ["/v1/functions/..%2fetc", "/v1/functions/UPPER", "/v1/objects/../x", "/v1/objects/a//b"] {
        let answer = platform.send("PUT", path, &[("content-type", "text/plain")], "x").await;
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{path}");
    }
    platform.post("/function/nobody", "").await.expect_problem(404, "not-found", "function", "nobody");
    platform.deploy("echo").await;
    platform.post("/function/echo:canary", "").await.expect_problem(404, "not-found", "version", "canary");
    platform.post("/function/echo:0123456789ab", "").await.expect_problem(
        404,
        "not-found",
        "version",
        "0123456789ab",
    );
    platform.get("/v1/invocations/nonsense").await.expect_problem(400, "invalid", "name", "nonsense");
    let missing = "/v1/invocations/01234567-89ab-7def-8123-456789abcdef";
    platform.get(missing).await.expect_problem(404, "not-found", "invocation", "01234567");
    platform.get("/v1/nothing").await.expect_problem(404, "not-found", "route", "/v1/nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_over_the_cap_are_refused() {
    let setting = setting();
    let platform = &setting.platform;
    platform.deploy("echo").await;
    for path in ["/function/echo", "/async-function/echo"] {
        let answer = platform.post(path, vec![0; 9 << 20]).await;
        answer.expect_problem(413, "invalid", "body-too-large", "");
    }
    let bytes = std::fs::read(component("hello-http")).expect("a component");
    platform.deploy_bytes("small", "name = \"small\"\nbody_max = \"1KiB\"\n", &bytes).await.expect(201);
    let answer = platform.post("/function/small/", vec![0; 100_000]).await;
    answer.expect_problem(413, "invalid", "body-too-large", "1024");
    platform.post("/function/echo", "fine").await.expect(200);
}

/// Many clients read nothing before they have sent all they have. They must find the answer whole, and learn from it
/// that the connection takes no further request.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_its_whole_body_first_reads_why_it_was_refused() {
    let setting = setting();
    let platform = &setting.platform;
    platform.deploy("echo").await;
    let address = platform.url().trim_start_matches("http://");
    // At full speed, and slower than a server may be tempted to wait.
    let refused = |pause: Duration| async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connectable");
        let head = format!("POST /function/echo HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 9 << 20);
        stream.write_all(head.as_bytes()).await.expect("writable");
        let mut pace = tokio::time::interval(pause);
        for _ in 0..36 {
            pace.tick().await;
            stream.write_all(&[0; 256 << 10]).await.expect("a refused body may be sent to its end");
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the whole answer");
        answer
    };
    let (quick, slow) =
        futures::join!(refused(Duration::from_micros(1)), refused(Duration::from_millis(120)));
    for answer in [quick, slow] {
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body-too-large"), "{answer}");
        assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
    }
}

/// Clients that send a byte now and then must not keep others out, and are shown the door.
#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_do_not_keep_others_out() {
    let setting = setting();
    let platform = &setting.platform;
    platform.deploy("echo").await;
    let address = platform.url().trim_start_matches("http://").to_owned();
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("connectable");
            stream.write_all(b"POST /function/echo HTTP/1.1\r\nhost: x\r\ncontent-le").expect("writable");
            stream
        })
        .collect();
    for _ in 0..20 {
        platform.post("/function/echo", "quick").await.expect(200);
    }
    let first = &mut slow[0];
    first.set_read_timeout(Some(Duration::from_secs(60))).expect("settable");
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("the server closes a connection that never sends its head");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deploying_and_deleting_while_invoking() {
    let setting = setting();
    let platform = &setting.platform;
    let echo = std::fs::read(component("echo")).expect("a component");
    platform.deploy("echo").await;
    let calls = async {
        for n in 0..300 {
            platform.post("/function/echo", format!("{n}")).await.expect(200);
        }
    };
    let deploys = async {
        for n in 0..10 {
            let manifest = format!("name = \"echo\"\n[env]\nN = \"{n}\"\n");
            platform.deploy_bytes("echo", &manifest, &echo).await.expect(201);
        }
    };
    futures::join!(calls, deploys);

    // Accepted before the function was removed: finished after it.
    platform.deploy("noop").await;
    let ids =
        join_all((0..20).map(|_| platform.invoke_async("noop", r#"{"tasks": 200, "lone": false}"#))).await;
    platform.send("DELETE", "/v1/functions/noop", &[], "").await.expect(204);
    platform.post("/async-function/noop", "").await.expect(404);
    for id in ids {
        let view = platform.ended(&id).await;
        assert_eq!(view["state"], "succeeded", "{view}");
    }
}

/// A client that goes away takes its synchronous call with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_cancels_its_call() {
    let setting = setting();
    let platform = &setting.platform;
    platform.deploy_as("misbehave", "name = \"misbehave\"\n[concurrency]\nmax = 1\nqueue = 0\n").await;
    let address = platform.url().trim_start_matches("http://").to_owned();
    let body = r#"{"do": "loop"}"#;
    let head =
        format!("POST /function/misbehave HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    {
        let mut stream = TcpStream::connect(&address).expect("connectable");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("writable");
        // Nothing else may take the one place before it does.
        let running = "fanfold_requests_in_flight{route=\"function\"} 1\n";
        while !platform.get("/metrics").await.text().contains(running) {}
    }
    // The connection is closed: the place must come free long before the call's timeout of 30 s.
    let begin = std::time::Instant::now();
    while platform.post("/function/misbehave", r#"{"do": "error"}"#).await.status == 429 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the call of a client that is gone still runs");
    }
}

#[test]
fn a_directory_has_one_owner() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let _first = Platform::start(dir.path());
    let second = fanfold_tests::platform::Platform::try_start(dir.path(), &[]);
    assert_eq!(second.err().and_then(|status| status.code()), Some(1));
}
