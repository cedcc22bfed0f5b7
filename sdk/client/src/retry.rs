//! When a request is sent again: growing pauses with jitter, and a budget shared by all requests of a client so that
//! retries never multiply the load on a server that is already struggling.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rand::Rng as _;

/// How often and how patiently repeatable requests are sent again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RetryPolicy {
    /// Times a request is sent in all; 1: never again.
    pub attempts: u32,
    /// Upper end of the pause before the second attempt; doubled for each further one. The pause is random below it.
    pub pause: Duration,
    /// The longest pause. A longer `Retry-After` ends the attempts: the caller decides.
    pub pause_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 6, pause: Duration::from_millis(100), pause_max: Duration::from_secs(10) }
    }
}

/// Tenths of a retry that a client may spend before successes earn more: 100 retries in a row.
const BUDGET: u32 = 1000;
const COST: u32 = 10;

/// The retries of one client.
#[derive(Debug)]
pub(crate) struct Retries {
    policy: RetryPolicy,
    /// Each success puts one in, each retry takes ten out: in the long run at most a tenth more requests.
    budget: AtomicU32,
}

impl Retries {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { policy, budget: AtomicU32::new(BUDGET) }
    }

    /// Notes a request that succeeded.
    pub(crate) fn earn(&self) {
        // A full budget is the usual state: look before writing to a line that all cores share.
        if self.budget.load(Ordering::Relaxed) < BUDGET {
            let more = |budget: u32| (budget < BUDGET).then_some(budget + 1);
            let _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }

    /// How long to pause before sending a request again that has been sent `sent` times; `None`: do not.
    pub(crate) fn pause(&self, sent: u32, retry_after: Option<Duration>) -> Option<Duration> {
        if sent >= self.policy.attempts || retry_after.is_some_and(|asked| asked > self.policy.pause_max) {
            return None;
        }
        let spend = |budget: u32| budget.checked_sub(COST);
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).ok()?;
        let doubled = self.policy.pause.saturating_mul(1 << (sent - 1).min(16));
        let jitter = doubled.min(self.policy.pause_max).mul_f64(rand::rng().random());
        Some(retry_after.unwrap_or_default() + jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let retries = Retries::new(RetryPolicy { attempts: 3, ..RetryPolicy::default() });
        assert!(retries.pause(1, None).unwrap() <= Duration::from_millis(100));
        assert!(retries.pause(2, None).unwrap() <= Duration::from_millis(200));
        assert!(retries.pause(3, None).is_none());
        let asked = Duration::from_secs(2);
        assert!(retries.pause(1, Some(asked)).unwrap() >= asked);
        assert!(retries.pause(1, Some(Duration::from_secs(3600))).is_none());
    }

    #[test]
    fn the_budget_is_spent_and_earned() {
        let retries = Retries::new(RetryPolicy::default());
        let granted = (0..1000).filter(|_| retries.pause(1, None).is_some()).count();
        assert_eq!(granted, 100);
        (0..20).for_each(|_| retries.earn());
        let granted = (0..1000).filter(|_| retries.pause(1, None).is_some()).count();
        assert_eq!(granted, 2);
    }
}
