//! The functions that can be called: versions and aliases, by name.
//!
//! Lookups read one immutable [`Catalog`] without a lock. Changes go through one task: it works out the records of a
//! change against the newest catalog, journals them, then publishes the next catalog. So aliases are linearizable,
//! a change that was acknowledged is durable, and a change that could not be journalled was never seen.

mod catalog;
mod change;
mod lookup;
#[cfg(test)]
mod tests;
mod view;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use fanfold_protocol::{
    Digest, Error, FunctionName,
    function::{FunctionRef, FunctionVersion},
    limit,
    record::Record,
};
use tokio::sync::{mpsc, oneshot};

pub use catalog::{Alias, Callable, Catalog, Function};
pub use change::{Append, Change};

/// A handle to the registry; cheap to clone.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    changes: mpsc::Sender<Request>,
}

struct Shared {
    catalog: ArcSwap<Catalog>,
    /// Records that were handed to the journal and are not in `catalog` yet.
    pending: Mutex<Vec<Record>>,
}

struct Request {
    change: Change,
    answer: oneshot::Sender<Result<bool, Error>>,
}

/// The task that makes changes.
pub struct Changes {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    append: Append,
}

impl Registry {
    /// A registry that starts with what a replay folded into `catalog` and journals its changes with `append`.
    /// The second value must be run.
    pub fn new(catalog: Catalog, append: Append) -> (Self, Changes) {
        let shared = Arc::new(Shared { catalog: ArcSwap::from_pointee(catalog), pending: Mutex::default() });
        let (changes, requests) = mpsc::channel(limit::REGISTRY_CHANGES_MAX);
        (Self { shared: Arc::clone(&shared), changes }, Changes { shared, requests, append })
    }

    /// The version that `reference` means now. Aliases with weights pick at random per call.
    ///
    /// # Errors
    /// `not-found` / `function` with names that are close, `not-found` / `version`.
    pub fn resolve(&self, reference: &FunctionRef) -> Result<Arc<FunctionVersion>, Error> {
        self.callable(reference.name.as_str(), reference.selector.as_deref()).map(|c| Arc::clone(&c.version))
    }

    /// The same for a name and selector that were not checked yet, with what a direct call needs.
    ///
    /// # Errors
    /// As for [`Registry::resolve`], and `invalid` / `name`.
    pub fn callable(&self, name: &str, selector: Option<&str>) -> Result<Arc<Callable>, Error> {
        self.shared.catalog.load().callable(name, selector)
    }

    /// A version by its digest, also after its function was removed: accepted jobs still run it.
    pub fn version(&self, version: &Digest) -> Option<Arc<FunctionVersion>> {
        self.shared.catalog.load().version(version)
    }

    /// Everything, as it is now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog.load_full()
    }

    /// Records that, folded into an empty catalog, make the present one. They include changes that the journal was
    /// given and has not confirmed: a checkpoint that covers the journal up to a position read before this call
    /// loses no deploy. Folding the records after that position once more changes nothing.
    pub fn snapshot_records(&self) -> Vec<Record> {
        // `pending` is read first: a change that leaves it meanwhile is in the catalog by then.
        let pending = self.pending().clone();
        let mut records = self.shared.catalog.load().records();
        records.extend(pending);
        records
    }

    /// Makes a change. Resolves after the journal write; `false`: it was so already.
    ///
    /// # Errors
    /// What [`Change`] says, and the journal's.
    pub async fn change(&self, change: Change) -> Result<bool, Error> {
        let (answer, answered) = oneshot::channel();
        self.changes.send(Request { change, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// A function by name.
    ///
    /// # Errors
    /// `not-found` / `function`.
    pub fn function(&self, name: &FunctionName) -> Result<Arc<Function>, Error> {
        self.shared.catalog.load().function(name.as_str())
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// Makes changes until no handle is left or `stop` resolves; a change that has begun is finished first.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            let next = tokio::select! {
                biased;
                _ = &mut stop => None,
                next = self.requests.recv() => next,
            };
            let Some(Request { change, answer }) = next else { return };
            let made = self.make(change).await;
            // Whoever asked may have gone away; the change stands all the same.
            let _ = answer.send(made);
        }
    }

    async fn make(&self, change: Change) -> Result<bool, Error> {
        let records = change.records(&self.shared.catalog.load())?;
        if records.is_empty() {
            return Ok(false);
        }
        self.set_pending(records.clone());
        let written = (self.append)(records.clone()).await;
        if written.is_ok() {
            let mut next = Catalog::clone(&self.shared.catalog.load());
            records.iter().for_each(|record| next.fold(record));
            self.shared.catalog.store(Arc::new(next));
        }
        self.set_pending(Vec::new());
        written.map(|()| true)
    }

    fn set_pending(&self, records: Vec<Record>) {
        *self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner) = records;
    }
}

fn stopped() -> Error {
    Error::new(
        fanfold_protocol::Kind::Overloaded,
        fanfold_protocol::Code::Draining,
        "the gateway is shutting down: try another one or wait until it is back",
    )
}
