//! The direct lane over the network: [`DirectLane`] on whichever linked executor should run the call.
//!
//! A call is sent once. Only where no connection to an executor could be made is the next one asked: a call that was
//! sent may have run, and runs at most once. Dropping a call, or its response's body, closes the connection, and the
//! executor stops the function.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use fanfold_peer::{Client, Pooling, client, reason};
use fanfold_protocol::{
    Code, Digest, Error, Kind,
    direct::{self, Body, DirectLane, Failed, Logs, Reply, Running},
    function::{ComponentInfo, FunctionVersion},
    remote::{self, BROKEN, DATA, Failure, HEAD_BYTES, LOGS},
};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{
    Executors,
    executors::{Calling, Target},
    hop_by_hop,
};
use crate::body;

const CONNECT: Duration = Duration::from_secs(2);
/// Idle connections kept per executor.
const IDLE_MAX: usize = 256;
/// Bytes of an answer that is read whole: a failure with its logs, or what a component is.
const WHOLE_MAX: u64 = 16 << 20;

/// See the module.
pub struct RemoteLane {
    executors: Executors,
    client: Client<Unsent>,
}

impl RemoteLane {
    /// Over these executors.
    pub fn new(executors: Executors) -> Self {
        let pooling = Pooling { connect: CONNECT, idle_max: IDLE_MAX, idle: Duration::from_secs(60) };
        let client = client(executors.security().clone(), &pooling);
        Self { executors, client }
    }

    /// Sends a request to the executor that should run `key`, or to the next one while none takes the connection.
    async fn send(
        &self,
        key: Digest,
        path: &str,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, Calling), Error> {
        let (head, body) = request.into_parts();
        let body = Unsent::new(body);
        let mut passed_over = Vec::new();
        while let Some(target) = self.executors.choose(key, &passed_over) {
            let calling = target.begin();
            let mut request = Request::new(body.clone());
            (*request.method_mut(), *request.headers_mut()) = (head.method.clone(), head.headers.clone());
            *request.uri_mut() = uri(&target, path)?;
            match self.client.request(request).await {
                Ok(response) => return Ok((response, calling)),
                Err(error) if error.is_connect() => {
                    let why = reason(&error);
                    tracing::warn!(executor = %target.executor, why, "not reached; trying the next executor");
                    passed_over.push(target.executor);
                }
                Err(error) => return Err(broken(&target, &reason(&error))),
            }
        }
        Err(none(passed_over.len()))
    }

    async fn run(&self, version: Digest, path: &str, request: Request<Body>) -> Result<Reply, Failed> {
        let (response, calling) = self.send(version, path, request).await?;
        let (mut head, incoming) = response.into_parts();
        if head.headers.contains_key(remote::FAILED) {
            let Failure { error, logs } = failure(incoming).await?;
            return Err(Failed { error, logs: Arc::new(Mutex::new(logs.into_bytes())) });
        }
        let timing = head.headers.remove(remote::TIMING);
        let timing = timing.as_ref().and_then(|value| value.to_str().ok()).map(remote::parse_timing);
        // They were the transport's between us.
        head.headers.remove(http::header::TRANSFER_ENCODING);
        let logs = Logs::default();
        let body = Frames {
            incoming,
            unread: BytesMut::new(),
            left: 0,
            logs: Arc::clone(&logs),
            calling: Some(calling),
        };
        let response = Response::from_parts(head, body.into_body());
        Ok(Reply { response, timing: timing.unwrap_or_default(), logs })
    }
}

impl DirectLane for RemoteLane {
    fn prepare(&self, component: Digest) -> Running<'_, ComponentInfo> {
        Box::pin(async move {
            let path = format!("{}{component}", remote::PREPARE);
            let mut request = Request::new(body::empty());
            *request.method_mut() = Method::POST;
            let (response, _calling) = self.send(component, &path, request).await?;
            if response.headers().contains_key(remote::FAILED) {
                return Err(failure(response.into_body()).await?.error);
            }
            parse(response.into_body()).await
        })
    }

    fn http(&self, function: Arc<FunctionVersion>, mut request: Request<Body>) -> direct::Calling<'_> {
        Box::pin(async move {
            let seen = HeaderValue::try_from(request.uri().to_string());
            let seen = seen.map_err(|e| Error::invalid(format!("the URI cannot be passed on: {e}")))?;
            request.headers_mut().insert(remote::URI, seen);
            hop_by_hop(request.headers_mut());
            let path = format!("{}{}", remote::HTTP, function.version);
            self.run(function.version, &path, request).await
        })
    }

    fn call(&self, function: Arc<FunctionVersion>, mut request: Request<Body>) -> direct::Calling<'_> {
        Box::pin(async move {
            hop_by_hop(request.headers_mut());
            let query = request.uri().query().map_or(String::new(), |query| format!("?{query}"));
            let path = format!("{}{}{query}", remote::CALL, function.version);
            self.run(function.version, &path, request).await
        })
    }
}

/// A request's body that can be sent elsewhere as long as no connection took it. Its clones are the same body.
#[derive(Clone)]
struct Unsent {
    body: Arc<Mutex<Body>>,
    bytes: SizeHint,
    empty: bool,
}

impl Unsent {
    fn new(body: Body) -> Self {
        let (bytes, empty) = (body.size_hint(), body.is_end_stream());
        Self { body: Arc::new(Mutex::new(body)), bytes, empty }
    }
}

impl HttpBody for Unsent {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.empty
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes
    }
}

fn uri(target: &Target, path: &str) -> Result<Uri, Error> {
    let uri = format!("http://{}{path}", target.peer);
    uri.parse().map_err(|_| Error::internal(format!("`{uri}` is no address of an executor")))
}

async fn failure(incoming: Incoming) -> Result<Failure, Error> {
    parse(incoming).await
}

async fn parse<T: serde::de::DeserializeOwned>(incoming: Incoming) -> Result<T, Error> {
    let bytes = body::collect(incoming, WHOLE_MAX).await?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::internal(format!("an executor answered what cannot be understood: {e}")))
}

/// The response's body, out of frames.
struct Frames {
    incoming: Incoming,
    /// Read and not handed out.
    unread: BytesMut,
    /// Bytes of the present data frame that are still to come.
    left: usize,
    logs: Logs,
    calling: Option<Calling>,
}

impl Frames {
    fn into_body(self) -> Body {
        let frames = futures::stream::try_unfold(self, |mut frames| async move {
            Ok(frames.next().await?.map(|data| (Frame::data(data), frames)))
        });
        http_body_util::StreamBody::new(frames).boxed_unsync()
    }

    /// The next bytes of the function's response; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if self.left > 0 && !self.unread.is_empty() {
                let take = self.left.min(self.unread.len());
                self.left -= take;
                return Ok(Some(self.unread.split_to(take).freeze()));
            }
            if self.left == 0 && self.unread.len() >= HEAD_BYTES {
                let kind = self.unread.get_u8();
                let length = self.unread.get_u32_le() as usize;
                if kind == DATA {
                    self.left = length;
                    continue;
                }
                return self.last(kind, length).await;
            }
            if !self.read().await? {
                return Err(cut());
            }
        }
    }

    async fn last(&mut self, kind: u8, length: usize) -> Result<Option<Bytes>, Error> {
        while self.unread.len() < length {
            if length as u64 > WHOLE_MAX || !self.read().await? {
                return Err(cut());
            }
        }
        let bytes = self.unread.split_to(length);
        self.calling = None;
        let logs = match kind {
            LOGS => Ok(bytes.to_vec()),
            BROKEN => Err(serde_json::from_slice::<Failure>(&bytes).map_err(|_| cut())?),
            _ => return Err(cut()),
        };
        let mut kept = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        match logs {
            Ok(logs) => {
                *kept = logs;
                Ok(None)
            }
            Err(Failure { error, logs }) => {
                *kept = logs.into_bytes();
                Err(error)
            }
        }
    }

    /// Reads on; `false` at the end.
    async fn read(&mut self) -> Result<bool, Error> {
        match self.incoming.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    if self.unread.is_empty() {
                        self.unread = BytesMut::from(data);
                    } else {
                        self.unread.extend_from_slice(&data);
                    }
                }
                Ok(true)
            }
            Some(Err(error)) => {
                Err(Error::new(Kind::Lost, Code::ExecutorLost, format!("the executor went away: {error}")))
            }
            None => Ok(false),
        }
    }
}

fn cut() -> Error {
    Error::new(Kind::Lost, Code::ExecutorLost, "the executor went away in the middle of the response")
}

fn broken(target: &Target, why: &str) -> Error {
    let message = format!("executor {} did not answer the call: {why}; it may have run", target.executor);
    Error::new(Kind::Lost, Code::ExecutorLost, message).retryable(true)
}

fn none(tried: usize) -> Error {
    let message = match tried {
        0 => "no executor has joined this gateway: start one with `fanfold executor`".to_owned(),
        n => format!("none of {n} executors can be reached"),
    };
    Error::new(Kind::Overloaded, Code::Unreachable, message).retryable(true)
}
