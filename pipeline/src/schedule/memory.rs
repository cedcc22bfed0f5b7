//! The account of bytes: partitions that exist, and what running tasks may make of them.
//!
//! A partition counts with all its bytes until its last row was taken; a running task with its grant, which it cannot
//! exceed. So the sum is never less than what there is, and it never goes above the limit.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    used: u64,
    peak: u64,
    holds: BTreeMap<u64, Hold>,
    next: u64,
    freed: Vec<u64>,
}

#[derive(Debug)]
struct Hold {
    bytes: u64,
    /// Slices of it, waiting or being processed.
    slices: u32,
}

impl Memory {
    pub fn new(limit: u64) -> Self {
        Self { limit, used: 0, peak: 0, holds: BTreeMap::new(), next: 0, freed: Vec::new() }
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// The most there ever was.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Sets bytes aside for a task; false, and nothing happens, if there are not as many.
    pub fn grant(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.used += bytes;
            self.peak = self.peak.max(self.used);
        }
        fits
    }

    /// Gives a grant back.
    pub fn settle(&mut self, grant: u64) {
        self.used = self.used.saturating_sub(grant);
    }

    /// A new partition with one slice, within a grant that was just given back.
    pub fn hold(&mut self, bytes: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.used += bytes;
        self.holds.insert(id, Hold { bytes, slices: 1 });
        id
    }

    /// One more slice of a partition.
    pub fn share(&mut self, id: u64) {
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.slices += 1;
        }
    }

    /// A slice was processed to its end; the partition goes with its last.
    pub fn release(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.slices -= 1;
        if hold.slices == 0 {
            self.used -= hold.bytes;
            self.holds.remove(&id);
            self.freed.push(id);
        }
    }

    /// Partitions that went since the last time.
    pub fn take_freed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.freed)
    }
}
