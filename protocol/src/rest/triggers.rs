//! Triggers and events over REST. (A trigger's definition: [`crate::trigger`].)

use serde::{Deserialize, Serialize};

use super::State;
use crate::{Error, FunctionName, JobId, trigger::Trigger};

/// `GET /v1/triggers/{name}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TriggerView {
    /// Its name.
    pub name: FunctionName,
    /// What its user wrote.
    pub definition: Trigger,
    /// The function whose manifest brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_of: Option<FunctionName>,
    /// When it was created.
    pub created_at_ms: u64,
    /// The next scheduled time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at_ms: Option<u64>,
    /// The last scheduled time that fired or was passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at_ms: Option<u64>,
    /// Events that wait for their batch.
    pub waiting: u64,
    /// When the oldest of them came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since_ms: Option<u64>,
    /// Runs that have not ended.
    #[serde(default)]
    pub unfinished: u64,
    /// When the oldest of them was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_since_ms: Option<u64>,
    /// Its last runs, newest first; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<TriggerRun>,
    /// Its last listing since the gateway that makes them has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<ListingView>,
    /// What went wrong last, since that gateway has started, with what it takes events from or with events that its runs emitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleView>,
}

/// What went wrong.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TroubleView {
    /// When.
    pub at_ms: u64,
    /// What.
    pub error: Error,
}

/// One run of a trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TriggerRun {
    /// The invocation.
    pub id: JobId,
    /// Where it stands.
    pub state: State,
    /// When it was accepted.
    pub accepted_at_ms: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

/// What a listing came to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListingView {
    /// When it ended.
    pub at_ms: u64,
    /// Objects that the trigger waits for.
    pub objects: u64,
    /// Changes since the listing before; events that came in between told of most of them.
    pub found: u64,
    /// Why it did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
}

/// `202` of `POST /v1/events`; with `?dry_run=true`, `200` and what would become of them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsView {
    /// How many events were in the request.
    pub events: u64,
    /// What each means to each trigger. Where nothing was tried, only those that it fires.
    pub outcomes: Vec<EventOutcome>,
}

/// What an event means to a trigger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventOutcome {
    /// The event's `id`.
    pub event: String,
    /// The trigger.
    pub trigger: FunctionName,
    /// Whether it fires.
    pub fires: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The invocation, which may be one that the same event made before. An event that waits for its batch has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<JobId>,
}
