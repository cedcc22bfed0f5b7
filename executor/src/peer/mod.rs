//! Other processes of the cluster: where executors are, and reading partitions from their memory.
//!
//! [`Peers`] is who is where, as owners tell; [`fetch`] the client of another executor's [`serve`]; [`links`] keeps a link to
//! the owner of every shard. Reads never look anything up: an output names its executor, and owners announce addresses.

mod batch;
mod calls;
pub mod fetch;
pub mod links;
pub mod serve;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use fanfold_peer::Security;
use fanfold_protocol::{ExecutorId, link::Peer};

pub use fetch::Fetch;

/// Addresses of executors.
#[derive(Debug)]
pub struct Peers {
    /// This executor, which needs no address.
    here: ExecutorId,
    addresses: RwLock<HashMap<ExecutorId, Arc<str>>>,
    /// The way to them.
    pub fetch: Fetch,
}

impl Peers {
    /// Nobody but this executor.
    pub fn new(here: ExecutorId, security: Security) -> Self {
        Self { here, addresses: RwLock::default(), fetch: Fetch::new(security) }
    }

    /// This executor.
    pub fn here(&self) -> ExecutorId {
        self.here
    }

    /// Takes in what an owner said. Two owners may say different things for a moment; the last word counts, and an
    /// address that is wrong costs a read from the object store.
    pub fn update(&self, peers: Vec<Peer>) {
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        for Peer { executor, address } in peers {
            match address {
                Some(address) => addresses.insert(executor, address.into()),
                None => addresses.remove(&executor),
            };
        }
    }

    /// Where another executor is, if that is known.
    pub fn address(&self, executor: Option<ExecutorId>) -> Option<Arc<str>> {
        let executor = executor.filter(|executor| *executor != self.here)?;
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&executor).cloned()
    }
}

#[cfg(test)]
mod tests;
