//! `/v1/dead-letters`: what was given up, and giving it another chance.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::{
    JobId,
    rest::{AcceptedView, DeadLetterView, Page, Problem},
};
use http::{HeaderMap, Method, StatusCode, Uri};

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
