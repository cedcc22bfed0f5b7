//! From a request to a response: the probes, the check of the token, then calls to [`crate::direct`] and everything
//! else to the router.

use std::{convert::Infallible, sync::Arc};

use fanfold_protocol::{Code, Error, link::ShardTag};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use tower_service::Service as _;

use super::Client;
use crate::{
    body::{self, Bounds, Outbound},
    cluster::forward,
    direct,
    metrics::{InFlight, Route},
    problem,
};

/// The service of one connection.
pub(super) fn of(
    client: Arc<Client>,
) -> impl Service<Request<Incoming>, Response = Response<Outbound>, Error = Infallible, Future: Send> {
    service_fn(move |request| {
        let client = Arc::clone(&client);
        async move { Ok(answer(client, request).await) }
    })
}

/// The longest body, in bytes, that hyper is left to read past after an answer that did not need it. What it cannot read
/// at once makes it close the connection.
const BODY_PASSED_MAX: u64 = 8 << 10;

async fn answer(client: Arc<Client>, request: Request<Incoming>) -> Response<Outbound> {
    let route = Route::of(request.uri().path());
    let long_body = request.body().size_hint().upper().is_none_or(|bytes| bytes > BODY_PASSED_MAX);
    let shared = Arc::clone(client.shared());
    let flight = InFlight::begin(client, route);
    // What is not a call is boxed so that the future of calls stays small.
    let mut response = match admit(&flight, &request) {
        Err(error) => problem::response(&error),
        Ok(()) => match (forward::elsewhere(&flight, &request), route) {
            (Some(shard), _) => Box::pin(pass_on(flight, shard, request)).await,
            (None, Route::Function) => direct::answer(flight, request).await,
            (None, Route::AsyncFunction) => direct::answer_async(flight, request).await,
            (None, _) => Box::pin(answer_here(flight, request)).await,
        },
    };
    shared.metrics.answered(route, response.status());
    if long_body && refused(response.status()) || response.status() == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Whether the request was turned down, and so its body perhaps not read to its end. The connection then closes; a
/// client that is not told would send its next request into it and lose it.
fn refused(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Probes need no token: whoever restarts a gateway does not know it.
fn admit(flight: &InFlight, request: &Request<Incoming>) -> Result<(), Error> {
    match request.uri().path() {
        "/healthz" | "/readyz" => Ok(()),
        _ => flight.auth.check(request.headers()),
    }
}

/// Lets the gateway answer that owns the shard. While it is away, this one answers questions as far as it can: see
/// [`crate::Mirror`].
async fn pass_on(flight: InFlight, shard: ShardTag, request: Request<Incoming>) -> Response<Outbound> {
    let asks = flight.mirror.is_some() && *request.method() == Method::GET;
    let away = |error: &Error| asks && error.code == Code::Unreachable && flight.owner(shard).is_err();
    let to = match forward::owner(&flight, shard).await {
        Ok(Some(to)) => to,
        Ok(None) => return route_on(flight, request).await,
        Err(error) if away(&error) => return route_on(flight, request).await,
        Err(error) => return problem::response(&error),
    };
    let (parts, incoming) = request.into_parts();
    let question = asks.then(|| parts.clone());
    let bounds = Bounds { bytes: u64::MAX, idle: flight.config.body_timeout };
    let answered = match body::bounded(incoming, bounds) {
        Ok((body, fault)) => {
            let answered = forward::pass_on(&flight, to, Request::from_parts(parts, body)).await;
            answered.map_err(|error| fault.or(error))
        }
        Err(error) => Err(error),
    };
    match (answered, question) {
        (Ok(response), _) => response.map(|body| Outbound::Routed { body, _flight: flight }),
        (Err(error), Some(parts)) if away(&error) => {
            hand_over(flight, Request::from_parts(parts, axum::body::Body::empty())).await
        }
        (Err(error), _) => problem::response(&error),
    }
}

/// Answers as the owner of what is asked for; where that is not there, only if it is the owner still.
async fn answer_here(flight: InFlight, request: Request<Incoming>) -> Response<Outbound> {
    let (shared, path) = (Arc::clone(flight.shared()), request.uri().path().to_owned());
    let response = route_on(flight, request).await;
    if response.status() != StatusCode::NOT_FOUND {
        return response;
    }
    match forward::still_ours(&shared, &path).await {
        Ok(()) => response,
        Err(error) => problem::response(&error),
    }
}

async fn route_on(flight: InFlight, request: Request<Incoming>) -> Response<Outbound> {
    if let Err(error) = forward::arrive(&flight, request.headers()).await {
        return problem::response(&error);
    }
    let (parts, incoming) = request.into_parts();
    // The handlers cap what they read, each at its own number of bytes.
    let bounds = Bounds { bytes: u64::MAX, idle: flight.config.body_timeout };
    let body = match body::bounded(incoming, bounds) {
        Ok((body, _fault)) => axum::body::Body::new(body),
        Err(error) => return problem::response(&error),
    };
    hand_over(flight, Request::from_parts(parts, body)).await
}

async fn hand_over(flight: InFlight, request: Request<axum::body::Body>) -> Response<Outbound> {
    let Ok(response) = flight.router().call(request).await;
    response.map(|body| Outbound::Routed { body, _flight: flight })
}
