//! How much may have been fetched for guests and not been read: by one task, and by all of an executor, since there may be many.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use fanfold_protocol::limit;

/// Bytes that were fetched for a task and that it has not read.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    task: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Fetched {
    /// For a task that has fetched nothing. All tasks of its executor have `all` in common.
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        Self { task: Arc::default(), all }
    }

    /// Room for `bytes`, or for a half of it, a quarter, and so on, but for no less than `least`.
    pub(super) fn room(&self, bytes: u64, least: u64) -> Option<Room> {
        let mut halves =
            std::iter::successors(Some(bytes), |bytes| Some(bytes / 2).filter(|half| *half >= least));
        halves.find_map(|bytes| self.take(bytes as usize))
    }

    fn take(&self, bytes: usize) -> Option<Room> {
        add(&self.task, bytes, limit::READ_AHEAD_BYTES_MAX)?;
        if add(&self.all, bytes, limit::READ_AHEAD_ALL_BYTES_MAX).is_none() {
            self.task.fetch_sub(bytes, Relaxed);
            return None;
        }
        Some(Room { of: self.clone(), bytes })
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.task.load(Relaxed)
    }
}

fn add(used: &AtomicUsize, bytes: usize, max: usize) -> Option<()> {
    let fits = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= max);
    used.fetch_update(Relaxed, Relaxed, fits).ok().map(|_| ())
}

/// A window's share, until it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    of: Fetched,
    bytes: usize,
}

impl Room {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.task.fetch_sub(self.bytes, Relaxed);
        self.of.all.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn tasks_share_what_an_executor_has_and_get_it_back() {
        let all = Arc::default();
        let tasks = limit::READ_AHEAD_ALL_BYTES_MAX / limit::READ_AHEAD_BYTES_MAX;
        let full: Vec<_> = (0..tasks)
            .map(|_| {
                let fetched = Fetched::new(Arc::clone(&all));
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
}
