//! A cluster that is set up wrongly, or whose parts are away: each case says what is wrong and what to do, waits or refuses,
//! and loses nothing.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use fanfold_tests::{
    cluster::{Cluster, PATIENCE, Start, joined},
    history::{Call, History},
    platform::Platform,
};

/// How long the store is away.
const AWAY: Duration = Duration::from_secs(3);

/// Runs a process that must refuse to start; what it says.
fn refused(mut command: Command) -> String {
    let Output { status, stderr, stdout } = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(stdout.is_empty(), "it said that it is ready");
    assert!(matches!(status.code(), Some(1 | 2)), "{status}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn what_is_wrong_at_the_start_is_named() {
    let cluster = Cluster::start();
    let nobody =
        TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").to_string();
    let nobody_s3 = format!("http://{nobody}");
    let secret: &[(&str, &str)] = &[("AWS_SECRET_ACCESS_KEY", "another")];
    let endpoint: &[(&str, &str)] = &[("AWS_ENDPOINT_URL", &nobody_s3)];
    let cases: [(&str, Start<'_>, &[&str]); 5] = [
        (
            "bucket",
            Start { args: &["--store", "s3://no-such-bucket/x"], ..Start::default() },
            &["no-such-bucket"],
        ),
        ("credentials", Start { env: secret, ..Start::default() }, &["credentials", "AWS_SECRET_ACCESS_KEY"]),
        ("store away", Start { env: endpoint, ..Start::default() }, &[&nobody]),
        ("redis URL", Start { args: &["--redis", "http://x"], ..Start::default() }, &["redis://"]),
        ("redis away", Start { redis: Some(&nobody), ..Start::default() }, &[&nobody]),
    ];
    std::thread::scope(|scope| {
        for (what, start, parts) in &cases {
            for role in ["gateway", "executor"] {
                let mut command = cluster.command(role, "bad", *start);
                // The last of two options would be refused: only one may be there.
                if start.args.first().is_some_and(|arg| *arg == "--store" || *arg == "--redis") {
                    command = without(&command, start.args[0]);
                }
                scope.spawn(move || {
                    let said = refused(command);
                    println!("{role}, {what}: {said}");
                    for part in *parts {
                        assert!(said.contains(part), "{role}, {what}: no `{part}` in: {said}");
                    }
                });
            }
        }
    });
}

/// The same command without the first occurrence of an option and its value.
fn without(command: &Command, option: &str) -> Command {
    let mut args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let at = args.iter().position(|arg| arg == option).expect("the option is there");
    args.drain(at..at + 2);
    let mut other = Command::new(command.get_program());
    other.args(args);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

async fn small(gateway: &Platform, history: &History, what: &str) {
    for n in 0..10 {
        history.submit(gateway, &Call::echo(format!("{what} {n}"))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_go_away_are_waited_for() {
    let mut cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let _executor = cluster.executor("e1", &[]);
    joined(&gateway, 1).await;
    gateway.deploy("echo").await.expect(201);
    let history = History::new();

    // Redis: nothing that runs needs it; who comes meanwhile is found when it is back.
    cluster.redis.kill();
    small(&gateway, &history, "without redis").await;
    history.check(&gateway).await;
    cluster.redis.restart();
    let _second = cluster.executor("e2", &[]);
    joined(&gateway, 2).await;

    // The store: nothing is acknowledged without it, and what was asked meanwhile is done when it is back.
    cluster.s3.set_faults(&["down:1"]).await;
    let call = Call::echo("while the store was away");
    let mut asked = Box::pin(history.submit(&gateway, &call));
    let early = tokio::time::timeout(AWAY, &mut asked).await;
    assert!(early.is_err(), "acknowledged without a record");
    let health = gateway.get("/metrics").await.expect(200).text();
    assert!(health.contains("fanfold_journal_waiting"), "the gateway does not stand still");
    cluster.s3.set_faults(&[]).await;
    asked.await;
    small(&gateway, &history, "after the store").await;
    history.check(&gateway).await;
    gateway.terminate();
    history.check_journal(&cluster, "g0").await;
}

/// The bytes that a real executor says first, taken down by somebody who listens in a gateway's place.
fn first_words(cluster: &Cluster) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let _executor = cluster.executor_with("old", Start { gateway: Some(&address), ..Start::default() });
    let (mut socket, _) = listener.accept().expect("it dials");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let (mut words, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        words.extend_from_slice(&buffer[..count]);
    }
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_of_another_release_is_refused() {
    let cluster = Cluster::start();
    let gateway = cluster.gateway("g0");
    let mut words = first_words(&cluster);
    let field = b"\xa8protocol";
    let at =
        words.windows(field.len()).position(|window| window == field).expect("the version") + field.len();
    assert_eq!(words[at], 1, "the version of today");
    words[at] = 2;
    let mut socket =
        TcpStream::connect(gateway.ready()["peer"].as_str().expect("an address")).expect("it listens");
    socket.write_all(&words).expect("it reads");
    let mut answer = Vec::new();
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.read_to_end(&mut answer).expect("it closes");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("speaks version 2") && answer.contains("same release"), "{answer}");
    joined(&gateway, 0).await;
}

/// The library that moves a process's clock, where it is installed (Debian: `libfaketime`).
fn clock_mover() -> Option<String> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu/faketime",
        "/usr/lib/aarch64-linux-gnu/faketime",
        "/usr/lib/faketime",
        "/usr/lib64/faketime",
    ];
    let found = folders
        .iter()
        .map(|folder| format!("{folder}/libfaketimeMT.so.1"))
        .find(|path| Path::new(path).exists());
    if found.is_none() {
        println!("SKIPPED: no libfaketime here; install it to have this tried");
    }
    found
}

#[test]
fn a_clock_that_is_an_hour_off_is_named() {
    let Some(library) = clock_mover() else { return };
    let cluster = Cluster::start();
    for (role, by) in [("gateway", "-1h"), ("gateway", "+1h"), ("executor", "-1h"), ("executor", "+1h")] {
        let env = [("LD_PRELOAD", library.as_str()), ("FAKETIME", by)];
        let said = refused(cluster.command(role, "off", Start { env: &env, ..Start::default() }));
        assert!(said.contains("clock"), "{role} {by}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_may_jump_by_an_hour_and_back() {
    let Some(library) = clock_mover() else { return };
    let cluster = Cluster::start();
    // The library reads from this file by how much the clock is off.
    let off = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(off.path(), "+0").expect("writable");
    let path = off.path().to_str().expect("UTF-8").to_owned();
    let env = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", &path),
        ("FAKETIME_NO_CACHE", "1"),
        // What a wall clock does, and no other.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let gateway = cluster.gateway_with("g0", Start { env: &env, ..Start::default() });
    let _executor = cluster.executor("e1", &[]);
    joined(&gateway, 1).await;
    gateway.deploy("echo").await.expect(201);
    let history = History::new();
    for jump in ["+3600", "-3600"] {
        small(&gateway, &history, &format!("before {jump}")).await;
        std::fs::write(off.path(), jump).expect("writable");
        // The object store takes nothing from so wrong a clock, and so nothing is acknowledged.
        let call = Call::echo(format!("while {jump}"));
        let headers = [("idempotency-key", call.key.as_str())];
        let refused = gateway.send("POST", "/async-function/echo", &headers, call.input.clone()).await;
        println!("with a clock that is {jump} s off: {} {}", refused.status, refused.text());
        assert!(refused.status >= 500 && refused.text().contains("clock"), "{}", refused.text());
        std::fs::write(off.path(), "+0").expect("writable");
        // The same request once more finds out what became of it.
        history.submit(&gateway, &call).await;
        let found = history.check(&gateway).await;
        assert_eq!((found.succeeded, found.dead), (history.len(), 0), "{jump}");
    }
    gateway.terminate();
    history.check_journal(&cluster, "g0").await;
}

#[test]
fn a_directory_is_no_record_of_a_cluster() {
    let cluster = Cluster::start();
    let command =
        cluster.command("gateway", "g0", Start { args: &["--store", "/tmp/x"], ..Start::default() });
    let said = refused(without(&command, "--store"));
    assert!(said.contains("cannot be shared") && said.contains("s3://"), "{said}");
}
