//! How much may have been fetched for guests and not been read: by one task, and by all of an executor, since there may be many.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use fanfold_protocol::limit;

use crate::cache::{Budget, Charge};

/// Bytes that were fetched for a task and that it has not read.
#[derive(Clone, Debug)]
pub struct Fetched {
    task: Arc<Budget>,
    all: Arc<Budget>,
    /// Readers that a guest has open.
    open: Arc<AtomicU64>,
}

impl Fetched {
    /// What all tasks of an executor may have fetched: no more than half as much as it has memory for partitions.
    pub fn of_all(cache_memory: u64) -> Arc<Budget> {
        Budget::new((cache_memory / 2).min(limit::READ_AHEAD_ALL_BYTES_MAX as u64))
    }

    /// For a task that has fetched nothing. All tasks of its executor have `all` in common.
    pub fn new(all: Arc<Budget>) -> Self {
        let task = Budget::new(all.total().min(limit::READ_AHEAD_BYTES_MAX as u64));
        Self { task, all, open: Arc::default() }
    }

    /// Counts a reader among those that share the room.
    pub(super) fn opened(&self) -> Open {
        self.open.fetch_add(1, Relaxed);
        Open(self.open.clone())
    }

    /// Of each reader that is open, if all have as much.
    pub(super) fn share(&self) -> u64 {
        self.task.total() / self.open.load(Relaxed).max(1)
    }

    /// Room for `bytes`, or for a half of it, a quarter, and so on, but for no less than `least`.
    pub(super) fn room(&self, bytes: u64, least: u64) -> Option<Room> {
        let mut halves =
            std::iter::successors(Some(bytes), |bytes| Some(bytes / 2).filter(|half| *half >= least));
        halves.find_map(|bytes| Some(Room { task: self.task.take(bytes)?, _all: self.all.take(bytes)? }))
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.task.used()
    }
}

/// A reader that is counted, until it is dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicU64>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A window's share, until it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    task: Charge,
    _all: Charge,
}

impl Room {
    pub(super) fn bytes(&self) -> u64 {
        self.task.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn tasks_share_what_an_executor_has_and_get_it_back() {
        let all = Fetched::of_all(u64::MAX);
        let tasks = limit::READ_AHEAD_ALL_BYTES_MAX / limit::READ_AHEAD_BYTES_MAX;
        let full: Vec<_> = (0..tasks)
            .map(|_| {
                let fetched = Fetched::new(all.clone());
                let room = fetched.room(limit::READ_AHEAD_BYTES_MAX as u64, MIB).expect("room for a task");
                assert!(fetched.room(MIB, MIB).is_none(), "a task has no more");
                room
            })
            .collect();
        let another = Fetched::new(all);
        assert!(another.room(4 * MIB, MIB).is_none(), "nor have all of them");
        assert_eq!(another.bytes(), 0);
        drop(full);
        let first = another.room(limit::READ_AHEAD_BYTES_MAX as u64 - 3 * MIB, MIB).expect("room");
        let half = another.room(4 * MIB, MIB).expect("room for a half");
        assert_eq!(half.bytes(), 2 * MIB);
        drop((first, half));
        assert_eq!(another.bytes(), 0);
    }

    #[test]
    fn no_more_is_fetched_than_half_of_the_memory_for_partitions() {
        let all = Fetched::of_all(16 * MIB);
        let (one, other) = (Fetched::new(all.clone()), Fetched::new(all));
        let room = one.room(6 * MIB, MIB).expect("room");
        assert_eq!(other.room(4 * MIB, MIB).map(|room| room.bytes()), Some(2 * MIB));
        drop(room);
        assert_eq!(other.room(8 * MIB, MIB).map(|room| room.bytes()), Some(8 * MIB));
    }

    #[test]
    fn readers_that_are_open_share_the_room() {
        let fetched = Fetched::new(Fetched::of_all(u64::MAX));
        let room = limit::READ_AHEAD_BYTES_MAX as u64;
        assert_eq!(fetched.share(), room);
        let first = fetched.opened();
        assert_eq!(fetched.share(), room);
        let others: Vec<_> = (1..200).map(|_| fetched.opened()).collect();
        assert_eq!(fetched.share(), room / 200);
        drop(others);
        assert_eq!(fetched.share(), room);
        drop(first);
    }
}
