//! Choosing a strategy from sizes, memory, and what reading from a disk or a store costs, with a reason; and running what
//! was chosen.

use std::fmt;

use fanfold::{Durability, Result};
use serde::{Deserialize, Serialize};

use crate::{
    Layout, Shuffled, Tasks,
    strategy::{merge, push, push_star, simple},
};

/// Dollars per request of an S3 bucket: the first part of a write, and a ranged read.
const PUT_DOLLARS: f64 = 5e-6;
const GET_DOLLARS: f64 = 0.4e-6;
/// Map outputs may fill this share of the memory for partitions; the rest is for what is being read and written.
const FILL: f64 = 0.8;
/// A read from a disk that takes hardly longer than a shorter one.
const DISK_READ_BYTES: u64 = 128 << 10;
/// Merge outputs that one reducer reads, about: few enough that all of them are read in order at once.
const RUNS: u32 = 32;
/// Maps per merge at most: their blocks and one output are what a merge holds on to.
const FACTOR_MAX: u32 = 16;

/// The strategies that sort: whichever runs, the result is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// [`simple`].
    Simple,
    /// [`merge`](mod@merge).
    Merge,
    /// [`push`].
    Push,
    /// [`push_star`].
    PushStar,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Merge => "merge",
            Self::Push => "push",
            Self::PushStar => "push_star",
        })
    }
}

/// Where partitions are that memory does not hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spill {
    /// On the executors' disks: what counts is how much is read at once.
    #[default]
    Disk,
    /// In the object store: every request has its price.
    Store,
}

/// What a choice is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Bytes that the maps write.
    pub bytes: u64,
    /// Map tasks.
    pub maps: u32,
    /// Reduce tasks.
    pub reducers: u32,
    /// Bytes of partitions that all executors together hold in memory.
    pub memory_bytes: u64,
    /// Where the rest is.
    pub spill: Spill,
    /// Tasks that compute at once, over all executors.
    pub slots: u32,
}

impl Facts {
    /// Bytes that a reducer reads of one map's output, about.
    fn block_bytes(&self) -> u64 {
        self.bytes / (u64::from(self.maps) * u64::from(self.reducers)).max(1)
    }

    /// Bytes that map outputs may take in memory.
    fn room(&self) -> u64 {
        (self.memory_bytes as f64 * FILL) as u64
    }
}

/// A strategy, its numbers, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Which.
    pub strategy: Strategy,
    /// Maps per merge; per round with `push`.
    pub factor: u32,
    /// Groups of reducers.
    pub groups: u32,
    /// Maps in flight with `push_star`.
    pub maps_in_flight: u32,
    /// Why, as a sentence for people.
    pub reason: String,
}

impl Plan {
    /// The numbers for a strategy that somebody else chose.
    pub fn of(strategy: Strategy, facts: &Facts) -> Self {
        let slots = facts.slots.max(1);
        let maps_in_flight = 2 * slots;
        // So many map outputs fit in memory; with `push_star` there are those in flight, a batch that is being merged and
        // a batch that waits. More than fit would be written to disk and read again for nothing.
        let map_bytes = (facts.bytes / u64::from(facts.maps.max(1))).max(1);
        let fit = facts.room() / map_bytes;
        let batch = (fit.saturating_sub(u64::from(maps_in_flight)) / 2).min(u64::from(FACTOR_MAX)) as u32;
        Self {
            strategy,
            factor: facts.maps.div_ceil(RUNS).min(batch).clamp(2, FACTOR_MAX),
            groups: slots.min(facts.reducers.max(1)),
            maps_in_flight,
            reason: "it was asked for".into(),
        }
    }

    /// Chooses: `simple` where the map outputs fit in memory, or where the disk reads them as they are; otherwise the
    /// strategy whose traffic with the store costs least.
    pub fn auto(facts: &Facts) -> Self {
        let room = facts.room();
        let size = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let (bytes, memory) = (size(facts.bytes), size(room));
        if facts.bytes <= room {
            let reason = format!(
                "{bytes} of map outputs fit into the {memory} that partitions may take, so nothing needs merging"
            );
            return Self { reason, ..Self::of(Strategy::Simple, facts) };
        }
        if facts.spill == Spill::Disk {
            return Self::from_disk(facts, &format!("{bytes} of map outputs do not fit into {memory}"));
        }
        let simple = Self::of(Strategy::Simple, facts).requests(facts);
        let star = Self::of(Strategy::PushStar, facts);
        let requests = star.requests(facts);
        let chosen =
            if requests.dollars() <= simple.dollars() { star } else { Self::of(Strategy::Simple, facts) };
        let reason = format!(
            "{bytes} of map outputs do not fit into {memory}; merged before they leave memory they cost about {requests}, \
             unmerged about {simple}"
        );
        Self { reason, ..chosen }
    }

    fn from_disk(facts: &Facts, why: &str) -> Self {
        let block = facts.block_bytes();
        let (strategy, what) = match block >= DISK_READ_BYTES {
            true => (Strategy::Simple, "long enough to be read from a disk one by one"),
            false => (Strategy::PushStar, "too short for a disk, and merging makes them longer"),
        };
        let reason = format!("{why}, and a reducer's share of one is {} KB: {what}", block / 1000);
        Self { reason, ..Self::of(strategy, facts) }
    }

    /// Requests to the object store, for the share of the data that memory does not hold.
    pub fn requests(&self, facts: &Facts) -> Requests {
        let beyond = (1.0 - facts.room() as f64 / facts.bytes.max(1) as f64).max(0.0);
        let (maps, reducers) = (f64::from(facts.maps), f64::from(facts.reducers));
        let batches = f64::from(facts.maps.div_ceil(self.factor.max(1)));
        let (puts, gets) = match self.strategy {
            Strategy::Simple => (maps * beyond, maps * reducers * beyond),
            Strategy::Merge => (batches * beyond, batches * reducers * beyond),
            // Its map outputs all go to the store.
            Strategy::Push => (maps + batches * f64::from(self.groups) * beyond, batches * reducers * beyond),
            Strategy::PushStar => (batches * f64::from(self.groups) * beyond, batches * reducers * beyond),
        };
        Requests { puts, gets }
    }

    /// Runs a shuffle this way.
    ///
    /// # Errors
    /// Those of the strategy.
    pub fn run<T: Tasks>(
        &self,
        tasks: &T,
        splits: Vec<T::Split>,
        layout: Layout,
    ) -> Result<Shuffled<T::Reduced>> {
        let Self { factor, groups, maps_in_flight: maps, .. } = *self;
        match self.strategy {
            Strategy::Simple => simple::run(tasks, splits, layout),
            Strategy::Merge => merge::run(tasks, splits, layout, factor),
            Strategy::Push => {
                let rounds = push::Rounds { maps: factor, groups, durability: Durability::Lazy };
                push::run(tasks, splits, layout, rounds)
            }
            Strategy::PushStar => {
                let bounds = push_star::Bounds { maps, factor, mergers: 1, groups };
                push_star::run(tasks, splits, layout, bounds)
            }
        }
    }
}

/// Requests to an object store, estimated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Requests {
    /// Objects written.
    pub puts: f64,
    /// Ranges read.
    pub gets: f64,
}

impl Requests {
    /// What they cost on S3.
    pub fn dollars(&self) -> f64 {
        self.puts * PUT_DOLLARS + self.gets * GET_DOLLARS
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} writes and {:.0} reads (${:.4})", self.puts, self.gets, self.dollars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_simple_and_what_does_not_is_merged_and_the_reason_says_so() {
        let facts = Facts {
            bytes: 1 << 30,
            maps: 200,
            reducers: 200,
            memory_bytes: 2 << 30,
            spill: Spill::Store,
            slots: 4,
        };
        let plan = Plan::auto(&facts);
        assert_eq!((plan.strategy, plan.requests(&facts).puts), (Strategy::Simple, 0.0));
        assert!(plan.reason.contains("1.1 GB of map outputs fit into the 1.7 GB"), "{}", plan.reason);

        let beyond = Facts { memory_bytes: 512 << 20, ..facts };
        let plan = Plan::auto(&beyond);
        assert_eq!(plan.strategy, Strategy::PushStar);
        assert!(plan.reason.contains("do not fit into 0.4 GB"), "{}", plan.reason);
        // On a disk it is the length of the reads that counts.
        let disk = Facts { spill: Spill::Disk, ..beyond };
        let plan = Plan::auto(&disk);
        assert_eq!(plan.strategy, Strategy::PushStar);
        assert!(plan.reason.contains("share of one is 26 KB"), "{}", plan.reason);
        let plan = Plan::auto(&Facts { reducers: 20, ..disk });
        assert_eq!(plan.strategy, Strategy::Simple, "{}", plan.reason);
        // The order that the request table of the documentation shows.
        let dollars = |strategy| Plan::of(strategy, &beyond).requests(&beyond).dollars();
        assert!(dollars(Strategy::PushStar) <= dollars(Strategy::Push));
        assert!(dollars(Strategy::Push) < dollars(Strategy::Simple));
    }
}
