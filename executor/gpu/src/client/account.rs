//! What the buffers of one owner take, over all its sessions.

use std::sync::atomic::{AtomicU64, Ordering};

use fanfold_protocol::Error;

use crate::check::no_memory;

/// An owner's account.
pub(super) struct Account {
    max: u64,
    used: AtomicU64,
}

impl Account {
    /// Of an owner that may have `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { max, used: AtomicU64::new(0) }
    }

    /// Takes memory.
    ///
    /// # Errors
    /// `limit`; then nothing is taken.
    pub fn take(&self, bytes: u64) -> Result<(), Error> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(no_memory(bytes, used, self.max)),
        }
    }

    /// Whether so much would fit if nothing else were there.
    pub fn may_fit(&self, bytes: u64) -> bool {
        bytes <= self.max
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
