//! Answers requests: the control path, faults, and then S3 itself.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use s3s::service::S3Service;

use crate::{
    AnyError,
    faults::{Faults, Kind},
    storage::Storage,
};

/// A body whose end may be an error.
pub type Body = UnsyncBoxBody<Bytes, AnyError>;

/// Where faults are changed.
const CONTROL: &str = "/-/faults";
/// Where requests are counted, by method.
const REQUESTS: &str = "/-/requests";
/// Where objects are listed and lost; the name of their bucket follows.
const KEYS: &str = "/-/keys/";

/// One server.
pub struct Service {
    s3: S3Service,
    faults: Faults,
    storage: Arc<Storage>,
    /// Answered or not, by method.
    requests: Mutex<BTreeMap<String, u64>>,
}

impl Service {
    pub fn new(s3: S3Service, faults: Faults, storage: Arc<Storage>) -> Self {
        Self { s3, faults, storage, requests: Mutex::default() }
    }

    /// Answers one request; an error ends its connection.
    pub async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, String> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if path == CONTROL {
            return self.control(request).await;
        }
        if let Some(bucket) = path.strip_prefix(KEYS) {
            return self.keys(bucket, request).await;
        }
        if path == REQUESTS {
            return Ok(response(StatusCode::OK, serde_json::json!(*self.requests()).to_string()));
        }
        *self.requests().entry(method.to_string()).or_default() += 1;
        let fault = self.faults.draw(&method, &path);
        match fault {
            Some(Kind::SlowDown) => return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
            Some(Kind::Conflict) => return Ok(refusal(StatusCode::CONFLICT, "ConditionalRequestConflict")),
            Some(Kind::Down) => return Err("the server is down".into()),
            Some(Kind::Hang) => std::future::pending().await,
            _ => {}
        }
        let answer = self.done(request).await?;
        match fault {
            Some(Kind::LostAnswer) => Err("the answer is lost".into()),
            Some(Kind::LateSlowDown) => Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
            Some(Kind::Cut) => Ok(answer.map(cut)),
            Some(Kind::Slow) => Ok(answer.map(slow)),
            _ => Ok(answer),
        }
    }

    fn requests(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What S3 does.
    async fn done(&self, request: Request<Incoming>) -> Result<Response<Body>, String> {
        let answer = self.s3.call(request.map(s3s::Body::from)).await.map_err(|e| format!("{e:?}"))?;
        Ok(answer.map(|body| body.boxed_unsync()))
    }

    async fn control(&self, request: Request<Incoming>) -> Result<Response<Body>, String> {
        if request.method() == Method::PUT {
            let text = whole(request).await?;
            if let Err(wrong) = self.faults.set(&String::from_utf8_lossy(&text)) {
                return Ok(response(StatusCode::BAD_REQUEST, wrong));
            }
        }
        Ok(response(StatusCode::OK, serde_json::json!(self.faults.happened()).to_string()))
    }

    /// Loses the objects that are named, if any, and tells the keys of the others.
    async fn keys(&self, bucket: &str, request: Request<Incoming>) -> Result<Response<Body>, String> {
        if request.method() == Method::DELETE {
            let keys = whole(request).await?;
            for key in String::from_utf8_lossy(&keys).lines() {
                self.storage.delete(bucket, key).map_err(|e| format!("{e:?}"))?;
            }
        }
        let keys = self.storage.with(bucket, |objects| objects.keys().cloned().collect::<Vec<_>>());
        Ok(response(StatusCode::OK, serde_json::json!(keys.unwrap_or_default()).to_string()))
    }
}

async fn whole(request: Request<Incoming>) -> Result<Bytes, String> {
    Ok(request.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes())
}

fn response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let body = http_body_util::Full::new(body.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}

fn refusal(status: StatusCode, code: &str) -> Response<Body> {
    let message = "a fault that a test asked for";
    let body =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>");
    response(status, body)
}

/// The first half of each piece up to the first that has one, and then an error.
fn cut(body: Body) -> Body {
    let mut ended = false;
    let frames = BodyStream::new(body).map(move |frame| {
        if ended {
            return Err("cut".into());
        }
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                ended = true;
                Ok(Frame::data(data.slice(..data.len() / 2)))
            }
            Ok(Err(trailers)) => Ok(trailers),
            Err(error) => Err(error),
        }
    });
    // Bodies of one piece need something after it to fail at.
    let end = futures::stream::iter([Err::<Frame<Bytes>, AnyError>("cut".into())]);
    StreamBody::new(frames.chain(end)).boxed_unsync()
}

/// The same body a second later.
fn slow(body: Body) -> Body {
    let pause: Pin<Box<dyn Future<Output = ()> + Send>> =
        Box::pin(tokio::time::sleep(Duration::from_secs(1)));
    let late = futures::stream::once(pause).filter_map(|()| futures::future::ready(None));
    StreamBody::new(late.chain(BodyStream::new(body))).boxed_unsync()
}
