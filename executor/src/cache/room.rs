//! Making room in memory: what goes, and where to.
//!
//! What the object store (or, of a copy, another executor) has is dropped: reading it again costs no more than reading a
//! file would on a local store, and one request on S3, while a file of it would take disk space from partitions that have
//! no other place. What only this memory has is written to disk; while that is full or fails, it is uploaded instead,
//! whatever its durability.

use std::{sync::Arc, time::Instant};

use fanfold_protocol::{Error, value::StoredKey};

use super::{
    Cache, Charge,
    disk::Disk,
    lock,
    tier::{Cached, Tier},
};

/// How room can be made.
pub(super) enum Way {
    /// Write this one to disk.
    Spill(StoredKey, Arc<Cached>),
    /// Upload this one.
    Upload(StoredKey),
}

impl Cache {
    /// Room for `bytes` more; waits while memory is short and something can be done about it. Where nothing can, since
    /// all of it is being written or read just now, the budget is overdrawn: waiting would wait for the waiter.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Platform`] where memory is short and neither the disk nor the object store takes anything.
    pub async fn charge(&self, bytes: u64) -> Result<Charge, Error> {
        let budget = &self.0.budget;
        if let Some(charge) = budget.take(bytes) {
            return Ok(charge);
        }
        let waiting = budget.wait();
        loop {
            let released = waiting.released();
            if let Some(charge) = self.make_room(bytes) {
                return Ok(charge);
            }
            if !self.can_shrink() {
                return match lock(&self.0.failing).clone().filter(|_| self.open_disk().is_none()) {
                    Some(error) => Err(error.context("memory is short and partitions cannot be written")),
                    None => Ok(budget.overdraw(bytes)),
                };
            }
            self.0.work.notify_one();
            released.await;
        }
    }

    /// Room for `bytes` more, by evicting what is elsewhere, too.
    pub(super) fn make_room(&self, bytes: u64) -> Option<Charge> {
        let budget = &self.0.budget;
        if let Some(charge) = budget.take(bytes) {
            return Some(charge);
        }
        let missing = (budget.used() + bytes).saturating_sub(budget.total());
        self.tier().evict(missing);
        budget.take(bytes)
    }

    /// Whether waiting may make room: something is on its way out of memory, or could be.
    fn can_shrink(&self) -> bool {
        let tier = self.tier();
        tier.is_moving() || self.way(&tier).is_some()
    }

    /// What to move out of memory next.
    pub(super) fn way(&self, tier: &Tier) -> Option<Way> {
        if let Some(disk) = self.open_disk() {
            // Where all of it is read just now, an upload would free nothing either.
            let (key, data) = tier.oldest_spillable()?;
            let missing = data.index.bytes().saturating_sub(disk.free());
            if tier.spare(missing).is_some() {
                return Some(Way::Spill(key, data));
            }
        }
        tier.oldest_uploadable(Instant::now()).map(Way::Upload)
    }

    /// Room on disk for a partition for which [`Cache::way`] found some: files that the object store has are removed.
    pub(super) fn take_disk(&self, disk: &Disk, tier: &mut Tier, bytes: u64) -> Option<Charge> {
        let missing = bytes.saturating_sub(disk.free());
        for key in tier.spare(missing)? {
            tier.remove(key);
        }
        disk.take(bytes)
    }

    /// The disk, unless there is none or it has failed a moment ago.
    pub(super) fn open_disk(&self) -> Option<&Disk> {
        self.0.disk.as_ref().filter(|disk| disk.is_open(Instant::now()))
    }
}
