//! One synchronous call: from the request's head to the response's.

use std::sync::Arc;

use fanfold_protocol::{Code, Error, JobId, Kind, direct::Body, function::ComponentKind, limit};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header, request::Parts,
    uri::PathAndQuery,
};
use hyper::body::Incoming;

use super::{
    head::{self, Steps},
    keyed,
    path::{ASYNC_PREFIX, PREFIX, Target},
    scheduled,
    streamed::{Call, Streamed},
};
use crate::{
    body::{self, Bounds, Fault, Outbound},
    clock, idempotency,
    metrics::InFlight,
    problem,
    registry::Callable,
};

const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// A request whose function was found.
pub(super) struct Found {
    pub(super) flight: InFlight,
    pub(super) callable: Arc<Callable>,
    pub(super) id: JobId,
    /// Bytes of the path before what the function sees.
    prefix_bytes: usize,
}

/// Answers `/function/…`.
pub(crate) async fn answer(flight: InFlight, request: Request<Incoming>) -> Response<Outbound> {
    let (callable, prefix_bytes) = match find(&flight, request.uri().path(), PREFIX).await {
        Ok(found) => found,
        Err(error) => return problem::response(&error),
    };
    let traceparent = head::traceparent(request.headers());
    let id = clock::new_invocation(flight.owners.home().tag);
    let found = Found { flight, callable: Arc::clone(&callable), id, prefix_bytes };
    let result = match lane(&callable, &request, prefix_bytes) {
        Ok(Lane::Direct) => direct(found, request).await,
        // The other lanes are boxed so that the future of this one stays small.
        Ok(Lane::Keyed(key)) => Box::pin(keyed::call(found, request, key)).await,
        Ok(Lane::Scheduled(key)) => Box::pin(scheduled::call(found, request, key)).await,
        Ok(Lane::Asynchronous) => Box::pin(scheduled::accept(found.flight, callable.clone(), request)).await,
        Err(error) => Err(error),
    };
    let mut response = result.unwrap_or_else(|error| refusal(&error, &callable, Some(id)));
    head::trace(response.headers_mut(), traceparent);
    response
}

/// Answers `/async-function/…`.
pub(crate) async fn answer_async(flight: InFlight, request: Request<Incoming>) -> Response<Outbound> {
    let (callable, prefix_bytes) = match find(&flight, request.uri().path(), ASYNC_PREFIX).await {
        Ok(found) => found,
        Err(error) => return problem::response(&error),
    };
    let traceparent = head::traceparent(request.headers());
    let whole = request.uri().path().len() == prefix_bytes;
    let result = match check_whole_post(&callable, request.method(), whole) {
        Ok(()) => Box::pin(scheduled::accept(flight, Arc::clone(&callable), request)).await,
        Err(error) => Err(error),
    };
    let mut response = result.unwrap_or_else(|error| refusal(&error, &callable, None));
    head::trace(response.headers_mut(), traceparent);
    response
}

fn refusal(error: &Error, callable: &Callable, id: Option<JobId>) -> Response<Outbound> {
    let mut response = problem::response(error);
    head::version(response.headers_mut(), callable);
    if let Some(id) = id {
        head::invocation(response.headers_mut(), id);
    }
    response
}

/// The function that a path names, and how many bytes of the path name it.
async fn find(flight: &InFlight, path: &str, prefix: &str) -> Result<(Arc<Callable>, usize), Error> {
    let Some(target) = Target::of_path(path, prefix) else {
        return Err(Error::not_found(Code::Route, format!("a call's path is {prefix}{{name}}")));
    };
    let callable = match flight.registry.callable(target.name, target.selector) {
        Ok(callable) => callable,
        // Boxed so that the future of calls stays small.
        Err(_) => Box::pin(flight.registry.find(target.name, target.selector)).await?,
    };
    Ok((callable, path.len() - target.rest.len()))
}

/// The ways to answer a call.
enum Lane {
    /// At once, on this task.
    Direct,
    /// The same, with the answer stored under a key.
    Keyed(fanfold_protocol::Digest),
    /// As a job whose end is awaited; recorded if there is a key.
    Scheduled(Option<fanfold_protocol::Digest>),
    /// As a job that is only accepted.
    Asynchronous,
}

fn lane(callable: &Callable, request: &Request<Incoming>, prefix_bytes: usize) -> Result<Lane, Error> {
    let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
    let whole = path.len() == prefix_bytes;
    let info = &callable.version.info;
    let http = info.kind == ComponentKind::Http;
    if !http {
        check_whole_post(callable, method, whole)?;
    }
    let post = *method == Method::POST;
    if post && whole && wants_async(headers) {
        return Ok(Lane::Asynchronous);
    }
    let key = if post { idempotency::key(method, path, headers)? } else { None };
    Ok(match key {
        _ if info.submits && !http => Lane::Scheduled(key),
        // Gpus are handed out by the scheduler.
        _ if callable.version.manifest.resources.gpu > 0 => Lane::Scheduled(key),
        Some(_) if info.kind == ComponentKind::Task => Lane::Scheduled(key),
        // The direct lane runs the main entry only.
        None if info.kind == ComponentKind::Task && names_entry(request.uri()) => Lane::Scheduled(None),
        Some(key) => Lane::Keyed(key),
        None => Lane::Direct,
    })
}

fn names_entry(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("entry=")))
}

/// Programs, task functions and asynchronous invocations have a body and no paths.
fn check_whole_post(callable: &Callable, method: &Method, whole: bool) -> Result<(), Error> {
    let name = &callable.version.name;
    if !whole {
        let why = format!(
            "there is no path below `{name}` here: only synchronous calls of HTTP functions have paths"
        );
        return Err(Error::not_found(Code::Route, why));
    }
    if *method != Method::POST {
        let why = format!("`{name}` takes its input as a body: call it with POST, not {method}");
        return Err(Error::new(Kind::Invalid, Code::Method, why));
    }
    Ok(())
}

/// Whether the caller prefers `202` (RFC 7240).
fn wants_async(headers: &HeaderMap) -> bool {
    headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok()).any(|preferences| {
        preferences.split(',').any(|preference| preference.trim().eq_ignore_ascii_case("respond-async"))
    })
}

/// Runs the function on this task.
async fn direct(found: Found, request: Request<Incoming>) -> Result<Response<Outbound>, Error> {
    let (parts, incoming) = request.into_parts();
    let bounds = Bounds { bytes: found.input_bytes_max(), idle: found.flight.config.body_timeout };
    let (body, fault) = body::bounded(incoming, bounds)?;
    run(found, parts, body, fault).await
}

/// Takes a place and runs the function on `body`.
pub(super) async fn run(
    found: Found,
    parts: Parts,
    body: Body,
    fault: Fault,
) -> Result<Response<Outbound>, Error> {
    let Found { flight, callable, id, prefix_bytes } = found;
    let (permit, queued) = callable.admission.enter().await?;
    let lane = Arc::clone(&flight.direct);
    let version = Arc::clone(&callable.version);
    let running = if version.info.kind == ComponentKind::Http {
        lane.http(version, Request::from_parts(seen_by_guest(parts, &callable, prefix_bytes)?, body))
    } else {
        lane.call(version, Request::from_parts(parts, body))
    };
    let reply = running.await.map_err(|failed| {
        flight.recent_logs.keep(id, &failed.logs);
        fault.or(failed.error)
    })?;

    let steps =
        Steps { queue_us: u64::try_from(queued.as_micros()).unwrap_or(u64::MAX), timing: reply.timing };
    flight.metrics.called(steps.queue_us, &steps.timing);
    let (mut parts, body) = reply.response.into_parts();
    head::complete(&mut parts.headers, &callable, id, &steps);
    let call = Call::new(flight, id, reply.logs, permit);
    let streamed = Streamed::new(body, callable.version.manifest.body_max, call)?;
    Ok(Response::from_parts(parts, Outbound::Direct(Box::new(streamed))))
}

/// The request as an HTTP function sees it: its own paths, and where they hang.
fn seen_by_guest(mut parts: Parts, callable: &Callable, prefix_bytes: usize) -> Result<Parts, Error> {
    let path = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let prefix = if prefix_bytes == PREFIX.len() + callable.version.name.as_str().len() {
        callable.prefix_header.clone()
    } else {
        // The caller chose a version or alias: links must lead back to it.
        let prefix = path.get(..prefix_bytes).and_then(|prefix| HeaderValue::from_str(prefix).ok());
        prefix.unwrap_or_else(|| callable.prefix_header.clone())
    };
    let seen = match path.get(prefix_bytes..).unwrap_or_default() {
        "" | "/" => Ok(PathAndQuery::from_static("/")),
        below if below.starts_with('/') => PathAndQuery::try_from(below),
        query => PathAndQuery::try_from(format!("/{query}")),
    };
    parts.uri = Uri::from(seen.map_err(|e| Error::invalid(format!("the path cannot be passed on: {e}")))?);
    parts.headers.insert(FORWARDED_PREFIX, prefix);
    if !parts.headers.contains_key(header::HOST) {
        // HTTP/1.0 clients may leave it out; guests may not be without.
        parts.headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    }
    Ok(parts)
}

impl Found {
    /// Bytes of a request's body.
    pub(super) fn input_bytes_max(&self) -> u64 {
        let manifest = self.callable.version.manifest.body_max;
        match self.callable.version.info.kind {
            // Its argument is one value in memory.
            ComponentKind::Task => manifest.min(limit::INPUT_BYTES_MAX),
            ComponentKind::Http | ComponentKind::Cli => manifest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_found_among_others() {
        let with = |value: &'static str| HeaderMap::from_iter([(PREFER, HeaderValue::from_static(value))]);
        assert!(wants_async(&with("respond-async")));
        assert!(wants_async(&with("wait=10, Respond-Async")));
        assert!(!wants_async(&with("return=minimal")));
        assert!(!wants_async(&HeaderMap::new()));
    }
}
