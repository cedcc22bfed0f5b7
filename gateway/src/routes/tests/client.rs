//! An HTTP client for tests: one connection per request.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

pub(super) struct Client(SocketAddr);

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.unwrap()
    }

    pub(super) async fn try_get(&self, path: &str) -> Result<Answer, String> {
        self.exchange("GET", path, &[], Full::default().boxed_unsync()).await
    }

    pub(super) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send("POST", path, &[], body).await
    }

    pub(super) async fn post_chunked(&self, path: &str, chunks: &[String]) -> Answer {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok(Frame::data(Bytes::from(chunk.clone())))).collect();
        let body = StreamBody::new(stream::iter(chunks).boxed()).boxed_unsync();
        self.exchange("POST", path, &[], body).await.unwrap()
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.exchange(method, path, headers, Full::new(body.into()).boxed_unsync()).await.unwrap()
    }

    pub(super) async fn deploy(&self, name: &str, more: &str, component: &str) -> Answer {
        self.deploy_at(name, &format!("name = \"{name}\"\n{more}\n"), component).await
    }

    pub(super) async fn deploy_at(&self, name: &str, manifest: &str, component: &str) -> Answer {
        let part = |name: &str, value: &str| {
            format!("--b0undary\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body = part("manifest", manifest) + &part("component", component) + "--b0undary--\r\n";
        let kind = [("content-type", "multipart/form-data; boundary=b0undary")];
        self.send("PUT", &format!("/v1/functions/{name}"), &kind, body).await
    }

    /// Sends these bytes, then nothing; what came back until the server closed.
    pub(super) async fn raw(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<Answer, String> {
        let stream = TcpStream::connect(self.0).await.map_err(|e| e.to_string())?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| e.to_string())?;
        let mut request = Request::builder().method(method).uri(path).header("host", "fanfold.test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let exchange = async move {
            let response =
                sender.send_request(request.body(body).unwrap()).await.map_err(|e| e.to_string())?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        // Dropping this future closes the connection.
        let mut connection = Box::pin(connection);
        let mut exchange = Box::pin(exchange);
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            _ = &mut connection => {}
        }
        exchange.await
    }
}

impl Answer {
    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    /// Checks that it is this problem; its detail.
    #[track_caller]
    pub(super) fn problem(self, status: u16, code: &str) -> String {
        let answer = self.expect(status);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        assert_eq!(problem["code"], code, "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
