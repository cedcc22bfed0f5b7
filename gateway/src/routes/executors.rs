//! `/v1/executors`: who works, what waits, and why.

use axum::{Json, extract::State};
use fanfold_protocol::rest::ClusterView;

use super::{Answer, Gateway};

/// The executors of this gateway with what they have and use, queues, live jobs, and what runnable work waits for.
#[utoipa::path(
    get, path = "/v1/executors", tag = "operations",
    responses((status = 200, body = ClusterView)),
)]
pub(super) async fn list(State(shared): Gateway) -> Answer<Json<ClusterView>> {
    Ok(Json(shared.owner.cluster().await?))
}
