//! The splits: which were not begun, which stopped on the way, which are done.

use std::collections::{BTreeMap, VecDeque};

use super::Input;

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    /// Not begun, in order.
    fresh: VecDeque<u32>,
    /// Begun and stopped, by split: at a row, after some of its outputs.
    stopped: BTreeMap<u32, (u64, u64)>,
    /// For each split, what of it is under way: its reading, and each slice and task that comes from it.
    open: BTreeMap<u32, u32>,
    done: Vec<u32>,
}

impl Source {
    pub fn new(splits: impl IntoIterator<Item = u32>) -> Self {
        let fresh: VecDeque<u32> = splits.into_iter().collect();
        let open = fresh.iter().map(|&split| (split, 1)).collect();
        Self { fresh, stopped: BTreeMap::new(), open, done: Vec::new() }
    }

    /// Whether something could be read now.
    pub fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.stopped.is_empty()
    }

    /// What to read next: what was begun goes first.
    pub fn take(&mut self) -> Option<Input> {
        if let Some((split, (row, skip))) = self.stopped.pop_first() {
            return Some(Input::Split { split, row, skip });
        }
        self.fresh.pop_front().map(|split| Input::Split { split, row: 0, skip: 0 })
    }

    /// Where the next one begins, as a key.
    pub fn first_key(&self) -> Option<Vec<u64>> {
        let stopped =
            self.stopped.first_key_value().map(|(&split, &(row, skip))| vec![split.into(), row, skip]);
        let fresh = self.fresh.front().map(|&split| vec![split.into()]);
        [stopped, fresh].into_iter().flatten().min()
    }

    /// Reading stopped on the way.
    pub fn stop(&mut self, split: u32, row: u64, skip: u64) {
        self.stopped.insert(split, (row, skip));
    }

    /// One more piece of a split is under way.
    pub fn opened(&mut self, split: u32) {
        *self.open.entry(split).or_default() += 1;
    }

    /// A piece of a split, or its reading, came to its end.
    pub fn closed(&mut self, split: u32) {
        let Some(open) = self.open.get_mut(&split) else { return };
        *open -= 1;
        if *open == 0 {
            self.open.remove(&split);
            self.done.push(split);
        }
    }

    /// Nothing more is read. What was read of begun splits is not all of them, so none of these is ever done.
    pub fn end(&mut self) {
        self.fresh.clear();
        self.stopped.clear();
    }

    /// Splits all of whose rows have left the pipeline, since the last time.
    pub fn take_done(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.done)
    }
}
