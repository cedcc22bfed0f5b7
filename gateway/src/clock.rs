//! The gateway's wall clock and its source of invocation ids.

use std::time::{SystemTime, UNIX_EPOCH};

use fanfold_protocol::JobId;
use rand::RngCore as _;

/// Unix time in milliseconds; 0 for a clock set before 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// A new invocation id: a UUID version 7. It makes no system call, so that a direct call can afford one.
pub(crate) fn new_invocation() -> JobId {
    let mut random = [0; 10];
    rand::rng().fill_bytes(&mut random);
    JobId(uuid::Builder::from_unix_timestamp_millis(now_ms(), &random).into_uuid())
}
