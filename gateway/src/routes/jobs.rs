//! `/v1/jobs`: batch jobs. A job is an invocation whose input is JSON; its id works under both names.

use axum::{
    Json,
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{KeepAlive, Sse},
    },
};
use fanfold_protocol::{
    Digest, JobId,
    function::FunctionRef,
    rest::{AcceptedView, CostView, GraphView, JobRequest, JobView, Page, Problem},
};
use http::{HeaderMap, HeaderName, Method, Uri};

use super::{
    Answer, Gateway,
    extract::{Paging, Params, Segments, Whole, json, text},
    follow, mirrored,
};
use crate::{clock, direct, idempotency, owner::NewJob};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Start a job.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs",
    params(("Idempotency-Key" = Option<String>, Header, description = "Repetitions are the same job, for 24 h")),
    request_body = JobRequest,
    responses(
        (status = 202, description = "Accepted, and will end even if this machine restarts", body = AcceptedView,
         headers(("Location" = String, description = "Where to ask for it"))),
        (status = 400, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 429, body = Problem),
    ),
)]
pub(super) async fn start(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Answer<Response> {
    let key = idempotency::key(&Method::POST, uri.path(), &headers)?;
    let JobRequest { function, entry, input } = json(&body)?;
    let reference: FunctionRef = function.parse()?;
    let callable = shared.registry.find(reference.name.as_str(), reference.selector.as_deref()).await?;
    let new = NewJob {
        function: callable.version.clone(),
        entry,
        input: input.to_string().into(),
        content_type: String::from("application/json"),
        idempotency: key.map(|key| (key, Digest::of(&body))),
        traceparent: text(&headers, TRACEPARENT).map(str::to_owned),
        batch: true,
        fired: None,
    };
    let id = shared.taker(key.is_some()).accept(new).await?;
    Ok(direct::accepted::<axum::body::Body>(id, "/v1/jobs/", Some(&callable)).into_response())
}

/// List jobs, newest first: what came by `POST /v1/jobs`, and invocations of functions that call others. (With all
/// others: `GET /v1/invocations`.)
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", params(Paging),
    responses((status = 200, body = Page<JobView>)),
)]
pub(super) async fn list(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Params(paging): Params<Paging>,
) -> Answer<Json<Page<JobView>>> {
    Ok(Json(shared.jobs(&uri, &headers, paging.after()?, paging.limit(), true).await?))
}

/// State and progress of a job.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, body = JobView), (status = 404, body = Problem)),
)]
pub(super) async fn status(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<Json<JobView>> {
    Ok(Json(mirrored::view(&shared, id.parse()?).await?))
}

/// A job's state now and at every change, as server-sent events `job`, until it has ended.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/events", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses(
        (status = 200, description = "Each event's data is a JobView", content_type = "text/event-stream", body = JobView),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn events(
    State(shared): Gateway,
    Segments(id): Segments<String>,
) -> Answer<impl IntoResponse + use<>> {
    let id: JobId = id.parse()?;
    let views = shared.owner(id.shard())?.watch(id).await?;
    Ok(Sse::new(follow::events(shared, views)).keep_alive(KeepAlive::default()))
}

/// The tasks of a job and what they were made from.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/graph", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, body = GraphView), (status = 404, body = Problem)),
)]
pub(super) async fn graph(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<Json<GraphView>> {
    let id: JobId = id.parse()?;
    Ok(Json(mirrored::graph(&shared, id).await?.as_ref().clone()))
}

/// What a job has cost until now, by the gateway's price list.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/cost", tag = "jobs",
    params(("id" = JobId, Path, description = "The job")),
    responses((status = 200, body = CostView), (status = 404, body = Problem)),
)]
pub(super) async fn cost(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<Json<CostView>> {
    let id: JobId = id.parse()?;
    let job = shared.owner(id.shard())?.view(id).await?;
    Ok(Json(shared.config.prices.bill(&job, clock::now_ms())))
}
