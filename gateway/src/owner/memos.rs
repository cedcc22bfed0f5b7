//! Entries of memoised calls, from a commit to their end: data copied, recorded, told to the scheduler, forgotten.
//!
//! An entry's data is its own: it is copied under a key that no job has, and while that is done the original is not
//! freed. It goes before its record does, so that a crash in between leaves nothing behind that nobody knows of.

use std::collections::{HashMap, HashSet};

use fanfold_protocol::{
    Digest, Error, ExecutorId, limit,
    message::ToExecutor,
    record::Record,
    value::{Output, Stored, StoredKey},
};
use fanfold_scheduler::Event;

use super::{consequences::Consequence, run::Loop};

/// Entries that are being made or removed.
#[derive(Default)]
pub(super) struct Memos {
    working: HashSet<Digest>,
    /// Originals that are being copied, and who is to free each after that: an executor with the store's copy, or the
    /// store alone.
    copying: HashMap<StoredKey, Vec<Option<ExecutorId>>>,
}

impl Memos {
    /// Takes those keys out of `keys` that are being copied.
    pub fn withhold(&mut self, executor: Option<ExecutorId>, keys: &mut Vec<StoredKey>) {
        if self.copying.is_empty() {
            return;
        }
        keys.retain(|key| match self.copying.get_mut(key) {
            Some(waiting) => {
                waiting.push(executor);
                false
            }
            None => true,
        });
    }
}

impl Loop {
    /// Tells the scheduler what the journal knows.
    pub fn recall_memos(&mut self) {
        let known: Vec<_> =
            self.state.memos().iter().map(|(key, memo)| (key, memo.outputs.clone())).collect();
        for (key, outputs) in known {
            self.step(Event::Memo { key, outputs: Some(outputs) });
        }
    }

    /// A memoised call committed `outputs`: makes an entry of them, unless there is much to do already.
    pub fn memoise(&mut self, key: Digest, outputs: Vec<Output>) {
        let busy = self.memos.working.len() >= limit::MEMO_WORK_MAX || self.lane.refusal().is_some();
        if busy || self.state.memos().get(key).is_some() || !self.memos.working.insert(key) {
            return;
        }
        let mut copies = Vec::new();
        let outputs: Vec<Output> =
            (0..).zip(outputs).map(|(n, output)| self.own(key, n, output, &mut copies)).collect();
        if copies.is_empty() {
            return self.record_memo(key, outputs);
        }
        self.memos.copying.extend(copies.iter().map(|(from, _)| (*from, Vec::new())));
        self.work.copy_memo(key, copies, outputs);
    }

    /// The output as the entry has it.
    fn own(&self, key: Digest, n: u32, output: Output, copies: &mut Vec<(StoredKey, StoredKey)>) -> Output {
        let Output::Stored(stored) = output else { return output };
        // The output of a call that returned what another memoised one made is there already.
        if stored.key.is_memo() {
            return Output::Stored(stored);
        }
        let to = StoredKey::of_memo(key, self.config.shard, n);
        copies.push((stored.key, to));
        Output::Stored(Stored { key: to, at: None, durable: true, ..stored })
    }

    /// The copies were made, or not: the originals may go now.
    pub fn memo_copied(
        &mut self,
        key: Digest,
        from: &[StoredKey],
        outputs: Vec<Output>,
        result: Result<(), Error>,
    ) {
        for original in from {
            for executor in self.memos.copying.remove(original).unwrap_or_default() {
                self.free_withheld(executor, *original);
            }
        }
        match result {
            Ok(()) => self.record_memo(key, outputs),
            Err(error) => {
                tracing::warn!(%error, "the outputs of a memoised call could not be copied; it will be run again");
                self.memos.working.remove(&key);
            }
        }
    }

    fn free_withheld(&mut self, executor: Option<ExecutorId>, key: StoredKey) {
        let link = self.links.iter_mut().find(|link| Some(link.id()) == executor && link.connected);
        match link {
            Some(link) => link.send(ToExecutor::Free(vec![key])),
            None => self.free(vec![key]),
        }
    }

    fn record_memo(&mut self, key: Digest, outputs: Vec<Output>) {
        let record = Record::Memoised { key, at_ms: self.now_ms, outputs };
        self.lane.push(record, Some(Consequence::Memoised(key)));
    }

    /// The journal has the entry.
    pub fn memo_is_durable(&mut self, key: Digest) {
        self.memos.working.remove(&key);
        if let Some(memo) = self.state.memos().get(key) {
            let outputs = Some(memo.outputs.clone());
            self.step(Event::Memo { key, outputs });
        }
    }

    /// Somebody could not read this copy. If it is of an entry, that answers no further call.
    pub fn memo_lost(&mut self, lost: StoredKey) {
        let of = |outputs: &[Output]| {
            outputs.iter().any(|output| matches!(output, Output::Stored(s) if s.key == lost))
        };
        let found = self.state.memos().iter().find(|(_, memo)| of(&memo.outputs)).map(|(key, _)| key);
        if let Some(key) = found {
            tracing::warn!(%key, "what a memoised call made is lost; it will be run again");
            self.forget_memo(key);
        }
    }

    /// Forgets what is too old or too much.
    pub fn expire_memos(&mut self) {
        let room = limit::MEMO_WORK_MAX.saturating_sub(self.memos.working.len());
        if self.lane.refusal().is_none() {
            let due: Vec<Digest> = self.state.memos().due(self.now_ms).take(room).collect();
            due.into_iter().for_each(|key| self.forget_memo(key));
        }
    }

    fn forget_memo(&mut self, key: Digest) {
        let Some(job) = self.state.memos().get(key).map(|memo| memo.job()) else { return };
        if !self.memos.working.insert(key) {
            return;
        }
        self.step(Event::Memo { key, outputs: None });
        match job {
            Some(job) => self.work.remove_memo(key, job),
            None => self.memo_removed(key, Ok(())),
        }
    }

    /// An entry's data is gone, or could not be removed: then it is tried again when it is looked at again.
    pub fn memo_removed(&mut self, key: Digest, result: Result<(), Error>) {
        match result {
            Ok(()) => self.lane.push(Record::Unmemoised { key }, Some(Consequence::Unmemoised(key))),
            Err(error) => {
                tracing::warn!(%key, %error, "the data of a memoised call could not be removed");
                self.memos.working.remove(&key);
            }
        }
    }

    /// The journal knows that the entry is gone.
    pub fn memo_is_gone(&mut self, key: Digest) {
        self.memos.working.remove(&key);
    }
}
