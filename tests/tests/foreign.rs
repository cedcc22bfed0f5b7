//! Components that others wrote for `wasmtime serve` and `wasmtime run` deploy and run as they are.
//!
//! `cargo xtask test` builds them from published crates: an HTTP server (WASI 0.2), a program (WASI 0.2) and a `wasip1`
//! command module.

use std::path::PathBuf;

use bytes::Bytes;
use fanfold_tests::platform::Platform;

fn foreign(name: &str) -> Vec<u8> {
    let beside = || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("foreign"));
    let folder = std::env::var_os("FANFOLD_FOREIGN").map(PathBuf::from).or_else(beside).expect("a folder");
    std::fs::read(folder.join(format!("{name}.wasm"))).expect("run the tests with `cargo xtask test`")
}

async fn deployed(name: &str) -> (Platform, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    let function = name.replace('_', "-");
    let manifest = format!("name = \"{function}\"\n");
    platform.deploy_bytes(&function, &manifest, &foreign(name)).await.expect(201);
    (platform, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_server_for_wasi_0_2() {
    let (platform, _dir) = deployed("http_server").await;
    let home = platform.get("/function/http-server/").await.expect(200);
    assert_eq!(home.text(), "Hello, wasi:http/proxy world!\n");
    // It waits on the clock, streams, and echoes bodies and headers.
    let waited = platform.get("/function/http-server/wait-body").await.expect(200);
    assert!(waited.text().starts_with("slept for"), "{}", waited.text());
    let body = Bytes::from(vec![b'e'; 1 << 20]);
    let echoed = platform.post("/function/http-server/echo", body.clone()).await.expect(200);
    assert_eq!(echoed.body, body);
    platform.get("/function/http-server/no-such-page").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_for_wasi_0_2() {
    let (platform, _dir) = deployed("pulldown-cmark").await;
    let page = platform.post("/function/pulldown-cmark", "# Hi\n\n*there*\n").await.expect(200);
    assert_eq!(page.text(), "<h1>Hi</h1>\n<p><em>there</em></p>\n");
    let id = platform.invoke_async("pulldown-cmark", "*later*").await;
    assert_eq!(platform.ended(&id).await["state"], "succeeded");
    let page = platform.get(&format!("/v1/invocations/{id}/output")).await.expect(200);
    assert_eq!(page.text(), "<p><em>later</em></p>\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_1_module() {
    let (platform, _dir) = deployed("hexyl").await;
    let dump = platform.post("/function/hexyl?arg=--plain", "Hi").await.expect(200);
    assert!(dump.text().contains("48 69"), "{}", dump.text());
    let refused = platform.post("/function/hexyl?arg=--no-such-option", "").await;
    // Its own words follow: what it last wrote to stderr.
    refused.expect_problem(502, "guest", "exit-status", "exit status 1");
}
