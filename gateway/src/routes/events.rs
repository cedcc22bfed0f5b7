//! `/v1/events`: CloudEvents, and notifications of S3 stores.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::rest::{EventsView, Problem};
use http::{HeaderMap, StatusCode};

use super::{
    Answer, Gateway,
    extract::{Params, Whole},
};
use crate::triggers;

/// What to do with the events.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Choice {
    /// Only say what would fire, and why what not.
    #[serde(default)]
    dry_run: bool,
}

/// Take events: CloudEvents 1.0 in binary, structured or batched mode, or a notification of an S3 store as plain JSON.
///
/// Each trigger that an event fits is fired once, however often the event comes (by its `source` and `id`, for 24 hours after the run).
/// `202` says that the runs are recorded, or held for their batches. An error says that some may be: send all of it again.
#[utoipa::path(
    post, path = "/v1/events", tag = "triggers", params(Choice),
    request_body(content_type = "application/cloudevents+json", description = "At most 8 MiB", content = serde_json::Value),
    responses(
        (status = 202, description = "Recorded", body = EventsView),
        (status = 200, description = "With `dry_run`: what would become of them", body = EventsView),
        (status = 400, description = "No event, or one that breaks the specification", body = Problem),
        (status = 404, description = "What a trigger calls is gone", body = Problem),
        (status = 413, body = Problem),
        (status = 429, description = "Too much waits already; see Retry-After", body = Problem),
    ),
)]
pub(super) async fn post(
    State(shared): Gateway,
    Params(Choice { dry_run }): Params<Choice>,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Answer<Response> {
    let events = fanfold_triggers::http::read(&headers, &body)?;
    let count = events.len() as u64;
    let (status, outcomes) = match dry_run {
        true => (StatusCode::OK, triggers::try_out(&shared, events)?),
        false => (StatusCode::ACCEPTED, triggers::take(&shared, events).await?),
    };
    Ok((status, Json(EventsView { events: count, outcomes })).into_response())
}
