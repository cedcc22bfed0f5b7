//! The functions that can be called: versions and aliases, by name. All gateways of a cluster have the same.
//!
//! Lookups read one immutable [`Catalog`] without a lock. The record is a log in the object store that every gateway may
//! append to ([`SharedLog`]). Changes go through one task per gateway: it reads the log to its tail, works out the records
//! of the change, and appends them as the next entry; where another gateway was faster it reads on and works them out
//! anew. So deploys and aliases are linearizable over all gateways, what was acknowledged is durable, and what could not be
//! written was never seen.
//!
//! What others append is seen twice a second, when a function is asked for that is not known, and when another gateway
//! says so ([`Registry::reach`]). In a store that only this process has, nobody else appends, and nobody looks.

mod catalog;
mod change;
mod lookup;
mod keeper;
#[cfg(test)]
mod tests;
mod triggers;
mod view;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use arc_swap::ArcSwap;
use fanfold_protocol::{
    Code, Digest, Error, FunctionName,
    function::{FunctionRef, FunctionVersion},
    limit,
    record::Record,
};
use fanfold_store::{SharedLog, Store};
use tokio::sync::{mpsc, oneshot};

pub use catalog::{Alias, Callable, Catalog, Function};
pub use change::Change;
pub use keeper::Keeper;
use keeper::Request;
pub use triggers::Trigger;

/// The log's name in the store.
const LOG: &str = "functions";

/// A handle to the registry; cheap to clone.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

struct Shared {
    catalog: ArcSwap<Catalog>,
    /// The last entry of the log that is in `catalog`.
    seq: AtomicU64,
    /// Whether other processes append to the log.
    followed: bool,
}

impl Registry {
    /// Reads the log of `store`. The second value must be run. `earlier` are records of functions from before there was
    /// such a log, in a journal: they become its first entry if it has none.
    ///
    /// # Errors
    /// `lost` / `corrupt` where the log is damaged; `platform` where the store cannot be had.
    pub async fn open(store: &Store, earlier: Vec<Record>) -> Result<(Self, Keeper), Error> {
        let log = SharedLog::open(store, LOG)?;
        let (seq, records) = log.checkpointed().await?;
        let mut catalog = Catalog::default();
        records.iter().for_each(|record| catalog.fold(record));
        let shared = Shared {
            catalog: ArcSwap::from_pointee(catalog),
            seq: AtomicU64::new(seq),
            followed: store.is_shared(),
        };
        let shared = Arc::new(shared);
        let (requests, taken) = mpsc::channel(limit::REGISTRY_CHANGES_MAX);
        let keeper = Keeper::new(Arc::clone(&shared), taken, log);
        keeper.catch_up().await?;
        keeper.take_over(earlier).await?;
        Ok((Self { shared, requests }, keeper))
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

    /// [`Registry::callable`], which looks whether another gateway has deployed what is not known here.
    ///
    /// # Errors
    /// As for [`Registry::callable`]; `platform` where it cannot be looked.
    pub async fn find(&self, name: &str, selector: Option<&str>) -> Result<Arc<Callable>, Error> {
        self.looking(|catalog| catalog.callable(name, selector)).await
    }

    /// A version by its digest, also after its function was removed: accepted jobs still run it.
    pub fn version(&self, version: &Digest) -> Option<Arc<FunctionVersion>> {
        self.shared.catalog.load().version(version)
    }

    /// Everything, as it is now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog.load_full()
    }

    /// The last entry of the log that is known here.
    pub fn seq(&self) -> u64 {
        self.shared.seq.load(Relaxed)
    }

    /// Knows the log at least up to entry `seq` on return, as another gateway says it exists.
    ///
    /// # Errors
    /// `platform` where it cannot be read; `overloaded` / `draining`.
    pub async fn reach(&self, seq: u64) -> Result<(), Error> {
        if seq > self.seq() { self.look().await } else { Ok(()) }
    }

    /// Reads the log to its tail.
    ///
    /// # Errors
    /// As for [`Registry::reach`].
    pub async fn look(&self) -> Result<(), Error> {
        self.ask(|answer| Request::Look { answer }).await
    }

    /// Makes a change. Resolves once it is durable; `false`: it was so already.
    ///
    /// # Errors
    /// What [`Change`] says, and the log's: `platform` / `storage` where it is not known whether the change was made.
    pub async fn change(&self, change: Change) -> Result<bool, Error> {
        self.ask(|answer| Request::Change { change, answer }).await
    }

    /// A function by name; looks whether another gateway has deployed one that is not known here.
    ///
    /// # Errors
    /// `not-found` / `function`; `platform` where it cannot be looked.
    pub async fn function(&self, name: &FunctionName) -> Result<Arc<Function>, Error> {
        self.looking(|catalog| catalog.function(name.as_str())).await
    }

    /// What is in the catalog; what is not may be in the log, where others append to it.
    async fn looking<T>(&self, find: impl Fn(&Catalog) -> Result<T, Error>) -> Result<T, Error> {
        let behind =
            |error: &Error| self.shared.followed && matches!(error.code, Code::Function | Code::Version);
        let found = find(&self.shared.catalog.load());
        match found {
            Err(error) if behind(&error) => {
                self.look().await?;
                find(&self.shared.catalog.load())
            }
            found => found,
        }
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Request,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

fn stopped() -> Error {
    Error::new(
        fanfold_protocol::Kind::Overloaded,
        Code::Draining,
        "the gateway is shutting down: try another one or wait until it is back",
    )
}
