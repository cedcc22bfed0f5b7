//! HTTP functions in the direct lane, with guests in text.

use std::sync::Arc;

use fanfold_protocol::{Code, Kind, Manifest, function::FunctionVersion};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::fails;
use crate::{
    Config,
    testing::{Fixture, text},
};

const BEGIN: &str = "(local.set $f (call $fields)) (local.set $r (call $response (local.get $f)))
    (local.set $b (call $body (local.get $r)))";
const SET: &str = "(call $set (local.get $out) (local.get $r)) (local.set $s (call $stream (local.get $b)))";
const HELLO: &str =
    "(drop (call $write (local.get $s) (i32.const 64) (i32.const 5))) (call $stream-drop (local.get $s))";
const FINISH: &str = "(call $finish (local.get $b))";

async fn deploy(fixture: &Fixture, body: &str, change: impl FnOnce(&mut Manifest)) -> Arc<FunctionVersion> {
    let wat = include_str!("http.wat").replace("{BODY}", body);
    fixture.deploy(&wat, change).await.unwrap()
}

/// Writes pages until it fails.
fn endless(after: &str) -> String {
    let write = "(br_if $l (i32.eqz (call $write (local.get $s) (i32.const 1024) (i32.const 4096))))";
    format!("{BEGIN} {SET} (loop $l {write}) {after}")
}

#[tokio::test]
async fn a_response_that_is_whole_has_its_length() {
    let fixture = Fixture::start().await;
    let function = deploy(&fixture, &[BEGIN, SET, HELLO, FINISH].concat(), |_| {}).await;
    let reply = fixture.http(&function, "ignored").await.unwrap();
    assert_eq!(reply.response.body().size_hint().exact(), Some(5));
    assert!(!reply.timing.cold && reply.timing.run_us > 0);
    assert_eq!(text(reply).await.unwrap(), "hello");
    // A body that was never asked for, and one that was never written.
    for body in [
        "(call $set (local.get $out) (call $response (call $fields)))".to_owned(),
        [BEGIN, SET, "(call $stream-drop (local.get $s))", FINISH].concat(),
    ] {
        let function = deploy(&fixture, &body, |_| {}).await;
        assert_eq!(text(fixture.http(&function, "").await.unwrap()).await.unwrap(), "");
    }
}

#[tokio::test]
async fn responses_that_make_no_sense_are_the_functions_fault() {
    let fixture = Fixture::start().await;
    let length = |at| {
        format!(
            "(local.set $f (call $fields)) (call $length (local.get $f) (i32.const {at}) (i32.const 1))
        (local.set $r (call $response (local.get $f)))"
        )
    };
    let short = format!("{} (call $set (local.get $out) (local.get $r))", length(94));
    let less = format!("{} (local.set $b (call $body (local.get $r))) {SET}
        (drop (call $write (local.get $s) (i32.const 64) (i32.const 4))) (call $stream-drop (local.get $s)) {FINISH}", length(94));
    for (body, code, part) in [
        ("", Code::MalformedResponse, "without setting"),
        ("(call $fail (local.get $out))", Code::ErrorReturned, "LoopDetected"),
        (&short, Code::MalformedResponse, "announced 5 bytes and wrote 0"),
        (&less, Code::MalformedResponse, "not what it announced"),
        (&[BEGIN, SET, HELLO, "unreachable"].concat(), Code::Trap, "unreachable"),
        ("(loop $l (br $l))", Code::Timeout, "200 ms"),
    ] {
        let function = deploy(&fixture, body, |manifest| manifest.timeout = 200).await;
        let kind = if code == Code::Timeout { Kind::Limit } else { Kind::Guest };
        fails(fixture.http(&function, "").await, kind, code, part);
    }
}

#[tokio::test]
async fn a_long_response_streams_and_ends_with_what_went_wrong() {
    let fixture = Fixture::start().await;
    let counted =
        "(br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100)))";
    let pages = format!(
        "{BEGIN} {SET}
        (loop $l (drop (call $write (local.get $s) (i32.const 1024) (i32.const 4096))) {counted})
        (call $stream-drop (local.get $s))"
    );
    let whole = deploy(&fixture, &[&pages, FINISH].concat(), |_| {}).await;
    assert_eq!(text(fixture.http(&whole, "").await.unwrap()).await.unwrap().len(), 409_600);
    let traps = deploy(&fixture, &[&pages, "unreachable"].concat(), |_| {}).await;
    assert_eq!(text(fixture.http(&traps, "").await.unwrap()).await.unwrap_err().code, Code::Trap);
    let large = deploy(&fixture, &[&pages, FINISH].concat(), |manifest| manifest.body_max = 100_000).await;
    assert_eq!(text(fixture.http(&large, "").await.unwrap()).await.unwrap_err().code, Code::OutputTooLarge);
    // A short one whose guest does not come to its end goes out, too.
    for begun in [&pages, &[BEGIN, SET, HELLO].concat()] {
        let hangs =
            deploy(&fixture, &[begun, "(loop $l (br $l))"].concat(), |manifest| manifest.timeout = 200).await;
        assert_eq!(text(fixture.http(&hangs, "").await.unwrap()).await.unwrap_err().code, Code::Timeout);
    }
}

#[tokio::test]
async fn dropping_a_response_stops_its_guest() {
    let fixture = Fixture::with(Config { memory: 128 << 20, ..Config::default() }).await;
    let function = deploy(&fixture, &endless(FINISH), |manifest| manifest.timeout = 600_000).await;
    // There is room for one instance: the next call runs only once the last guest is gone.
    for _ in 0..3 {
        let mut reply = fixture.http(&function, "").await.unwrap();
        assert!(reply.response.body_mut().frame().await.unwrap().is_ok());
        fails(fixture.http(&function, "").await, Kind::Overloaded, Code::Memory, "no room");
    }
    let reply = fixture.http(&function, "").await.unwrap();
    fixture.executor.stop().await;
    assert_eq!(text(reply).await.unwrap_err().code, Code::Cancelled);
}

#[tokio::test]
async fn requests_that_cannot_be_served_do_not_run() {
    let fixture = Fixture::start().await;
    let function = deploy(&fixture, "unreachable", |manifest| manifest.body_max = 4).await;
    let request = |length: &str| {
        http::Request::post("/")
            .header("host", "test")
            .header("content-length", length)
            .body(crate::testing::body("12345"))
    };
    let lane: &dyn fanfold_protocol::direct::DirectLane = &fixture.executor;
    let result = lane.http(function.clone(), request("5").unwrap()).await.map_err(|failed| failed.error);
    fails(result, Kind::Invalid, Code::BodyTooLarge, "over 4 bytes");
    let nameless = http::Request::get("/").body(crate::testing::body("")).unwrap();
    let result = lane.http(function, nameless).await.map_err(|failed| failed.error);
    fails(result, Kind::Invalid, Code::Request, "names no host");
}
