//! The thread that advances the engine's epoch while guests run, and sleeps while none does.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

use fanfold_protocol::Error;

/// Distance of ticks: the longest time a guest computes before it yields its thread.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a guest after which the thread sleeps. Waking it costs a guest a system call, hence not at once.
const IDLE_TICKS: u32 = 1000;

/// The thread; joined on drop.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ticks: AtomicU64,
    guests: AtomicUsize,
    /// Whether a new guest has to wake the thread.
    asleep: AtomicBool,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

/// A guest that may run. The epoch advances while there is one.
pub(crate) struct Running(Arc<Shared>);

impl Ticker {
    /// Starts the thread for `engine`.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(super) fn start(engine: wasmtime::Engine) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let ticking = shared.clone();
        let thread = thread::Builder::new()
            .name("fanfold-epoch".to_owned())
            .spawn(move || ticking.run(&engine))
            .map_err(|e| Error::internal(format!("the epoch thread does not start: {e}")))?;
        // Set once, here.
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Ticks so far.
    pub(super) fn ticks(&self) -> u64 {
        self.shared.ticks.load(Ordering::Relaxed)
    }

    /// Counts a guest.
    pub(super) fn running(&self) -> Running {
        let shared = &self.shared;
        // Both sides use SeqCst: either the thread sees the guest, or we see that it sleeps.
        shared.guests.fetch_add(1, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) {
            shared.wake();
        }
        Running(shared.clone())
    }
}

impl Shared {
    fn run(&self, engine: &wasmtime::Engine) {
        let mut idle = 0;
        while !self.stop.load(Ordering::SeqCst) {
            idle = if self.guests.load(Ordering::Relaxed) == 0 { idle + 1 } else { 0 };
            if idle > IDLE_TICKS {
                self.sleep();
                idle = 0;
            }
            thread::park_timeout(TICK);
            engine.increment_epoch();
            self.ticks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Until woken, or for no reason: the caller looks again.
    fn sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.guests.load(Ordering::SeqCst) == 0 && !self.stop.load(Ordering::SeqCst) {
            thread::park();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and there is nothing to do about it if it did.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that comes when the thread sleeps wakes it: its epoch advances.
    #[test]
    fn the_clock_sleeps_and_wakes() {
        let ticker = Ticker::start(wasmtime::Engine::default()).unwrap();
        for _ in 0..2 {
            while !ticker.shared.asleep.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let guest = ticker.running();
            let before = ticker.ticks();
            while ticker.ticks() < before + 3 {
                thread::yield_now();
            }
            drop(guest);
        }
        assert_eq!(ticker.shared.guests.load(Ordering::SeqCst), 0);
    }
}
