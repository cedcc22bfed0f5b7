//! Timers: what shall happen at a time, and when the owner has to call next.
//!
//! Every timer is cancelled when its reason is gone, so that one with a deadline of hours does not outlive a task of
//! microseconds.

use std::collections::BTreeMap;

use crate::slab::{ExecutorIx, JobIx, TaskIx};

/// What happens when a timer fires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The task fails with `deadline`.
    Deadline(TaskIx),
    /// The task's next attempt may start.
    Backoff(TaskIx),
    /// The task's wait is over.
    Wait(TaskIx),
    /// The executor is no longer kept free for a large task.
    Reservation(ExecutorIx),
    /// Look whether the job stands still.
    Stall(JobIx),
    /// The job ends, though not all of its outputs are in the object store.
    Durable(JobIx),
    /// Executors that the log knows of have had their time to come.
    Grace,
    /// An executor that left has had its time to be started again.
    Return,
    /// Look whether tasks of the job take much longer than others of their kind.
    Stragglers(JobIx),
}

/// Time in milliseconds and a number that makes it unique and keeps the order of setting.
pub(crate) type TimerKey = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeMap<TimerKey, Timer>,
    next: u64,
    asked_ms: Option<u64>,
}

impl Timers {
    pub fn set(&mut self, at_ms: u64, timer: Timer) -> TimerKey {
        let key = (at_ms, self.next);
        self.next += 1;
        self.queue.insert(key, timer);
        key
    }

    pub fn cancel(&mut self, key: TimerKey) {
        self.queue.remove(&key);
    }

    /// Takes the first timer that is due.
    pub fn due(&mut self, now_ms: u64) -> Option<Timer> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= now_ms).then(|| first.remove())
    }

    /// The time to ask the owner for, if it has not been asked for that or an earlier one already.
    pub fn wake_at(&mut self, now_ms: u64) -> Option<u64> {
        let first = self.queue.first_key_value()?.0.0;
        if self.asked_ms.is_some_and(|asked| asked > now_ms && asked <= first) {
            return None;
        }
        self.asked_ms = Some(first);
        Some(first)
    }
}
