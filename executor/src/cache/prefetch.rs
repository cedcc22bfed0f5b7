//! Fetching partitions before their readers ask, and only once however many ask.
//!
//! Promises: a partition that is being brought into memory is fetched by one; who asks meanwhile waits for that. What is
//! fetched ahead is at most a quarter of the memory at a time, and makes room only as a reader would by evicting copies
//! that nobody reads. Nothing waits for a prefetch to begin, and nobody hears of its failure: the reader tries again.

use std::{collections::HashMap, sync::Mutex};

use fanfold_protocol::{
    limit,
    value::{Stored, StoredKey},
};
use futures::StreamExt as _;
use tokio::sync::watch;

use super::{Cache, lock};

impl Cache {
    /// Those of `wanted` that are short and not here.
    pub fn not_here(&self, mut wanted: Vec<Stored>) -> Vec<Stored> {
        wanted.retain(|stored| {
            stored.meta.bytes <= limit::LOAD_WHOLE_BYTES_MAX
                && stored.at != Some(self.0.peers.here())
                && self.here(stored.key).is_none()
        });
        wanted
    }

    /// Brings partitions into memory, as far as there is room for them.
    pub async fn prefetch(self, wanted: Vec<Stored>) {
        let fetches = futures::stream::iter(wanted).map(async |stored| {
            let Some(_ahead) = self.0.prefetching.take(stored.meta.bytes) else { return };
            if let Err(error) = self.open(&stored, limit::LOAD_WHOLE_BYTES_MAX).await {
                tracing::debug!(partition = %stored.key.partition, %error, "not fetched ahead");
            }
        });
        fetches.buffer_unordered(limit::PREFETCHES_MAX).collect().await
    }
}

/// Partitions on their way into memory.
#[derive(Debug, Default)]
pub struct Flights(Mutex<HashMap<StoredKey, watch::Receiver<()>>>);

impl Flights {
    /// Begins to fetch `key`, or waits until whoever does so has ended, well or not, and answers `None`.
    pub async fn join(&self, key: StoredKey) -> Option<Flight<'_>> {
        let mut other = {
            let mut flights = lock(&self.0);
            match flights.get(&key) {
                Some(other) => other.clone(),
                None => {
                    let (ends, seen) = watch::channel(());
                    flights.insert(key, seen);
                    return Some(Flight { flights: self, key, _ends: ends });
                }
            }
        };
        // Nothing is ever sent: it ends when the sender goes.
        let _ = other.changed().await;
        None
    }
}

/// A fetch under way; whoever waits for it goes on when it is dropped.
#[derive(Debug)]
pub struct Flight<'a> {
    flights: &'a Flights,
    key: StoredKey,
    _ends: watch::Sender<()>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        lock(&self.flights.0).remove(&self.key);
    }
}
