//! The gateway's wall clock and its source of invocation ids.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use fanfold_protocol::{JobId, link::ShardTag};
use rand::RngCore as _;

/// Unix time in milliseconds; 0 for a clock set before 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// The id of a direct call on the gateway that owns this shard. It makes no system call, so that each can afford one.
pub(crate) fn new_invocation(shard: ShardTag) -> JobId {
    let mut random = [0; 8];
    rand::rng().fill_bytes(&mut random);
    JobId::new(now_ms(), shard, random)
}

/// A new job's id in a shard. Ids of one process sort in the order in which they were made; where more than 4,096 are made within a
/// millisecond, or the clock is set back, by running ahead of the clock.
pub(crate) fn new_job(at_ms: u64, shard: ShardTag) -> JobId {
    /// Milliseconds, and twelve bits that count within one.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let next = |last: u64| last.saturating_add(1).max(at_ms << 12);
    let last = LAST.fetch_update(Relaxed, Relaxed, |last| Some(next(last))).unwrap_or_else(|last| last);
    let stamp = next(last);
    let mut random: [u8; 8] = rand::random();
    let [.., high, low] = (stamp & 0xfff).to_be_bytes();
    (random[0], random[1]) = (high, low);
    JobId::new(stamp >> 12, shard, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_in_the_order_in_which_they_were_made() {
        let at = |n: u64| if n.is_multiple_of(3) { now_ms() } else { 1 };
        let ids: Vec<_> = (0..20_000).map(|n| new_job(at(n), ShardTag(7))).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.iter().all(|id| id.shard() == ShardTag(7)));
    }
}
