//! Partitions that are elsewhere, and what is known of them.
//!
//! A partition that many want a few blocks of, as reducers do of what maps made, is asked once for where its blocks are. The answer is
//! kept while others are not newer: without that, each block costs two requests. A partition never changes; what can change is where it
//! is, so what is known is forgotten when a read fails.

use std::sync::{Arc, Mutex};

use fanfold_protocol::{limit, value::StoredKey};
use fanfold_store::Index;
use lru::LruCache;

use super::lock;

/// A partition that is read range by range.
#[derive(Debug)]
pub struct Away {
    pub(super) key: StoredKey,
    pub(super) index: Index,
    /// The executor that has it, if it is read from there.
    pub(super) peer: Option<Arc<str>>,
}

/// Partitions that were opened elsewhere, those not opened for longest making room.
#[derive(Debug)]
pub(super) struct Known(Mutex<List>);

#[derive(Debug)]
struct List {
    entries: LruCache<StoredKey, Arc<Away>>,
    /// Memory of their indexes.
    bytes: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self(Mutex::new(List { entries: LruCache::unbounded(), bytes: 0 }))
    }
}

impl Known {
    /// What is known of a partition.
    pub(super) fn get(&self, key: StoredKey) -> Option<Arc<Away>> {
        lock(&self.0).entries.get(&key).cloned()
    }

    /// Keeps what was found out.
    pub(super) fn keep(&self, away: Away) -> Arc<Away> {
        let away = Arc::new(away);
        let mut known = lock(&self.0);
        known.bytes += away.index.memory();
        if let Some(before) = known.entries.put(away.key, away.clone()) {
            known.bytes -= before.index.memory();
        }
        while known.bytes > limit::KNOWN_INDEXES_BYTES_MAX
            && let Some((_, oldest)) = known.entries.pop_lru()
        {
            known.bytes -= oldest.index.memory();
        }
        away
    }

    /// Forgets a partition.
    pub(super) fn forget(&self, key: StoredKey) {
        let mut known = lock(&self.0);
        if let Some(away) = known.entries.pop(&key) {
            known.bytes -= away.index.memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{JobId, PartitionId, TaskId};

    use super::*;

    fn away(output: u32, blocks: u32) -> Away {
        let partition = PartitionId { task: TaskId([9; 16]), output };
        let mut index = Index::builder();
        (0..blocks).for_each(|_| _ = index.push_block(b"a block"));
        let key = StoredKey { job: JobId(uuid::Uuid::nil()), partition, epoch: 1, attempt: 1 };
        Away { key, index: index.finish(), peer: None }
    }

    #[test]
    fn what_is_known_is_bounded_and_the_oldest_goes() {
        let known = Known::default();
        let blocks = (limit::KNOWN_INDEXES_BYTES_MAX / 100) as u32;
        let keys: Vec<_> = (0..8).map(|output| known.keep(away(output, blocks)).key).collect();
        let bytes = || lock(&known.0).entries.iter().map(|(_, away)| away.index.memory()).sum::<usize>();
        assert_eq!(bytes(), lock(&known.0).bytes);
        assert!(bytes() <= limit::KNOWN_INDEXES_BYTES_MAX);
        assert!(known.get(keys[7]).is_some() && known.get(keys[0]).is_none());
        // The same once more takes no more memory.
        known.keep(away(7, blocks));
        assert_eq!(bytes(), lock(&known.0).bytes);
        keys.into_iter().for_each(|key| known.forget(key));
        assert_eq!((bytes(), lock(&known.0).bytes), (0, 0));
    }
}
