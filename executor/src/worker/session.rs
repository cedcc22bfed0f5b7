//! An owner as the worker sees it: where its messages come from and where those to it go.
//!
//! An executor works for the owners of several journal shards at once. A session lasts as long as the link to one of
//! them; ending it ends its attempts, because nobody would hear of them. What they made stays in the cache, and the
//! next owner of the shard is told of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use fanfold_protocol::{
    Code, Error, Kind,
    message::{FromExecutor, ToExecutor},
};
use tokio::sync::mpsc;

use super::Worker;

/// The way to one owner.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Tells sessions of one shard apart.
    pub(super) id: u64,
    /// To the owner.
    pub(super) events: mpsc::Sender<FromExecutor>,
}

impl Channel {
    pub(super) fn new(events: mpsc::Sender<FromExecutor>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Relaxed), events }
    }
}

/// A session; dropping it ends it.
pub struct Session {
    worker: Worker,
    channel: Arc<Channel>,
}

impl Session {
    pub(super) fn new(worker: Worker, channel: Arc<Channel>) -> Self {
        Self { worker, channel }
    }

    /// Handles a message of the owner. Does not wait.
    ///
    /// # Errors
    /// [`Code::Draining`] once the executor stops.
    pub fn send(&self, message: ToExecutor) -> Result<(), Error> {
        self.worker.take(&self.channel, message)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.worker.end_session(&self.channel);
    }
}

/// Why the attempts of a session end with it.
pub(super) fn owner_gone() -> Error {
    Error::new(Kind::Platform, Code::Cancelled, "the owner of this job is gone: it goes on under another one")
}
