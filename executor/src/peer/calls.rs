//! Direct calls and checks of components for gateways of other processes; the bytes are those of
//! [`fanfold_protocol::remote`].

use std::{
    convert::Infallible,
    pin::Pin,
    sync::PoisonError,
    task::{Context, Poll},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, Kind,
    direct::{Body, DirectLane as _, Failed, Logs, Reply},
    remote::{self, BROKEN, CALL, DATA, Failure, HTTP, LOGS, PREPARE},
};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde::Serialize;

use crate::Executor;

/// What a request under one of the three paths asks for.
enum Asked {
    Call(Digest),
    Http(Digest),
    Prepare(Digest),
}

/// Answers a call; `None` where the path is another one.
pub(super) async fn answer(executor: &Executor, request: Request<Incoming>) -> Option<Response<Body>> {
    let asked = asked(request.method(), request.uri().path())?;
    Some(match asked {
        Asked::Prepare(component) => match executor.prepare(component).await {
            Ok(info) => json(StatusCode::OK, &info),
            Err(error) => failed(error.into()),
        },
        Asked::Call(version) => match call(executor, version, false, request).await {
            Ok(reply) => framed(reply),
            Err(error) => failed(error),
        },
        Asked::Http(version) => match call(executor, version, true, request).await {
            Ok(reply) => framed(reply),
            Err(error) => failed(error),
        },
    })
}

fn asked(method: &Method, path: &str) -> Option<Asked> {
    let digest = |prefix: &str| path.strip_prefix(prefix)?.parse().ok();
    if let Some(version) = digest(HTTP) {
        return Some(Asked::Http(version));
    }
    if *method != Method::POST {
        return None;
    }
    digest(CALL).map(Asked::Call).or_else(|| digest(PREPARE).map(Asked::Prepare))
}

async fn call(
    executor: &Executor,
    version: Digest,
    http: bool,
    request: Request<Incoming>,
) -> Result<Reply, Failed> {
    let function = executor.version(version).await?;
    let (mut head, incoming) = request.into_parts();
    let body = incoming.map_err(|e| gone(&e)).boxed_unsync();
    if http {
        let seen = head.headers.remove(remote::URI);
        let seen = seen.and_then(|value| value.to_str().ok()?.parse::<Uri>().ok());
        head.uri = seen.ok_or_else(|| Error::internal("the gateway did not say which URI was called"))?;
        executor.http(function, Request::from_parts(head, body)).await
    } else {
        executor.call(function, Request::from_parts(head, body)).await
    }
}

fn gone(error: &hyper::Error) -> Error {
    Error::new(Kind::Platform, Code::Unreachable, format!("the gateway went away: {error}"))
}

fn failed(Failed { error, logs }: Failed) -> Response<Body> {
    let logs = String::from_utf8_lossy(&logs.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    let mut response = json(StatusCode::INTERNAL_SERVER_ERROR, &Failure { error, logs });
    response.headers_mut().insert(remote::FAILED, HeaderValue::from_static("1"));
    response
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // These types have no map with keys that are not strings.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(bytes)).map_err(never).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn never(never: Infallible) -> Error {
    match never {}
}

fn framed(reply: Reply) -> Response<Body> {
    let Reply { response, timing, logs } = reply;
    let (mut head, body) = response.into_parts();
    // The length is that of the frames now.
    head.headers.remove(http::header::CONTENT_LENGTH);
    if let Ok(timing) = HeaderValue::try_from(remote::timing(&timing)) {
        head.headers.insert(remote::TIMING, timing);
    }
    Response::from_parts(head, Framed { body: Some(body), logs, due: None }.boxed_unsync())
}

/// The function's response as frames.
struct Framed {
    /// `None` after its end.
    body: Option<Body>,
    logs: Logs,
    /// What follows the head that was sent last.
    due: Option<Bytes>,
}

impl Framed {
    fn send(&mut self, kind: u8, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let head = Bytes::copy_from_slice(&remote::head(kind, bytes.len()));
        self.due = (!bytes.is_empty()).then_some(bytes);
        Poll::Ready(Some(Ok(Frame::data(head))))
    }

    fn logs(&self) -> Vec<u8> {
        std::mem::take(&mut *self.logs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl http_body::Body for Framed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(due) = self.due.take() {
            return Poll::Ready(Some(Ok(Frame::data(due))));
        }
        loop {
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return self.send(DATA, data),
                    // Trailers of functions are not passed on by gateways either.
                    _ => {}
                },
                Some(Err(error)) => {
                    self.body = None;
                    let logs = String::from_utf8_lossy(&self.logs()).into_owned();
                    let failure = serde_json::to_vec(&Failure { error, logs }).unwrap_or_default();
                    return self.send(BROKEN, failure.into());
                }
                None => {
                    self.body = None;
                    let logs = self.logs();
                    return self.send(LOGS, logs.into());
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none() && self.due.is_none()
    }
}
