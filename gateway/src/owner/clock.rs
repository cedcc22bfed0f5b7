//! The owner's clock: Unix milliseconds that never go back while the process lives.

use std::time::Duration;

use tokio::time::Instant;

/// Wall time as it was at the start, plus what a monotonic clock measured since. A wall clock that is set back would
/// otherwise make deadlines wait and retries hurry.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    unix_ms: u64,
    started: Instant,
}

impl Clock {
    /// A clock that starts at the present wall time.
    pub fn start() -> Self {
        Self { unix_ms: crate::clock::now_ms(), started: Instant::now() }
    }

    /// Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.unix_ms + u64::try_from(self.started.elapsed().as_millis()).unwrap_or(0)
    }

    /// The instant at which [`Clock::now_ms`] will have reached `at_ms`.
    pub fn instant(&self, at_ms: u64) -> Instant {
        self.started + Duration::from_millis(at_ms.saturating_sub(self.unix_ms))
    }
}
