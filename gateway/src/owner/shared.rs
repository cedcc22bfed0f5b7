//! What the owner's task and its handles share.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fanfold_protocol::{Code, Error, Kind, link::ShardTag};
use fanfold_store::Store;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use super::{clock::Clock, dropped::Dropped, wrote::Wrote};
use crate::Registry;

/// See the module's documentation.
pub(super) struct Shared {
    pub store: Store,
    pub registry: Registry,
    /// Which shard's jobs these are.
    pub shard: ShardTag,
    pub clock: Clock,
    pub dropped: Arc<Dropped>,
    /// Something changed that a trigger may wait for.
    pub events: Notify,
    /// Objects that tasks wrote.
    pub wrote: Wrote,
    /// Why the owner stopped; set before it stops answering.
    pub closed: OnceLock<Error>,
    /// Whether it has stopped altogether.
    pub ended: watch::Sender<bool>,
    /// The owner's task, until somebody joins it.
    pub task: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    /// Why the owner does not answer any more.
    pub fn closed(&self) -> Error {
        self.closed
            .get()
            .cloned()
            .unwrap_or_else(|| Error::internal("the owner of jobs ended unexpectedly; restart it"))
    }

    pub fn take_task(&self) -> Option<JoinHandle<()>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("closed", &self.closed).finish_non_exhaustive()
    }
}

/// Nothing new is begun: the process is about to end.
pub(super) fn draining() -> Error {
    Error::new(
        Kind::Overloaded,
        Code::Draining,
        "the gateway is shutting down: try another one or wait until it is back",
    )
}
