//! Calls that become jobs: asynchronous ones, those of drivers, and keyed ones of task functions.

use std::{sync::Arc, time::Instant};

use axum::extract::Query;
use bytes::Bytes;
use fanfold_protocol::{
    Digest, Error, JobId, direct::Timing, function::ComponentKind, limit, rest::AcceptedView,
};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header, request::Parts};
use hyper::body::Incoming;

use super::{
    call::Found,
    head::{self, Steps},
};
use crate::{
    body::{self, Bounds, Outbound},
    idempotency,
    metrics::InFlight,
    owner::NewJob,
    registry::Callable,
};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Runs the function as a job and answers with its output; a job with a key is recorded, and its answer stays.
pub(super) async fn call(
    found: Found,
    request: Request<Incoming>,
    key: Option<Digest>,
) -> Result<Response<Outbound>, Error> {
    let since = Instant::now();
    let (parts, input) = read(&found.flight, request).await?;
    let new = new_job(&found.callable, &parts, input, key)?;
    let answer = found.flight.taker(key.is_some()).run(new, key.is_some()).await?;
    let (bytes, body) = answer.body().await?;

    let usage = &answer.usage;
    let timing =
        Timing { cold: usage.cold, compile_us: 0, instantiate_us: usage.start_us, run_us: usage.run_us };
    let total_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
    // Sums over all tasks may exceed the time that passed.
    let steps = Steps { queue_us: total_us.saturating_sub(usage.start_us + usage.run_us), timing };
    if !answer.logs.is_empty() && key.is_none() {
        found.flight.recent_logs.put(answer.job, answer.logs.clone());
    }
    let mut response =
        Response::new(Outbound::Routed { body: axum::body::Body::new(body), _flight: found.flight });
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    head::complete(headers, &found.callable, answer.job, &steps);
    Ok(response)
}

/// Accepts the call and answers `202`.
pub(super) async fn accept(
    flight: InFlight,
    callable: Arc<Callable>,
    request: Request<Incoming>,
) -> Result<Response<Outbound>, Error> {
    let key = idempotency::key(request.method(), request.uri().path(), request.headers())?;
    let (parts, input) = read(&flight, request).await?;
    let new = new_job(&callable, &parts, input, key)?;
    let job = flight.taker(key.is_some()).accept(new).await?;
    Ok(accepted(job, "/v1/invocations/", Some(&callable)))
}

async fn read(flight: &InFlight, request: Request<Incoming>) -> Result<(Parts, Bytes), Error> {
    let (parts, incoming) = request.into_parts();
    let bounds = Bounds { bytes: limit::INPUT_BYTES_MAX, idle: flight.config.body_timeout };
    let (body, _) = body::bounded(incoming, bounds)?;
    let input = body::collect(body, bounds.bytes).await?;
    Ok((parts, input))
}

/// A job of an invocation.
fn new_job(callable: &Callable, parts: &Parts, input: Bytes, key: Option<Digest>) -> Result<NewJob, Error> {
    let entry = entry(callable, &parts.uri)?;
    let text =
        |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let content_type = text(header::CONTENT_TYPE).unwrap_or_default();
    let request = |key| (key, Digest::of_parts(&[entry.as_bytes(), content_type.as_bytes(), &input]));
    Ok(NewJob {
        function: Arc::clone(&callable.version),
        idempotency: key.map(request),
        traceparent: text(TRACEPARENT),
        entry,
        input,
        content_type,
        batch: false,
        fired: None,
    })
}

/// What a job's caller may say in the query.
#[derive(serde::Deserialize)]
struct Choice {
    #[serde(default)]
    entry: String,
}

/// Which entry a caller chose with `?entry=`; empty: the main one.
pub(super) fn entry(callable: &Callable, uri: &Uri) -> Result<String, Error> {
    let Some(query) = uri.query() else { return Ok(String::new()) };
    if callable.version.info.kind != ComponentKind::Task {
        let why =
            "only a synchronous call passes a query on to a program or an HTTP function: send it in the body";
        return Err(Error::invalid(why));
    }
    let Query(Choice { entry }) = Query::try_from_uri(uri)
        .map_err(|e| Error::invalid(format!("the query `{}` cannot be read: {e}", query.escape_debug())))?;
    Ok(entry)
}

/// `202` with the id and where to ask for it.
pub(crate) fn accepted<B: From<Bytes>>(job: JobId, at: &str, callable: Option<&Callable>) -> Response<B> {
    // Serialising plain structs to memory cannot fail.
    let view = serde_json::to_vec(&AcceptedView { id: job }).unwrap_or_default();
    let mut response = Response::new(B::from(view.into()));
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(location) = HeaderValue::try_from(format!("{at}{job}")) {
        headers.insert(header::LOCATION, location);
    }
    head::invocation(headers, job);
    if let Some(callable) = callable {
        head::version(headers, callable);
    }
    response
}
