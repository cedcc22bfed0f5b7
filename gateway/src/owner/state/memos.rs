//! Memoised calls as the journal has them: outputs by key, in the order of age, with what they take.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use fanfold_protocol::{Digest, JobId, limit, value::Output};

/// What a call made.
#[derive(Clone, PartialEq, Debug)]
pub struct Memo {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// Inline, or stored under keys of its own.
    pub outputs: Vec<Output>,
}

/// All of them. A clone shares each entry.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memos {
    entries: HashMap<Digest, Arc<Memo>>,
    order: BTreeSet<(u64, Digest)>,
    inline_bytes: u64,
    stored_bytes: u64,
    /// How many kept results have data of an entry in them, by the entry's made-up job.
    kept: HashMap<JobId, u32>,
}

impl Memos {
    /// The entry with this key.
    pub fn get(&self, key: Digest) -> Option<&Arc<Memo>> {
        self.entries.get(&key)
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Digest, &Arc<Memo>)> {
        self.order.iter().filter_map(|(_, key)| Some((*key, self.entries.get(key)?)))
    }

    /// The oldest ones that are older than they may be, or for which there is no room, and that no kept result needs.
    pub fn due(&self, now_ms: u64) -> impl Iterator<Item = Digest> {
        let (mut inline, mut stored) = (self.inline_bytes, self.stored_bytes);
        let mut left = self.entries.len();
        let before_ms = now_ms.saturating_sub(limit::MEMO_KEPT_MS);
        let due = self.iter().take_while(move |(_, memo)| {
            let too_many = left > limit::MEMO_ENTRIES_MAX
                || inline > limit::MEMO_INLINE_BYTES_MAX
                || stored > limit::MEMO_STORED_BYTES_MAX;
            let (memo_inline, memo_stored) = memo.bytes();
            (left, inline, stored) = (left - 1, inline - memo_inline, stored - memo_stored);
            too_many || memo.at_ms < before_ms
        });
        due.filter(|(_, memo)| memo.job().is_none_or(|job| !self.kept.contains_key(&job))).map(|(key, _)| key)
    }

    pub(super) fn insert(&mut self, key: Digest, memo: Memo) {
        if self.entries.contains_key(&key) {
            return;
        }
        let (inline, stored) = memo.bytes();
        (self.inline_bytes, self.stored_bytes) = (self.inline_bytes + inline, self.stored_bytes + stored);
        self.order.insert((memo.at_ms, key));
        self.entries.insert(key, Arc::new(memo));
    }

    pub(super) fn remove(&mut self, key: Digest) {
        let Some(memo) = self.entries.remove(&key) else { return };
        let (inline, stored) = memo.bytes();
        (self.inline_bytes, self.stored_bytes) = (self.inline_bytes - inline, self.stored_bytes - stored);
        self.order.remove(&(memo.at_ms, key));
    }

    /// A result is kept that has data of these entries in it.
    pub(super) fn keep(&mut self, entries: impl Iterator<Item = JobId>) {
        entries.for_each(|entry| *self.kept.entry(entry).or_default() += 1);
    }

    /// It is forgotten.
    pub(super) fn release(&mut self, entries: impl Iterator<Item = JobId>) {
        for entry in entries {
            if let Some(count) = self.kept.get_mut(&entry) {
                *count -= 1;
                if *count == 0 {
                    self.kept.remove(&entry);
                }
            }
        }
    }
}

impl Memo {
    /// The made-up job of its data, if it has any beside inline bytes.
    pub fn job(&self) -> Option<JobId> {
        self.outputs.iter().find_map(|output| match output {
            Output::Stored(stored) => Some(stored.key.job),
            Output::Inline(_) | Output::Alias(_) => None,
        })
    }

    /// Bytes in memory, and in the object store.
    fn bytes(&self) -> (u64, u64) {
        self.outputs.iter().fold((0, 0), |(inline, stored), output| match output {
            Output::Stored(_) => (inline, stored + output.bytes()),
            Output::Inline(_) | Output::Alias(_) => (inline + output.bytes(), stored),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_oldest_entries_make_room_and_what_a_result_needs_stays() {
        let key = |n: u64| Digest::of(&n.to_be_bytes());
        let mut memos = Memos::default();
        for n in 0..limit::MEMO_ENTRIES_MAX as u64 + 3 {
            let outputs = vec![Output::Inline(Bytes::from_static(b"xy").into())];
            memos.insert(key(n), Memo { at_ms: n, outputs: outputs.clone() });
            memos.insert(key(n), Memo { at_ms: n + 1, outputs });
        }
        assert_eq!(memos.due(0).collect::<Vec<_>>(), [key(0), key(1), key(2)]);
        let later = limit::MEMO_KEPT_MS + 10;
        assert_eq!(memos.due(later).count(), 10);
        memos.remove(key(1));
        memos.remove(key(1));
        assert_eq!(memos.due(0).collect::<Vec<_>>(), [key(0), key(2)]);
        assert_eq!(memos.inline_bytes, 2 * (limit::MEMO_ENTRIES_MAX as u64 + 2));
    }
}
