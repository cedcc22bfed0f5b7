//! Which addresses and origins outgoing requests may reach.

use std::net::SocketAddr;

use bytes::Bytes;
use fanfold_protocol::{
    Digest, Manifest,
    function::{ComponentInfo, ComponentKind},
};
use http_body_util::{BodyExt, Empty};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use wasmtime_wasi_http::Error;

use super::*;

/// Answers one request with `body`, and returns what it was sent.
async fn serve(body: &'static str) -> (SocketAddr, JoinSet<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    };
    let mut served = JoinSet::new();
    served.spawn(serve);
    (address, served)
}

fn hooks(allow: &[String], body_max: u64, allow_private: bool) -> Hooks {
    let mut manifest = Manifest::named("test".parse().unwrap());
    manifest.egress.allow = allow.to_vec();
    manifest.body_max = body_max;
    let info = ComponentInfo {
        kind: ComponentKind::Http,
        submits: false,
        imports: Vec::new(),
        component_bytes: 0,
        compiled_bytes: 0,
        compile_us: 0,
    };
    let (name, component) = (manifest.name.clone(), Digest::of(b""));
    let function = FunctionVersion { name, version: component, component, manifest, info, deployed_at_ms: 0 };
    Hooks::new(Arc::new(function), allow_private)
}

async fn get(hooks: &mut Hooks, uri: &str) -> Result<Bytes, Error> {
    let empty: WasiBody = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = http::Request::get(uri).header("host", "test").body(empty).unwrap();
    let answer = Box::into_pin(hooks.send_request(request, None, Box::new(async { Ok(()) }))).await;
    let (response, _connection) = answer?;
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn an_allowed_origin_is_reached() {
    let (address, mut served) = serve("hello").await;
    let origin = format!("http://{address}");
    let answer = get(&mut hooks(std::slice::from_ref(&origin), 100, true), &format!("{origin}/path?query"))
        .await
        .unwrap();
    assert_eq!(&answer[..], b"hello");
    assert!(
        served.join_next().await.unwrap().unwrap().starts_with("GET /path?query HTTP/1.1\r\nhost: test\r\n")
    );
}

#[tokio::test]
async fn everything_else_is_refused() {
    let (address, _served) = serve("never").await;
    let origin = format!("http://{address}");
    let mut denied = hooks(&["http://example.com".to_owned()], 100, true);
    assert!(matches!(get(&mut denied, &origin).await, Err(Error::HttpRequestDenied)));
    for private in [origin.clone(), "http://localhost:1".to_owned(), "http://[::ffff:127.0.0.1]:1".to_owned()]
    {
        let error = get(&mut hooks(std::slice::from_ref(&private), 100, false), &private).await.unwrap_err();
        assert!(matches!(error, Error::DestinationIpProhibited), "{private}: {error}");
    }
    let secure = "https://example.com".to_owned();
    let error = get(&mut hooks(std::slice::from_ref(&secure), 100, true), &secure).await.unwrap_err();
    assert!(matches!(&error, Error::InternalError(Some(why)) if why.contains("https")), "{error}");
}

#[tokio::test]
async fn a_response_is_bounded() {
    let (address, _served) = serve("too long").await;
    let origin = format!("http://{address}");
    let error = get(&mut hooks(std::slice::from_ref(&origin), 7, true), &origin).await.unwrap_err();
    assert!(matches!(error, Error::HttpResponseBodySize(Some(7))), "{error}");
}
