//! What a worker keeps for its owner from one session to the next: buffers whose data is only read, by what that is.
//!
//! They are on the owner's account as long as the worker has them. Which ones go when memory is wanted is decided here.

use std::{collections::HashMap, sync::Arc};

use fanfold_protocol::{Digest, limit};

use super::account::Account;
use crate::message::{Handle, Usage};

/// What a kept buffer has: the same bytes for the same key, as long as its owner lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeptKey {
    /// The value that they are of.
    pub source: Digest,
    /// First byte of the value.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What the buffer is used for.
    pub usage: Usage,
}

/// The kept buffers of one worker.
#[derive(Default)]
pub(super) struct Kept {
    /// The owner's, once there is a buffer.
    account: Option<Arc<Account>>,
    /// Counts uses.
    now: u64,
    buffers: HashMap<KeptKey, Buffer>,
}

struct Buffer {
    /// In the worker's table of kept buffers.
    handle: Handle,
    size: u64,
    used: u64,
    /// The present session uses it, or has.
    in_use: bool,
}

impl Kept {
    /// The buffer with these bytes, which the session uses from now on.
    pub fn find(&mut self, key: &KeptKey) -> Option<Handle> {
        self.now += 1;
        let buffer = self.buffers.get_mut(key)?;
        (buffer.used, buffer.in_use) = (self.now, true);
        Some(buffer.handle)
    }

    /// Keeps a buffer of the session. Its memory, taken off this account, is given back here.
    pub fn insert(&mut self, key: KeptKey, handle: Handle, size: u64, account: &Arc<Account>) {
        self.now += 1;
        self.account.get_or_insert_with(|| Arc::clone(account));
        let before = self.buffers.insert(key, Buffer { handle, size, used: self.now, in_use: true });
        self.give(before);
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.buffers.len() >= limit::GPU_BUFFERS_KEPT_MAX
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Gives up the buffer that was not used for longest, if there is one that the session does not use. It is to be freed.
    pub fn give_up(&mut self) -> Option<Handle> {
        let idle = self.buffers.iter().filter(|(_, buffer)| !buffer.in_use);
        let oldest = idle.min_by_key(|(_, buffer)| buffer.used).map(|(key, _)| *key)?;
        let buffer = self.buffers.remove(&oldest);
        let handle = buffer.as_ref().map(|buffer| buffer.handle);
        self.give(buffer);
        handle
    }

    /// The session has ended.
    pub fn rest(&mut self) {
        self.buffers.values_mut().for_each(|buffer| buffer.in_use = false);
    }

    fn give(&self, buffer: Option<Buffer>) {
        if let (Some(account), Some(buffer)) = (&self.account, buffer) {
            account.give(buffer.size);
        }
    }
}

/// With its worker.
impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give(self.buffers.values().map(|buffer| buffer.size).sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_not_in_use_goes_first_and_all_is_given_back() {
        let account = Arc::new(Account::new(100));
        let key = |n: u8| KeptKey { source: Digest([n; 32]), offset: 0, length: 30, usage: Usage::default() };
        let mut kept = Kept::default();
        for n in 0..3 {
            account.take(30).unwrap();
            kept.insert(key(n), u64::from(n), 30, &account);
        }
        assert_eq!(kept.give_up(), None, "the session uses all");
        kept.rest();
        assert_eq!((kept.find(&key(0)), kept.find(&key(9))), (Some(0), None));
        assert!(account.take(30).is_err());
        assert_eq!(kept.give_up(), Some(1));
        account.take(30).unwrap();
        assert_eq!((kept.give_up(), kept.give_up()), (Some(2), None));
        drop(kept);
        account.take(70).unwrap();
    }
}
