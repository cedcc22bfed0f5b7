//! A budget of bytes and the charges against it.
//!
//! Promises: a charge is given back when it is dropped, wherever that happens; whoever waits for room hears of every
//! release. Does not decide who has to make room; `tier` does.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
};

use tokio::sync::{Notify, futures::Notified};

/// Bytes that may be held at once.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    used: AtomicU64,
    waiting: AtomicUsize,
    released: Notify,
}

impl Budget {
    /// A budget of `total` bytes.
    pub fn new(total: u64) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            released: Notify::new(),
        })
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes held now; above [`Budget::total`] while somebody overdraws.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// A charge of `bytes`, if they are free.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        self.used.fetch_update(SeqCst, Relaxed, fits).ok()?;
        Some(Charge { budget: Some(self.clone()), bytes })
    }

    /// A charge of `bytes` whether they are free or not.
    pub fn overdraw(self: &Arc<Self>, bytes: u64) -> Charge {
        self.used.fetch_add(bytes, SeqCst);
        Charge { budget: Some(self.clone()), bytes }
    }

    /// Announces that the caller is about to wait for a release. Check for room after this and before awaiting it.
    pub fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, SeqCst);
        Waiting { budget: self }
    }

    /// Whether somebody waits for room.
    pub fn is_short(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Has those who wait look again: what is charged may be free to evict by now.
    pub fn nudge(&self) {
        if self.is_short() {
            self.released.notify_waiters();
        }
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, SeqCst);
        // Both sides use SeqCst: either the waiter sees the room or we see the waiter.
        self.nudge();
    }
}

/// Somebody who waits for room.
#[derive(Debug)]
pub struct Waiting<'a> {
    budget: &'a Budget,
}

impl Waiting<'_> {
    /// Resolves at the next release after this call.
    pub fn released(&self) -> Notified<'_> {
        self.budget.released.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.budget.waiting.fetch_sub(1, SeqCst);
    }
}

/// Bytes held; given back on drop.
#[derive(Debug, Default)]
pub struct Charge {
    /// `None` while it holds nothing.
    budget: Option<Arc<Budget>>,
    bytes: u64,
}

impl Charge {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Joins two charges of one budget.
    pub fn absorb(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.budget = self.budget.take().or_else(|| other.budget.take());
    }

    /// Takes `bytes` out of it, or all there are, as a charge of their own.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let (Some(surplus), Some(budget)) = (self.bytes.checked_sub(bytes), &self.budget) {
            self.bytes = bytes;
            budget.release(surplus);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_come_back() {
        let budget = Budget::new(100);
        let mut a = budget.take(60).unwrap();
        assert!(budget.take(41).is_none());
        a.absorb(budget.take(40).unwrap());
        a.shrink_to(70);
        assert_eq!(budget.used(), 70);
        let part = a.split(20);
        assert_eq!((a.bytes(), part.bytes(), budget.used()), (50, 20, 70));
        drop(part);
        assert_eq!(budget.used(), 50);
        let over = budget.overdraw(70);
        assert!(budget.take(1).is_none());
        drop((a, over));
        assert_eq!(budget.used(), 0);
        assert!(budget.take(u64::MAX).is_none());
    }

    #[tokio::test]
    async fn a_waiter_hears_of_a_release() {
        let budget = Budget::new(10);
        let held = budget.take(10).unwrap();
        let waiting = budget.wait();
        let released = waiting.released();
        drop(held);
        released.await;
        assert!(budget.take(10).is_some());
    }
}
