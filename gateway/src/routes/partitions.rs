//! `/v1/partitions`: reading partitions and showing how they were made.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::{
    PartitionId,
    rest::{LineageView, Problem},
};
use http::{HeaderValue, header};

use super::{
    Answer, Gateway,
    extract::{Params, Segments},
    mirrored,
};

/// Read a partition. Its blocks come one after the other.
#[utoipa::path(
    get, path = "/v1/partitions/{id}", tag = "partitions",
    params(("id" = String, Path, description = "`<task>.<output>`")),
    responses(
        (status = 200, description = "The bytes", content_type = "application/octet-stream"),
        (status = 404, body = Problem),
        (status = 503, description = "It is lost", body = Problem),
    ),
)]
pub(super) async fn read(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<Response> {
    let id: PartitionId = id.parse()?;
    let (bytes, body) = shared.owner(id.task.shard())?.partition(id).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(super::BYTES)),
        (header::CONTENT_LENGTH, HeaderValue::from(bytes)),
    ];
    Ok((headers, Body::new(body)).into_response())
}

/// Which job a partition is of.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Of {
    /// The partition's job: needed once that has ended and is not among the last to do so.
    job: Option<String>,
}

/// Show which task made a partition, from what, to a depth of 16: while its job runs, and as long as its result is kept.
#[utoipa::path(
    get, path = "/v1/partitions/{id}/lineage", tag = "partitions",
    params(("id" = String, Path, description = "`<task>.<output>`"), Of),
    responses((status = 200, body = LineageView), (status = 404, body = Problem)),
)]
pub(super) async fn lineage(
    State(shared): Gateway,
    Segments(id): Segments<String>,
    Params(Of { job }): Params<Of>,
) -> Answer<Json<LineageView>> {
    let id: PartitionId = id.parse()?;
    let job = job.map(|job| job.parse()).transpose()?;
    Ok(Json(mirrored::lineage(&shared, id, job).await?))
}
