//! The executors that are linked, and which of them shall run a direct call.
//!
//! A function's calls go to the executor that its version hashes to, as long as that one has room, so that code is loaded
//! and memory is mapped in few places; under load they spill to the next in the function's own order.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use fanfold_peer::Security;
use fanfold_protocol::{Digest, ExecutorId, message::Offer};

/// Direct calls per cpu beyond which the next executor is asked first.
const CALLS_PER_CPU: u32 = 4;

/// A handle to the list; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Executors {
    targets: Arc<RwLock<Vec<Arc<Target>>>>,
    security: Security,
}

/// One executor, as the direct lane sees it.
#[derive(Debug)]
pub(super) struct Target {
    pub executor: ExecutorId,
    /// Where it serves its peers, as `host:port`.
    pub peer: String,
    cpus: u32,
    calls: AtomicU32,
    /// Links to owners in this process.
    links: AtomicU32,
}

/// A direct call under way on an executor.
#[derive(Debug)]
pub(super) struct Calling(Arc<Target>);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Relaxed);
    }
}

impl Executors {
    /// None yet; how this process talks to them.
    pub fn new(security: Security) -> Self {
        Self { targets: Arc::default(), security }
    }

    /// How this process talks to them.
    pub(super) fn security(&self) -> &Security {
        &self.security
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.targets.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one, or a further link to it: there is one for each shard that this gateway owns.
    pub(super) fn add(&self, offer: &Offer, peer: String) -> Arc<Target> {
        let (executor, cpus) = (offer.executor, (offer.cpu_millis / 1000).max(1));
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = targets.iter().find(|target| target.executor == executor && target.peer == peer)
        {
            known.links.fetch_add(1, Relaxed);
            return Arc::clone(known);
        }
        let (calls, links) = (AtomicU32::new(0), AtomicU32::new(1));
        let target = Arc::new(Target { executor, peer, cpus, calls, links });
        targets.push(Arc::clone(&target));
        target
    }

    /// Removes one with its last link.
    pub(super) fn remove(&self, gone: &Arc<Target>) {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        if gone.links.fetch_sub(1, Relaxed) == 1 {
            targets.retain(|target| !Arc::ptr_eq(target, gone));
        }
    }

    /// The one that should run `version`, of those that are not in `passed_over`.
    pub(super) fn choose(&self, version: Digest, passed_over: &[ExecutorId]) -> Option<Arc<Target>> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        let left = targets.iter().filter(|target| !passed_over.contains(&target.executor));
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let rank = |target: &&Arc<Target>| {
            let load = target.calls.load(Relaxed) / (target.cpus * CALLS_PER_CPU);
            (load, hasher.hash_one((version, target.executor)))
        };
        left.min_by_key(rank).cloned()
    }
}

impl Target {
    pub(super) fn begin(self: &Arc<Self>) -> Calling {
        self.calls.fetch_add(1, Relaxed);
        Calling(Arc::clone(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(executor: ExecutorId) -> Offer {
        Offer { executor, cpu_millis: 1000, memory: 1, gpu: 0, adapter: None, custom: Default::default() }
    }

    #[test]
    fn a_version_keeps_its_executor_until_that_is_busy() {
        let executors = Executors::default();
        for id in 1..=4 {
            executors.add(&offer(ExecutorId(id)), format!("e{id}:1"));
        }
        let version = Digest::of(b"f");
        let chosen = |passed_over: &[ExecutorId]| executors.choose(version, passed_over).unwrap();
        let first = chosen(&[]);
        let second = chosen(&[first.executor]);
        assert_ne!(first.executor, second.executor);
        let calls: Vec<_> = (0..CALLS_PER_CPU).map(|_| first.begin()).collect();
        assert_eq!(chosen(&[]).executor, second.executor);
        drop(calls);
        assert_eq!(chosen(&[]).executor, first.executor);
        let of = |n: u8| executors.choose(Digest::of(&[n]), &[]).unwrap().executor;
        let spread: std::collections::BTreeSet<_> = (0..100).map(of).collect();
        assert_eq!(spread.len(), 4, "versions are spread");
        let again = executors.add(&offer(first.executor), first.peer.clone());
        executors.remove(&again);
        assert_eq!(chosen(&[]).executor, first.executor, "one of its two links is left");
        executors.remove(&first);
        assert_eq!(chosen(&[]).executor, second.executor);
        let all: Vec<_> = (1..=4).map(ExecutorId).collect();
        assert!(executors.choose(version, &all).is_none());
    }
}
