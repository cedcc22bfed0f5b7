//! Admission: how many direct calls of a function run, and how many wait for a place.
//!
//! First come, first served. A call that finds the queue full is refused at once: nothing ran, and the caller can
//! go elsewhere. A waiter that goes away gives up its place in the queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fanfold_protocol::{Code, Error, Kind, manifest::Concurrency};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The gate of one function.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    /// Places that exist.
    max: AtomicU32,
    /// Places that a redeploy took away while they were in use: the next ones to be free disappear.
    debt: AtomicU32,
    queue: AtomicU32,
    waiting: AtomicU32,
}

/// A place; freed when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    place: Option<OwnedSemaphorePermit>,
    admission: Arc<Admission>,
}

impl Admission {
    pub(crate) fn new(bounds: Concurrency) -> Self {
        Self {
            places: Arc::new(Semaphore::new(bounds.max as usize)),
            max: AtomicU32::new(bounds.max),
            debt: AtomicU32::new(0),
            queue: AtomicU32::new(bounds.queue),
            waiting: AtomicU32::new(0),
        }
    }

    /// Changes the bounds; running and waiting calls stay. Called by one task at a time.
    pub(crate) fn resize(&self, bounds: Concurrency) {
        self.queue.store(bounds.queue, Relaxed);
        let before = self.max.swap(bounds.max, Relaxed);
        if bounds.max < before {
            let fewer = before - bounds.max;
            let gone = self.places.forget_permits(fewer as usize);
            self.debt.fetch_add(fewer - u32::try_from(gone).unwrap_or(fewer), Relaxed);
        } else {
            let mut more = bounds.max - before;
            while more > 0 && self.pay_debt() {
                more -= 1;
            }
            self.places.add_permits(more as usize);
        }
    }

    /// A place, and how long it took to get one.
    ///
    /// # Errors
    /// `overloaded` / `queue-full`.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<(Permit, Duration), Error> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok((self.permit(place), Duration::ZERO));
        }
        let _waiting = Waiting::join(self)?;
        let since = Instant::now();
        match Arc::clone(&self.places).acquire_owned().await {
            Ok(place) => Ok((self.permit(place), since.elapsed())),
            Err(_closed) => Err(Error::internal("the function's gate is closed")),
        }
    }

    /// Calls waiting now.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    fn permit(self: &Arc<Self>, place: OwnedSemaphorePermit) -> Permit {
        Permit { place: Some(place), admission: Arc::clone(self) }
    }

    /// Takes one off the debt, if there is any.
    fn pay_debt(&self) -> bool {
        self.debt.load(Relaxed) > 0
            && self.debt.fetch_update(Relaxed, Relaxed, |debt| debt.checked_sub(1)).is_ok()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.admission.pay_debt()
            && let Some(place) = self.place.take()
        {
            place.forget();
        }
    }
}

/// One place in the queue.
struct Waiting<'a>(&'a Admission);

impl<'a> Waiting<'a> {
    fn join(admission: &'a Admission) -> Result<Self, Error> {
        let queue = admission.queue.load(Relaxed);
        let below = |waiting: u32| (waiting < queue).then_some(waiting + 1);
        match admission.waiting.fetch_update(Relaxed, Relaxed, below) {
            Ok(_) => Ok(Self(admission)),
            Err(waiting) => Err(Error::new(
                Kind::Overloaded,
                Code::QueueFull,
                format!(
                    "{} calls of this function run and {waiting} wait: try again later, or raise concurrency in its \
                     manifest",
                    admission.max.load(Relaxed),
                ),
            )),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};

    use super::*;

    fn gate(max: u32, queue: u32) -> Arc<Admission> {
        Arc::new(Admission::new(Concurrency { max, queue }))
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_in_order() {
        let gate = gate(1, 2);
        let first = gate.enter().await.unwrap().0;
        let mut second = Box::pin(gate.enter());
        let mut third = Box::pin(gate.enter());
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        let refused = gate.enter().await.unwrap_err();
        assert_eq!(
            (refused.kind, refused.code, refused.retryable),
            (Kind::Overloaded, Code::QueueFull, true)
        );

        drop(first);
        assert!(poll!(&mut third).is_pending(), "the third overtook the second");
        let second = second.await.unwrap().0;
        assert_eq!(gate.waiting(), 1);
        drop(third);
        assert_eq!(gate.waiting(), 0, "a waiter that went away keeps its place");
        drop(second);
        assert!(gate.enter().now_or_never().is_some());
    }

    #[tokio::test]
    async fn bounds_change_while_calls_run() {
        let gate = gate(3, 0);
        let mut running = vec![];
        for _ in 0..3 {
            running.push(gate.enter().await.unwrap().0);
        }
        gate.resize(Concurrency { max: 1, queue: 0 });
        running.truncate(1);
        assert!(gate.enter().await.is_err(), "one runs and one may run");
        gate.resize(Concurrency { max: 2, queue: 0 });
        running.push(gate.enter().await.unwrap().0);
        assert!(gate.enter().await.is_err());
        running.clear();
        let both = (gate.enter().await.unwrap(), gate.enter().await.unwrap());
        assert!(gate.enter().await.is_err());
        drop(both);
    }
}
