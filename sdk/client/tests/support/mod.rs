//! A scripted server: answers each request with what a closure says, and remembers what it was asked.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use fanfold_client::{Client, RetryPolicy};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

/// A request as the server got it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    /// A header's text; empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// What the server does with a request; `None`: it breaks the connection.
pub type Answer = Option<Response<Full<Bytes>>>;

/// The server. Dropping it ends it.
pub struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Server {
    /// Starts a server; `script` gets the request and how many came before it.
    pub async fn start(script: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let mut task = JoinSet::new();
        task.spawn(serve(listener, Arc::new(script), Arc::clone(&seen), Arc::clone(&connections)));
        Self { address, seen, connections, _task: task }
    }

    /// A client of it that retries without long pauses.
    pub fn client(&self) -> Client {
        let policy = RetryPolicy { pause: std::time::Duration::from_millis(1), ..RetryPolicy::default() };
        Client::with_retries(&format!("http://{}", self.address), Some("secret"), policy).unwrap()
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Connections it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(
    listener: TcpListener,
    script: Arc<impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static>,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
) {
    let mut open = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::Relaxed);
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        let service = service_fn(move |request: Request<Incoming>| {
            let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(|_| "body")?.to_bytes();
                let request = Seen { method: head.method, uri: head.uri, headers: head.headers, body };
                let before = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                script(&request, before).ok_or("hang up")
            }
        });
        open.spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            Ok::<(), Infallible>(())
        });
    }
}

/// A JSON answer.
pub fn json(body: &serde_json::Value) -> Answer {
    text("application/json", &body.to_string())
}

/// An answer with a media type.
pub fn text(media_type: &str, body: &str) -> Answer {
    Some(Response::builder().header("content-type", media_type).body(body.to_owned().into()).unwrap())
}

/// A problem.
pub fn problem(status: u16, kind: &str, code: &str, retryable: bool) -> Answer {
    let body = serde_json::json!({
        "type": "about:blank", "title": "", "status": status, "detail": format!("it is {code}"),
        "kind": kind, "code": code, "retryable": retryable,
    });
    let mut response = text("application/problem+json", &body.to_string())?;
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("retry-after", "0".parse().unwrap());
    Some(response)
}
