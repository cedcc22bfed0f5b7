//! Shapes of the JSON that the REST interface takes and gives, shared by the gateway and the client SDK.
//!
//! Times are Unix milliseconds, sizes bytes, durations microseconds where the name says `_us`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Code, Digest, Error, FunctionName, JobId, Kind,
    function::ComponentKind,
    message::{Spent, Usage},
};

mod cost;
mod executors;
mod graph;
mod triggers;

pub use cost::{Charge, CostView, RequestsCost};
pub use executors::{ClusterView, ExecutorState, ExecutorView, QueueView, WaitView};
pub use graph::{GraphTask, GraphView, LineageView, OutputView, RunView};
pub use triggers::{EventOutcome, EventsView, ListingView, TriggerRun, TriggerView, TroubleView};

/// An `application/problem+json` body (RFC 9457).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `about:blank`: the members below say what happened.
    #[serde(rename = "type")]
    pub uri: String,
    /// The HTTP status's reason phrase.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong and what to do.
    pub detail: String,
    /// What the caller does next.
    pub kind: Kind,
    /// Which failure within the kind.
    pub code: Code,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

/// State of an invocation or job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum State {
    /// Accepted, not started.
    Queued,
    /// Started.
    Running,
    /// Ended well; its output can be read.
    Succeeded,
    /// Given up; see `error` and the dead-letter list.
    Failed,
    /// Cancelled on request.
    Cancelled,
}

impl State {
    /// Whether it will not change any more.
    pub fn ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// `GET /v1/invocations/{id}` and `GET /v1/jobs/{id}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// The function.
    pub function: FunctionName,
    /// The version that runs or ran it.
    pub version: Digest,
    /// Where it stands.
    pub state: State,
    /// When it was accepted.
    pub accepted_at_ms: u64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at_ms: Option<u64>,
    /// Attempts of the root task so far.
    pub attempts: u32,
    /// How far it is.
    pub progress: Progress,
    /// Bytes of the output, once succeeded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_bytes: Option<u64>,
    /// Why it failed or was cancelled; while running, why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Error>,
    /// Sums over all attempts.
    pub usage: Usage,
    /// What else its bill counts.
    #[serde(default)]
    pub spent: Spent,
    /// What the next thing it does waits for, in words; empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// While it lives: what its root task said last of how it stands (`log.status`), of 8 KiB at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// While it lives: bytes of log lines that its tasks have written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
}

/// How far a job is, in tasks and bytes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    /// Tasks called so far, the root included.
    pub tasks: u64,
    /// Of these, finished.
    pub finished: u64,
    /// Running now.
    pub running: u64,
    /// Attempts beyond each task's first.
    pub retries: u64,
    /// Bytes read from partitions and objects.
    pub bytes_read: u64,
    /// Bytes written to partitions and objects.
    pub bytes_written: u64,
    /// The same by entry: a stage is all tasks of one entry.
    pub stages: BTreeMap<String, Stage>,
}

/// Tasks of one entry.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stage {
    /// Called so far.
    pub tasks: u64,
    /// Finished, well or not.
    pub finished: u64,
    /// Attempts that run now, those that wait for other tasks included.
    pub running: u64,
    /// Called, and neither running nor finished.
    #[serde(default)]
    pub waiting: u64,
    /// Of the finished ones, failed for good.
    #[serde(default)]
    pub failed: u64,
    /// Of the finished ones, not run: an equal call that was memoised answered for them.
    #[serde(default)]
    pub reused: u64,
    /// Attempts beyond each task's first.
    #[serde(default)]
    pub retries: u64,
    /// Bytes that ended attempts have read from partitions and objects.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes that ended attempts have written to partitions and objects.
    #[serde(default)]
    pub bytes_written: u64,
    /// When its first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at_ms: Option<u64>,
    /// When a task of it finished last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at_ms: Option<u64>,
}

/// Body of `POST /v1/jobs`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobRequest {
    /// `name`, `name:alias` or `name:version`.
    pub function: String,
    /// Which entry; empty: the main one.
    #[serde(default)]
    pub entry: String,
    /// The input: any JSON, handed to the function as its bytes.
    #[serde(default)]
    pub input: serde_json::Value,
}

/// `202` of an asynchronous invocation or job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcceptedView {
    /// Its id; also in `Location`.
    pub id: JobId,
}

/// `GET /v1/functions/{name}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FunctionView {
    /// Its name.
    pub name: FunctionName,
    /// Newest first.
    pub versions: Vec<VersionView>,
    /// Alias to version to weight.
    pub aliases: BTreeMap<FunctionName, BTreeMap<Digest, u32>>,
}

/// One version of a function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionView {
    /// The version.
    pub version: Digest,
    /// SHA-256 of the component.
    pub component: Digest,
    /// Its kind.
    pub kind: ComponentKind,
    /// When it was deployed.
    pub deployed_at_ms: u64,
    /// Bytes of the component.
    pub component_bytes: u64,
    /// Bytes of the compiled code.
    pub compiled_bytes: u64,
    /// Its imports.
    pub imports: Vec<String>,
    /// Its manifest.
    pub manifest: crate::Manifest,
}

/// `201` (new) or `200` (was there) of `PUT /v1/functions/{name}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeployedView {
    /// The function.
    pub name: FunctionName,
    /// The version.
    pub version: Digest,
    /// Its kind.
    pub kind: ComponentKind,
    /// Whether this deploy made the version.
    pub created: bool,
    /// Microseconds that admission and compilation took.
    pub compile_us: u64,
}

/// Body of `POST /v1/functions/{name}/aliases/{alias}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AliasRequest {
    /// Version (or at least 6 leading digits) to weight. An empty map removes the alias.
    pub weights: BTreeMap<String, u32>,
}

/// One object of `GET /v1/objects?prefix=`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ObjectView {
    /// Its key.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// Changes with its content.
    pub etag: String,
    /// When it was last written.
    pub modified_at_ms: u64,
}

/// A page of a listing. `next` is the `after` parameter of the next page.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// What was listed.
    pub items: Vec<T>,
    /// Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// One entry of `GET /v1/dead-letters`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterView {
    /// The invocation that was given up.
    pub id: JobId,
    /// The function.
    pub function: FunctionName,
    /// The version.
    pub version: Digest,
    /// The trigger that fired it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trigger: Option<FunctionName>,
    /// When it was accepted.
    pub accepted_at_ms: u64,
    /// When it was given up.
    pub failed_at_ms: u64,
    /// Attempts made.
    pub attempts: u32,
    /// The last error.
    pub error: Error,
    /// The job it was retried as.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retried_as: Option<JobId>,
}

/// `GET /v1/dead-letters/{id}`. Its input, logs and tasks have routes of their own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetterDetail {
    /// What lists say of it.
    #[serde(flatten)]
    pub letter: DeadLetterView,
    /// The entry that was called; empty: the main one.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub entry: String,
    /// Attempts of its first task that failed, in order.
    pub failed_attempts: Vec<FailedAttemptView>,
    /// Bytes of its input.
    pub input_bytes: u64,
    /// Media type of its input; empty if none was given.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub content_type: String,
}

/// An attempt that failed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedAttemptView {
    /// When it failed.
    pub at_ms: u64,
    /// Why.
    pub error: Error,
}
