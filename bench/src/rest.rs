//! The few REST calls the benchmarks make, over one connection.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinHandle};

/// A connection to a platform.
pub struct Rest {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinHandle<hyper::Result<()>>,
}

/// An answer, read whole.
pub struct Answer {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A body that is still coming.
pub struct Pieces {
    body: Incoming,
}

impl Pieces {
    /// The next piece; none after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

impl Rest {
    /// Connects.
    pub async fn connect(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        #[allow(clippy::disallowed_methods, reason = "ends with the connection, which `Rest` owns")]
        let driver = tokio::spawn(connection);
        Ok(Self { sender, _driver: driver })
    }

    /// Sends a request; an answer that is no success is an error.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        self.sender.ready().await?;
        let request = Request::builder().method(method).uri(path).header("host", "bench");
        let request = request.header("content-type", kind).body(Full::new(body.into()))?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let shown = String::from_utf8_lossy(&body[..body.len().min(500)]);
        ensure!(head.status.is_success(), "{method} {path}: {} {shown}", head.status);
        Ok(Answer { headers: head.headers, body })
    }

    /// Sends a request whose answer's body comes piece by piece; nothing else can be sent on this connection until then.
    pub async fn follow(&mut self, path: &str) -> Result<Pieces> {
        self.sender.ready().await?;
        let request = Request::builder().uri(path).header("host", "bench").body(Full::default())?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        ensure!(head.status.is_success(), "GET {path}: {}", head.status);
        Ok(Pieces { body })
    }

    /// Waits until so many executors have joined.
    pub async fn joined(&mut self, executors: usize) -> Result<()> {
        for _ in 0..1000 {
            if self.executors().await?.len() >= executors {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        anyhow::bail!("{executors} executors have not joined within ten seconds")
    }

    /// Ids of the executors that are there.
    pub async fn executors(&mut self) -> Result<Vec<u64>> {
        let metrics = self.send("GET", "/metrics", "", "").await?.body;
        let metrics = String::from_utf8_lossy(&metrics);
        let labelled = |line: &str| {
            line.strip_prefix("fanfold_executor_cpu_millis{executor=\"e")?.split('"').next()?.parse().ok()
        };
        Ok(metrics.lines().filter_map(labelled).collect())
    }

    /// Deploys a component under a manifest.
    pub async fn deploy(&mut self, name: &str, manifest: &str, component: &[u8]) -> Result<Value> {
        const BOUNDARY: &str = "fanfold-bench-boundary";
        let part = |name: &str| {
            format!(
                "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n"
            )
        };
        let mut body = format!("{}{manifest}\r\n{}", part("manifest"), part("component")).into_bytes();
        body.extend_from_slice(component);
        body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let answer = self.send("PUT", &format!("/v1/functions/{name}"), &kind, body).await?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Calls a function synchronously.
    pub async fn call(&mut self, function: &str, body: impl Into<Bytes>) -> Result<Answer> {
        self.send("POST", &format!("/function/{function}"), "application/json", body).await
    }
}
