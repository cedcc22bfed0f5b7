//! The owner's clock: Unix milliseconds that never go back while the process lives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
        #[allow(clippy::disallowed_methods, reason = "the one place of ownership that reads the wall clock")]
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(0), started: Instant::now() }
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
