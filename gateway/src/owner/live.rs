//! Jobs that have not ended, as the owner holds them in memory. All of it can be made again from the durable state,
//! but the callers that wait.

use std::{collections::HashMap, sync::Arc};

use fanfold_protocol::{
    Error, ExecutorId, JobId,
    function::FunctionVersion,
    manifest::Retry,
    record::{Accepted, Record},
    rest::GraphView,
};

use super::{
    logs::JobLog,
    messages::{Answer, Reply, tell},
};

/// Where a live job stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// It waits for its turn or for a place.
    Waiting,
    /// It has a place and its input is being read from the store.
    Fetching,
    /// The scheduler has it.
    Started,
    /// Its end is decided and not durable yet.
    Ending,
}

/// A job that was accepted and has not ended.
pub(super) struct Live {
    pub function: Arc<FunctionVersion>,
    pub recorded: bool,
    pub accepted_at_ms: u64,
    /// When it is given up, in Unix milliseconds.
    pub deadline_at_ms: u64,
    pub stage: Stage,
    /// Whether it counts among its function's running jobs.
    pub placed: bool,
    /// Bytes of its input that are in memory on its behalf.
    pub input_bytes: usize,
    pub waiters: Vec<Reply<Answer>>,
    /// What function names mean to it.
    pub resolved: HashMap<String, Arc<FunctionVersion>>,
    pub log: JobLog,
    /// What its root task said last of how it stands.
    pub status: Option<String>,
    /// Why the last attempt of its root failed.
    pub error: Option<Error>,
    /// Attempts of its root while the scheduler does not have it.
    pub attempts: u32,
    /// Its `Ended`, between the scheduler's command and the journal.
    pub end: Option<Record>,
    /// Its tasks, from the scheduler's end until the journal's.
    pub graph: Option<Arc<GraphView>>,
}

impl Live {
    pub fn new(function: Arc<FunctionVersion>, accepted: &Accepted, recorded: bool) -> Self {
        let max_age_ms = retry(accepted, &function).max_age;
        Self {
            function,
            recorded,
            accepted_at_ms: accepted.at_ms,
            deadline_at_ms: accepted.at_ms.saturating_add(max_age_ms),
            stage: Stage::Waiting,
            placed: false,
            input_bytes: 0,
            waiters: Vec::new(),
            resolved: HashMap::new(),
            log: JobLog::default(),
            status: None,
            error: None,
            attempts: 0,
            end: None,
            graph: None,
        }
    }
}

/// How a job is tried again: as its trigger says, else its function.
pub(super) fn retry(accepted: &Accepted, function: &FunctionVersion) -> Retry {
    accepted.fired.as_ref().and_then(|fired| fired.says.retry).unwrap_or(function.manifest.retry)
}

/// An accepted job whose record is not durable yet, and who wants to know.
pub(super) struct Accepting {
    pub function: Arc<FunctionVersion>,
    /// Bytes of its input in memory.
    pub input_bytes: usize,
    /// Whether its input was stored.
    pub stored_input: bool,
    pub waiters: Vec<Waiter>,
}

/// Whom an accept is told.
pub(super) enum Waiter {
    /// Its id is enough.
    Id(Reply<JobId>),
    /// Its answer is wanted.
    Answer(Reply<Answer>),
}

impl Waiter {
    pub fn refuse(self, error: Error) {
        // A caller that went away needs no answer.
        match self {
            Self::Id(reply) => tell(reply, Err(error)),
            Self::Answer(reply) => tell(reply, Err(error)),
        }
    }
}

/// An attempt that an executor was told to run and that has not finished.
pub(super) struct Running {
    pub job: JobId,
    pub function: Arc<FunctionVersion>,
    pub executor: ExecutorId,
    /// Whether it waits for other tasks.
    pub waits: bool,
}
