//! Logs of recent direct calls, by invocation id.
//!
//! A ring in memory: the newest calls that logged anything. Nothing of it survives the process; logs that must are
//! those of asynchronous invocations.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use fanfold_protocol::{JobId, direct::Logs, limit};

/// The ring.
#[derive(Default)]
pub(crate) struct RecentLogs(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    calls: VecDeque<(JobId, Bytes)>,
    bytes: usize,
}

impl RecentLogs {
    /// Keeps what a call has logged, if it has.
    pub(crate) fn keep(&self, id: JobId, logs: &Logs) {
        let lines = {
            let lines = logs.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.is_empty() {
                return;
            }
            Bytes::copy_from_slice(&lines)
        };
        self.put(id, lines);
    }

    /// Keeps these lines of a call.
    pub(crate) fn put(&self, id: JobId, lines: Bytes) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.bytes += lines.len();
        ring.calls.push_back((id, lines));
        while ring.calls.len() > limit::RECENT_LOGS_CALLS_MAX || ring.bytes > limit::RECENT_LOGS_BYTES_MAX {
            let Some((_, oldest)) = ring.calls.pop_front() else { break };
            ring.bytes -= oldest.len();
        }
    }

    /// The NDJSON lines of a call that is still in the ring.
    pub(crate) fn get(&self, id: JobId) -> Option<Bytes> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.calls.iter().rev().find(|(call, _)| *call == id).map(|(_, lines)| lines.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_ring_is_bounded_by_bytes_and_skips_silence() {
        let ring = RecentLogs::default();
        let id = |n: u128| JobId(uuid::Uuid::from_u128(n));
        ring.keep(id(0), &Logs::default());
        assert_eq!(ring.get(id(0)), None);
        let mebibyte: Logs = Arc::new(Mutex::new(vec![b'x'; 1 << 20]));
        (1..=17).for_each(|n| ring.keep(id(n), &mebibyte));
        assert_eq!(ring.get(id(1)), None);
        assert_eq!(ring.get(id(2)).map(|lines| lines.len()), Some(1 << 20));
    }
}
