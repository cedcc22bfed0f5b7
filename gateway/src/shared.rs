//! What every request handler reaches: one value per gateway, behind an `Arc`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use fanfold_protocol::{Code, Error, Kind, direct::DirectLane, link::ShardTag};
use fanfold_store::Store;
use tokio::sync::{Semaphore, watch};

use crate::{
    auth::Auth,
    cluster::{Others, forward},
    config::Config,
    direct::RecentLogs,
    idempotency::Keys,
    metrics::Metrics,
    mirror::Mirror,
    owner::Owner,
    owners::Owners,
    registry::{Change, Registry},
    triggers,
};

/// See the module's documentation.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) auth: Auth,
    pub(crate) registry: Registry,
    pub(crate) owners: Arc<Owners>,
    /// The other gateways of the cluster, where it may have some.
    pub(crate) others: Option<Arc<Others>>,
    /// What owners that are gone told of their jobs.
    pub(crate) mirror: Option<Mirror>,
    pub(crate) store: Store,
    pub(crate) direct: Arc<dyn DirectLane>,
    pub(crate) metrics: Metrics,
    pub(crate) recent_logs: RecentLogs,
    /// Idempotency keys whose first request still runs.
    pub(crate) keys: Keys,
    /// Uploads of components at once.
    pub(crate) deploys: Semaphore,
    pub(crate) draining: Draining,
    /// What was seen of triggers, for people.
    pub(crate) triggers: triggers::Seen,
}

impl Shared {
    /// The owner that takes new jobs.
    pub(crate) fn home(&self) -> &Owner {
        &self.owners.home().owner
    }

    /// The owner that takes a new job or keeps an answer: with an idempotency key that of the shard where all keys are, if
    /// it is here (requests with keys are passed on to where it is).
    pub(crate) fn taker(&self, keyed: bool) -> Owner {
        let keys = self.others.as_ref().filter(|_| keyed).and_then(|others| self.owners.of(others.keys()));
        keys.unwrap_or_else(|| self.home().clone())
    }

    /// The owner of what has this shard's tag; for what no shard has, one that does not know it either.
    ///
    /// # Errors
    /// `overloaded` / `unreachable`, retryable, where another gateway should have it.
    pub(crate) fn owner(&self, tag: ShardTag) -> Result<Owner, Error> {
        if let Some(owner) = self.owners.of(tag) {
            return Ok(owner);
        }
        match self.others.as_ref().and_then(|others| others.absent(tag)) {
            Some(error) => Err(error),
            None => Ok(self.home().clone()),
        }
    }

    /// Changes functions, here and, as far as they can be reached, in the other gateways. `false`: it was so already.
    ///
    /// # Errors
    /// As [`Registry::change`].
    pub(crate) async fn change(&self, change: Change) -> Result<bool, Error> {
        let changed = self.registry.change(change).await?;
        if changed {
            forward::tell_changed(self).await;
        }
        Ok(changed)
    }
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
