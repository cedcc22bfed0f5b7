//! The executors of a gateway, what waits for them, and why.

use serde::{Deserialize, Serialize};

use super::JobView;
use crate::{Error, ExecutorId, FunctionName};

/// `GET /v1/executors`: as one gateway sees it. In a cluster of several, every gateway is offered all slots of an executor
/// and counts its own attempts only.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClusterView {
    /// When this was so.
    pub at_ms: u64,
    /// In the order they joined.
    pub executors: Vec<ExecutorView>,
    /// Functions with recorded jobs that run or wait for a place, by name.
    pub queues: Vec<QueueView>,
    /// Tasks that could run and have no executor yet, by what they need; the most first.
    pub waiting: Vec<WaitView>,
    /// Jobs that were begun and have not ended.
    pub jobs_running: u64,
    /// Accepted jobs that wait for a place.
    pub jobs_waiting: u64,
    /// Of all these jobs the newest, at most 100; each says what it waits for.
    pub jobs: Vec<JobView>,
    /// Why nothing can be acknowledged now: the journal cannot be written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub journal_error: Option<Error>,
}

/// One executor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutorView {
    /// Its id for as long as it is registered.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: ExecutorId,
    /// What operators call it.
    pub name: String,
    /// Whether it takes work.
    pub state: ExecutorState,
    /// Where other members reach it, as `host:port`; absent in a platform of one process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// When it joined this gateway.
    pub joined_at_ms: u64,
    /// Slots it offers, in thousandths of a cpu.
    pub cpu_millis: u32,
    /// Of these, in use.
    pub cpu_millis_used: u32,
    /// Bytes of memory it offers for attempts.
    pub memory: u64,
    /// Of these, reserved.
    pub memory_used: u64,
    /// GPUs it offers.
    pub gpu: u32,
    /// Of these, in use.
    pub gpu_used: u32,
    /// What they compute on; absent where there are none, or no driver that starts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adapter: Option<String>,
    /// Attempts on it, those that wait for other tasks or are being stopped included.
    pub attempts: u64,
    /// Messages that wait for room on the way to it: above 0 for long, it or the network is slow.
    pub unsent: u64,
}

/// Whether an executor takes work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ExecutorState {
    /// It does.
    Up,
    /// It finishes what runs, hands over what only it has, and goes.
    Leaving,
}

/// Recorded jobs of one function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueView {
    /// The function.
    pub function: FunctionName,
    /// Its jobs that run.
    pub running: u64,
    /// Its jobs that wait for a place.
    pub waiting: u64,
    /// How many may run at once.
    pub max: u64,
}

/// Runnable tasks that need the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitView {
    /// How many.
    pub tasks: u64,
    /// Of how many jobs.
    pub jobs: u64,
    /// Thousandths of a cpu that each needs.
    pub cpu_millis: u32,
    /// Bytes of memory that each needs.
    pub memory: u64,
    /// GPUs that each needs.
    pub gpu: u32,
    /// What they wait for, in words.
    pub reason: String,
}
