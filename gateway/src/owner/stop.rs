//! The owner's end, in order: nothing new is accepted or begun; what runs may finish until the deadline; the journal is
//! flushed; the executors' channels close, which stops what still runs. Recorded jobs go on after a restart.

use std::time::Duration;

use super::{
    lane::Written,
    messages::{Reply, tell},
    run::Loop,
    shared::draining,
};

/// Time between two looks at whether what runs has finished.
const CHECK_MS: u64 = 20;
/// Longest wait for the journal at the end: records that could not be written by then belong to work that will be
/// done again.
const FLUSH: Duration = Duration::from_secs(5);

/// The owner is about to end.
pub(super) struct Stopping {
    deadline_ms: u64,
    reply: Option<Reply<()>>,
}

impl Stopping {
    pub fn new(now_ms: u64, drain: Duration, reply: Option<Reply<()>>) -> Self {
        let drain_ms = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
        Self { deadline_ms: now_ms.saturating_add(drain_ms), reply }
    }
}

impl Loop {
    /// When the stop is looked at next, if there is one.
    pub fn stop_check_ms(&self) -> Option<u64> {
        self.stopping.as_ref().map(|stopping| stopping.deadline_ms.min(self.now_ms + CHECK_MS))
    }

    /// Whether the loop's time is over: nothing computes any more and all is durable, or the deadline has passed.
    pub fn is_stopped(&self) -> bool {
        let Some(stopping) = &self.stopping else { return false };
        let synchronous = self.live.values().any(|live| !live.recorded);
        let computes = self.running.values().any(|running| !running.waits);
        let idle = !synchronous && !computes && self.lane.is_idle() && self.accepting.is_empty();
        idle || self.now_ms >= stopping.deadline_ms
    }

    /// What is left to do after the last turn.
    pub async fn finish_stop(&mut self) {
        for link in &mut self.links {
            link.close();
        }
        if tokio::time::timeout(FLUSH, self.flush()).await.is_err() {
            tracing::warn!(
                records = self.lane.len(),
                "the journal could not be written in time; work will be done again"
            );
        }
        for waiter in std::mem::take(&mut self.live).into_values().flat_map(|live| live.waiters) {
            tell(waiter, Err(draining()));
        }
        for waiter in
            std::mem::take(&mut self.accepting).into_values().flat_map(|accepting| accepting.waiters)
        {
            waiter.refuse(draining());
        }
        self.work.join().await;
        if let Some(reply) = self.stopping.take().and_then(|stopping| stopping.reply) {
            tell(reply, Ok(()));
        }
    }

    async fn flush(&mut self) {
        while !self.lane.is_idle() {
            match std::future::poll_fn(|cx| self.lane.poll(cx)).await {
                Written::Durable(entries) => self.durable(entries),
                Written::Failed { error, refused } => self.refused(&error, refused),
                Written::Checkpoint(result) => self.checkpointed(result),
                Written::Ended(_) => return,
            }
        }
    }
}
