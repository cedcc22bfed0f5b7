//! What every request handler reaches: one value per gateway, behind an `Arc`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use fanfold_protocol::{Code, Error, Kind, direct::DirectLane};
use fanfold_store::Store;
use tokio::sync::{Semaphore, watch};

use crate::{
    auth::Auth, config::Config, direct::RecentLogs, idempotency::Keys, metrics::Metrics, owner::Owner,
    registry::Registry,
};

/// See the module's documentation.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) auth: Auth,
    pub(crate) registry: Registry,
    pub(crate) owner: Owner,
    pub(crate) store: Store,
    pub(crate) direct: Arc<dyn DirectLane>,
    pub(crate) metrics: Metrics,
    pub(crate) recent_logs: RecentLogs,
    /// Idempotency keys whose first request still runs.
    pub(crate) keys: Keys,
    /// Uploads of components at once.
    pub(crate) deploys: Semaphore,
    pub(crate) draining: Draining,
}

/// Whether the gateway is shutting down.
pub(crate) struct Draining {
    flag: AtomicBool,
    signal: watch::Sender<bool>,
}

impl Draining {
    pub(crate) fn new() -> Self {
        Self { flag: AtomicBool::new(false), signal: watch::Sender::new(false) }
    }

    /// From now on, requests that wait or follow end early.
    pub(crate) fn begin(&self) {
        self.flag.store(true, Relaxed);
        self.signal.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Resolves when it begins.
    pub(crate) async fn begun(&self) {
        // The sender lives in `self`, so this wait cannot fail.
        let _ = self.signal.subscribe().wait_for(|begun| *begun).await;
    }

    /// What somebody is told who waits for something that will not come any more.
    pub(crate) fn error() -> Error {
        Error::new(
            Kind::Overloaded,
            Code::Draining,
            "the gateway is shutting down: ask again when it is back",
        )
    }
}
