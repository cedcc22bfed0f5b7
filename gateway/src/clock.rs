//! The gateway's wall clock and its source of invocation ids.

use std::{
    sync::atomic::{AtomicU16, Ordering::Relaxed},
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

/// A new job's id in a shard. Ids made within one millisecond sort in the order they were made, up to 4,096 of them.
pub(crate) fn new_job(at_ms: u64, shard: ShardTag) -> JobId {
    static MADE: AtomicU16 = AtomicU16::new(0);
    let [high, low] = (MADE.fetch_add(1, Relaxed) & 0xfff).to_be_bytes();
    let mut random: [u8; 8] = rand::random();
    (random[0], random[1]) = (high, low);
    JobId::new(at_ms, shard, random)
}
