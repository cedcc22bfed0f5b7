//! What the worker can tell a running attempt: stop, the answer to its wait, how far it may yield.
//!
//! Promises: whatever is told wakes the attempt; an answer to a wait that is no longer open is dropped (it is late).

use std::{
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::Context,
    time::{Duration, Instant},
};

use fanfold_protocol::{Error, PartitionId, limit::GENERATOR_AHEAD_MAX, value::Output};
use futures::task::AtomicWaker;
use tokio::sync::{Notify, oneshot};

use super::tail::Tail;

/// What an owner answers to a wait or to a request for a generator's next output.
#[derive(Debug)]
pub enum Answer {
    /// Positions that are ready, ascending, each with its output or failure.
    Woken(Vec<(u32, Result<Output, Error>)>),
    /// A generator's output, its end, or its failure.
    Next(Result<Option<PartitionId>, Error>),
}

/// The worker's side of one attempt.
#[derive(Debug)]
pub struct Control {
    started: Instant,
    stop: OnceLock<Error>,
    waker: AtomicWaker,
    open: Mutex<Option<(u64, oneshot::Sender<Answer>)>>,
    /// Its log lines.
    pub(crate) tail: Tail,
    /// First output that a generator must wait with.
    may_yield: AtomicU32,
    may_yield_more: Notify,
    /// Microseconds spent blocked in finished waits.
    blocked_us: AtomicU64,
    /// Microseconds after `started`, plus one, at which the current wait began; 0 outside of waits.
    blocked_since: AtomicU64,
}

/// For an attempt that starts now.
impl Default for Control {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            stop: OnceLock::new(),
            waker: AtomicWaker::new(),
            open: Mutex::new(None),
            tail: Tail::default(),
            may_yield: AtomicU32::new(GENERATOR_AHEAD_MAX),
            may_yield_more: Notify::new(),
            blocked_us: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
        }
    }
}

impl Control {
    /// Stops the attempt with `error`; the first reason counts.
    pub fn stop(&self, error: Error) {
        let _ = self.stop.set(error);
        self.waker.wake();
    }

    /// Why it shall stop, if it shall.
    pub fn stopped(&self) -> Option<&Error> {
        self.stop.get()
    }

    /// Has [`Control::stop`] wake the task of `cx`. Check [`Control::stopped`] afterwards.
    pub fn watch_stop(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// Opens wait number `wait`; its answer comes through the receiver. Open it before the owner can know of it.
    pub fn expect(&self, wait: u64) -> oneshot::Receiver<Answer> {
        let (tx, rx) = oneshot::channel();
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some((wait, tx));
        rx
    }

    /// Hands over the answer to wait number `wait`.
    pub fn answer(&self, wait: u64, answer: Answer) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tx)) = open.take_if(|(number, _)| *number == wait) {
            // A receiver that is gone belongs to an attempt that is being stopped.
            let _ = tx.send(answer);
        }
    }

    /// Lets outputs below `below` be yielded.
    pub fn may_yield(&self, below: u32) {
        self.may_yield.fetch_max(below, Relaxed);
        // Leaves a permit where nobody waits yet, so the generator looks again at worst once too often.
        self.may_yield_more.notify_one();
    }

    /// Waits until output number `output` may be yielded.
    pub async fn until_may_yield(&self, output: u32) {
        if output < self.may_yield.load(Relaxed) {
            return;
        }
        let _blocked = self.block();
        while output >= self.may_yield.load(Relaxed) {
            self.may_yield_more.notified().await;
        }
    }

    /// Time from here to the drop of the guard does not count against the attempt's timeout.
    pub fn block(&self) -> Blocked<'_> {
        self.blocked_since.store(self.elapsed_us() + 1, Relaxed);
        Blocked { control: self }
    }

    /// Time since the start that was not spent blocked.
    pub fn active(&self) -> Duration {
        let now = self.elapsed_us();
        let since = self.blocked_since.load(Relaxed);
        let current = if since == 0 { 0 } else { (now + 1).saturating_sub(since) };
        Duration::from_micros(now.saturating_sub(self.blocked_us.load(Relaxed) + current))
    }

    fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

/// See [`Control::block`].
#[derive(Debug)]
pub struct Blocked<'a> {
    control: &'a Control,
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        let control = self.control;
        let since = control.blocked_since.swap(0, Relaxed);
        control.blocked_us.fetch_add((control.elapsed_us() + 1).saturating_sub(since), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_open_wait_is_answered() {
        let control = Control::default();
        let mut first = control.expect(1);
        control.answer(0, Answer::Next(Ok(None)));
        assert!(first.try_recv().is_err());
        control.answer(1, Answer::Woken(vec![]));
        assert!(matches!(first.try_recv(), Ok(Answer::Woken(_))));
        control.answer(1, Answer::Woken(vec![]));
    }

    #[tokio::test]
    async fn generators_are_held_back_until_told() {
        let control = Control::default();
        control.until_may_yield(GENERATOR_AHEAD_MAX - 1).await;
        let held = control.until_may_yield(GENERATOR_AHEAD_MAX);
        let told = async {
            control.may_yield(1);
            tokio::task::yield_now().await;
            control.may_yield(GENERATOR_AHEAD_MAX + 1);
        };
        tokio::join!(held, told);
    }
}
