//! Programs in the direct lane, with guests in text.

use fanfold_protocol::{Code, Kind, limit};
use http_body_util::BodyExt;

use super::fails;
use crate::{
    Config,
    testing::{Fixture, program, text},
};

#[tokio::test]
async fn a_program_reads_its_body_and_its_output_is_the_response() {
    let fixture = Fixture::start().await;
    let reply = fixture.run(&program("", "call $echo"), |_| {}, "some input").await.unwrap();
    assert!(!reply.timing.cold && reply.timing.run_us > 0);
    assert_eq!(text(reply).await.unwrap(), "some input");
    // args_get writes pointers at 32 and the strings, each ending with a zero, at 512.
    let args = program(
        "",
        "(drop (call $args_get (i32.const 32) (i32.const 512))) (call $write (i32.const 1) (i32.const 512) (i32.const 12))",
    );
    let function = fixture.deploy(&args, |_| {}).await.unwrap();
    let reply = fixture.call(&function, "/?arg=a%20b&other=1&arg=%C3%A4", "").await.unwrap();
    assert_eq!(text(reply).await.unwrap(), "test\0a b\0ä\0");
}

#[tokio::test]
async fn an_exit_status_is_a_guest_error_with_the_last_words() {
    let fixture = Fixture::start().await;
    // WASI 0.2 tells only whether a program failed: the adapter makes 1 of any other status.
    let words = program(
        "no such file\\n",
        "(call $write (i32.const 2) (i32.const 64) (i32.const 13)) (call $exit (i32.const 3))",
    );
    let result = fixture.run(&words, |_| {}, "").await;
    fails(result, Kind::Guest, Code::ExitStatus, "exit status 1; on stderr: no such file");
    let fine = program(
        "done",
        "(call $write (i32.const 1) (i32.const 64) (i32.const 4)) (call $exit (i32.const 0))",
    );
    assert_eq!(text(fixture.run(&fine, |_| {}, "").await.unwrap()).await.unwrap(), "done");
}

#[tokio::test]
async fn each_misbehaviour_has_its_own_error() {
    let fixture = Fixture::start().await;
    let run = async |start: &str| {
        fixture.run(&program("line\\n", start), |manifest| manifest.timeout = 300, "").await
    };
    fails(run("(loop $l (br $l))").await, Kind::Limit, Code::Timeout, "300 ms");
    fails(run("unreachable").await, Kind::Guest, Code::Trap, "unreachable");
    let panic = "(call $write (i32.const 2) (i32.const 64) (i32.const 5)) unreachable";
    fails(run(panic).await, Kind::Guest, Code::Trap, "on stderr: line");
    fails(run("(drop (call $recurse (i32.const 0)))").await, Kind::Limit, Code::StackOverflow, "recurses");
    let eat = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable";
    fails(run(eat).await, Kind::Limit, Code::OutOfMemory, "may have 134217728");
    let flood = "(loop $l (call $write (i32.const 2) (i32.const 64) (i32.const 5)) (br $l))";
    fails(run(flood).await, Kind::Limit, Code::LogOverflow, "1048576 bytes of log lines");
    let out_of_bounds = "(drop (i32.load (i32.const -8)))";
    fails(run(out_of_bounds).await, Kind::Guest, Code::Trap, "out of bounds");
}

#[tokio::test]
async fn a_guest_that_needs_more_memory_than_it_may_have_does_not_start() {
    let fixture = Fixture::start().await;
    let small = fixture.run(&program("", ""), |manifest| manifest.resources.memory = 64 << 10, "").await;
    fails(small, Kind::Limit, Code::OutOfMemory, "raise `resources.memory`");
    let large = fixture.run(&program("", ""), |manifest| manifest.resources.memory = 1 << 40, "").await;
    fails(large, Kind::Overloaded, Code::Memory, "this executor has");
}

/// One thread: a loop that did not yield would keep it for ever.
#[tokio::test(flavor = "current_thread")]
async fn a_loop_does_not_keep_its_neighbours_waiting() {
    let fixture = Fixture::start().await;
    let looping = fixture.deploy(&program("", "(loop $l (br $l))"), |m| m.timeout = 60_000).await.unwrap();
    let echo = fixture.deploy(&program("", "call $echo"), |_| {}).await.unwrap();
    tokio::select! {
        biased;
        result = fixture.call(&looping, "/", "") => panic!("{:?}", result.map(|_| ())),
        reply = async { fixture.call(&echo, "/", "hello").await } => {
            assert_eq!(text(reply.unwrap()).await.unwrap(), "hello");
        }
    }
}

#[tokio::test]
async fn large_output_streams_and_is_capped() {
    let fixture = Fixture::start().await;
    // 128 KiB minus a page header, from address 0 to the end of memory.
    let all = "(local $n i32) (loop $l (call $write (i32.const 1) (i32.const 1024) (i32.const 65536))
        (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 16))))";
    let reply = fixture.run(&program("", all), |_| {}, "").await.unwrap();
    assert_eq!(text(reply).await.unwrap().len(), 16 << 16);
    let reply = fixture.run(&program("", all), |manifest| manifest.body_max = 100_000, "").await.unwrap();
    assert_eq!(text(reply).await.unwrap_err().code, Code::OutputTooLarge);
    let reply = fixture.run(&program("", all), |manifest| manifest.body_max = 1000, "").await;
    fails(reply, Kind::Limit, Code::OutputTooLarge, "over 1000 bytes");
    // Once the response streams, a failure ends the body with it.
    let reply = fixture.run(&program("", &format!("{all} unreachable")), |_| {}, "").await.unwrap();
    assert_eq!(text(reply).await.unwrap_err().code, Code::Trap);
}

#[tokio::test]
async fn dropping_the_body_stops_the_guest() {
    let memory = 128 << 20;
    let fixture = Fixture::with(Config { memory, ..Config::default() }).await;
    let endless = "(loop $l (call $write (i32.const 1) (i32.const 1024) (i32.const 65536)) (br $l))";
    let function =
        fixture.deploy(&program("", endless), |manifest| manifest.timeout = 600_000).await.unwrap();
    // There is room for one instance: the second call runs only once the first guest is gone.
    for _ in 0..3 {
        let mut reply = fixture.call(&function, "/", "").await.unwrap();
        assert!(reply.response.body_mut().frame().await.unwrap().is_ok());
        fails(fixture.call(&function, "/", "").await, Kind::Overloaded, Code::Memory, "no room");
    }
    let reply = fixture.call(&function, "/", "").await.unwrap();
    fixture.executor.stop().await;
    let end = reply.response.into_body().collect().await.map(|_| ()).unwrap_err();
    assert_eq!(end.code, Code::Cancelled);
}

#[tokio::test]
async fn a_request_body_over_the_cap_is_refused() {
    let fixture = Fixture::start().await;
    let result = fixture.run(&program("", "call $echo"), |manifest| manifest.body_max = 4, "12345").await;
    fails(result, Kind::Invalid, Code::BodyTooLarge, "over 4 bytes");
}

#[tokio::test]
async fn time_and_randomness_are_virtual_where_the_manifest_says_so() {
    let fixture = Fixture::start().await;
    // Both clocks, the wall clock again, and 8 random bytes.
    let read = program(
        "",
        "(drop (call $clock (i32.const 0) (i64.const 0) (i32.const 512)))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 520)))
        (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 528)))
        (drop (call $random (i32.const 536) (i32.const 8)))
        (call $write (i32.const 1) (i32.const 512) (i32.const 32))",
    );
    let numbers = async |deterministic| {
        let reply =
            fixture.run(&read, |manifest| manifest.deterministic = Some(deterministic), "").await.unwrap();
        let bytes = reply.response.into_body().collect().await.unwrap().to_bytes();
        let numbers: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        <[u64; 4]>::try_from(numbers).unwrap()
    };
    let [wall, monotonic, again, random] = numbers(true).await;
    assert!(wall > 1_600_000_000_000_000_000, "{wall} is not a time in nanoseconds");
    assert_eq!((monotonic - wall, again - wall), (1000, 2000));
    assert_ne!(random, numbers(true).await[3], "each call is a task of its own");
    let [wall, _, again, _] = numbers(false).await;
    assert!(again >= wall && again - wall != 2000);
}

/// A subscription is 48 bytes; `poll_oneoff` of one on the monotonic clock, then the clock.
#[tokio::test]
async fn a_virtual_clock_knows_of_sleep() {
    let fixture = Fixture::start().await;
    let sleep = program(
        "",
        "(i32.store (i32.const 144) (i32.const 1)) (i64.store (i32.const 152) (i64.const 20000000))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 512)))
        (drop (call $poll (i32.const 128) (i32.const 256) (i32.const 1) (i32.const 0)))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 520)))
        (call $write (i32.const 1) (i32.const 512) (i32.const 16))",
    );
    let begun = std::time::Instant::now();
    let reply = fixture.run(&sleep, |manifest| manifest.deterministic = Some(true), "").await.unwrap();
    assert!(begun.elapsed().as_millis() >= 20);
    let bytes = reply.response.into_body().collect().await.unwrap().to_bytes();
    let [before, after] = [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
    assert!((20_000_000..20_100_000).contains(&(after - before)), "{} ns passed", after - before);
}

#[tokio::test]
async fn log_lines_are_captured_with_their_stream() {
    let fixture = Fixture::start().await;
    let lines = program("one\\ntwo", "(call $write (i32.const 2) (i32.const 64) (i32.const 7))");
    let reply = fixture.run(&lines, |_| {}, "").await.unwrap();
    let logs = String::from_utf8(reply.logs.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> =
        logs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = lines.iter().map(|line| (line["stream"].as_str(), line["line"].as_str())).collect();
    assert_eq!(shown, [(Some("stderr"), Some("one")), (Some("stderr"), Some("two"))]);
    assert!(logs.len() < limit::LOG_BYTES_MAX && lines.iter().all(|line| line["at_us"].is_u64()));
}
