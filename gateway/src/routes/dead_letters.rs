//! `/v1/dead-letters`: what was given up, why, and giving it another chance or removing it.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::{
    JobId,
    rest::{AcceptedView, DeadLetterDetail, DeadLetterView, Page, Problem},
};
use http::{HeaderMap, Method, StatusCode, Uri, header};

use super::{
    Answer, Gateway,
    extract::{Paging, Params, Segments},
};
use crate::{
    cluster::lists,
    idempotency::{self, once_json},
};

/// List what was given up, newest first.
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead-letters", params(Paging),
    responses((status = 200, body = Page<DeadLetterView>)),
)]
pub(super) async fn list(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Params(paging): Params<Paging>,
) -> Answer<Json<Page<DeadLetterView>>> {
    let (after, limit) = (paging.after()?, paging.limit());
    let mut pages = Vec::new();
    for shard in shared.owners.all() {
        pages.push(shard.owner.dead_letters(after, limit).await?);
    }
    Ok(Json(lists::whole(&shared, &uri, &headers, pages, limit).await?))
}

/// Show what was given up: its attempts and why they failed. Logs and tasks: as of any invocation.
#[utoipa::path(
    get, path = "/v1/dead-letters/{id}", tag = "dead-letters",
    params(("id" = JobId, Path, description = "The invocation that was given up")),
    responses((status = 200, body = DeadLetterDetail), (status = 404, body = Problem)),
)]
pub(super) async fn show(
    State(shared): Gateway,
    Segments(id): Segments<String>,
) -> Answer<Json<DeadLetterDetail>> {
    let dead: JobId = id.parse()?;
    Ok(Json(shared.owner(dead.shard())?.dead_letter(dead).await?))
}

/// Get the input of what was given up, as it came.
#[utoipa::path(
    get, path = "/v1/dead-letters/{id}/input", tag = "dead-letters",
    params(("id" = JobId, Path, description = "The invocation that was given up")),
    responses((status = 200, description = "The input"), (status = 404, body = Problem)),
)]
pub(super) async fn input(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<Response> {
    let dead: JobId = id.parse()?;
    let (input, content_type) = shared.owner(dead.shard())?.dead_letter_input(dead).await?;
    let kind = if content_type.is_empty() { "application/octet-stream".to_owned() } else { content_type };
    Ok(([(header::CONTENT_TYPE, kind)], input).into_response())
}

/// Remove what was given up before its two weeks are over: its input, logs and record.
#[utoipa::path(
    delete, path = "/v1/dead-letters/{id}", tag = "dead-letters",
    params(("id" = JobId, Path, description = "The invocation that was given up")),
    responses((status = 204, description = "Removed"), (status = 404, body = Problem), (status = 409, body = Problem)),
)]
pub(super) async fn remove(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<StatusCode> {
    let dead: JobId = id.parse()?;
    shared.owner(dead.shard())?.remove_dead_letter(dead).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Try again what was given up, as a new invocation.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/retry", tag = "dead-letters",
    params(
        ("id" = JobId, Path, description = "The invocation that was given up"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repetitions get the first answer, for 24 h"),
    ),
    responses(
        (status = 202, description = "Accepted again", body = AcceptedView),
        (status = 404, body = Problem), (status = 409, body = Problem),
    ),
)]
pub(super) async fn retry(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Segments(id): Segments<String>,
) -> Answer<Response> {
    let dead: JobId = id.parse()?;
    let key = idempotency::key(&Method::POST, uri.path(), &headers)?;
    let make = async {
        let id = shared.owner(dead.shard())?.retry_dead_letter(dead).await?;
        Ok((StatusCode::ACCEPTED, AcceptedView { id }))
    };
    Ok(once_json(&shared, key, &[], make).await?.into_response())
}
