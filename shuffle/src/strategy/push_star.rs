//! Push-based shuffle with merge controllers: map outputs are dropped as soon as they are merged, and merges in flight
//! are bounded.
//!
//! Source: the CloudSort record of 2022 (Exoshuffle-CloudSort, Luan et al., 2023). One controller per group of reducers
//! collects map outputs until there are `factor` of them, then merges them if it has an idle merger. A map counts as
//! *acknowledged* once every controller has taken it, and the driver keeps at most `maps` maps running or not acknowledged.
//! That is the whole back-pressure: a controller without an idle merger stops acknowledging, so maps stop, and what is in
//! memory at any time is at most `maps` + `factor` × (`mergers` + 1) map outputs per group, however large the input.
//!
//! A controller is the driver's bookkeeping, not a process: a few numbers per group that replay makes again.

use std::collections::{HashSet, VecDeque};

use fanfold::{Durability, Result};

use crate::{
    Layout, Report, Shuffled, Tally, Tasks,
    strategy::groups::Groups,
    tasks::{Made, Reducers, at_least_one, tallies},
};

/// Bounds of a push-based shuffle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Maps that run or are not acknowledged: twice as many as compute at once keep every slot busy.
    pub maps: u32,
    /// Map outputs per merge.
    pub factor: u32,
    /// Merges in flight per group.
    pub mergers: u32,
    /// Groups of reducers.
    pub groups: u32,
}

/// Runs a shuffle to its end.
///
/// # Errors
/// `invalid` for a bound of 0; what a task failed with; a [`Violation`](crate::Violation) where a stage lost something.
pub fn run<T: Tasks>(
    tasks: &T,
    splits: Vec<T::Split>,
    layout: Layout,
    bounds: Bounds,
) -> Result<Shuffled<T::Reduced>> {
    let window = at_least_one("the number of maps in flight", bounds.maps)? as usize;
    let mut controllers = Controllers::new(layout, bounds)?;
    let mut left = (0..).zip(splits);
    let mut maps: Vec<(u32, Made)> = Vec::new();
    let mut counted: Vec<Tally> = Vec::new();
    loop {
        let room = window.saturating_sub(maps.len() + controllers.unacknowledged());
        for (mapper, split) in left.by_ref().take(room) {
            let call = tasks.map(mapper, split, layout.columns()).durability(Durability::None);
            maps.push((mapper, Made::submit(call)?));
        }
        if maps.is_empty() {
            // Nothing more comes: what is collected is merged as it is.
            controllers.close();
        }
        controllers.advance(tasks)?;
        let merges = controllers.running();
        if maps.is_empty() && merges.is_empty() {
            break;
        }
        // Positions below `merges.len()` are merges, the others maps.
        let all: Vec<_> =
            merges.iter().chain(maps.iter().map(|(_, map)| map)).map(|made| &made.tally).collect();
        let ready = fanfold::wait(&all, 1, None)?;
        let count = merges.len();
        for position in ready.into_iter().rev() {
            if position < count {
                controllers.merged(&merges[position])?;
            } else {
                let (mapper, map) = maps.remove(position - count);
                let tally = map.tally.get()?;
                if controllers.offer(mapper, map) {
                    counted.push(tally);
                }
            }
        }
    }
    let mut reducers = Reducers::new();
    controllers.groups.reduce(tasks, &mut reducers)?;
    let merges = tallies(&controllers.groups.into_merges())?;
    let (reduced, took) = reducers.finish()?;
    let report = Report::checked("push_star", &counted, &merges, &took, Tally::default())?;
    Ok(Shuffled { reduced, report })
}

/// The controllers of all groups. They are offered the same map outputs in the same order, so what one has taken is a
/// number: its position in that order.
#[derive(Debug)]
struct Controllers {
    groups: Groups,
    /// For each group, how many map outputs it has handed to mergers.
    taken: Vec<usize>,
    /// For each group, the merges that run.
    running: Vec<Vec<Made>>,
    /// Map outputs that some group has not merged yet, in the order of their arrival.
    waiting: VecDeque<Made>,
    /// How many were before them.
    base: usize,
    /// Mappers whose output has arrived. A second output of one, from a map that was submitted twice, is dropped.
    seen: HashSet<u32>,
    factor: usize,
    mergers: usize,
    closed: bool,
}

impl Controllers {
    fn new(layout: Layout, bounds: Bounds) -> Result<Self> {
        let groups = Groups::new(layout, bounds.groups)?;
        let count = groups.list.len();
        Ok(Self {
            groups,
            taken: vec![0; count],
            running: vec![Vec::new(); count],
            waiting: VecDeque::new(),
            base: 0,
            seen: HashSet::new(),
            factor: at_least_one("the number of maps per merge", bounds.factor)? as usize,
            mergers: at_least_one("the number of mergers", bounds.mergers)? as usize,
            closed: false,
        })
    }

    /// Takes a map's output; false if that mapper's was taken before.
    fn offer(&mut self, mapper: u32, map: Made) -> bool {
        let new = self.seen.insert(mapper);
        if new {
            self.waiting.push_back(map);
        }
        new
    }

    /// Map outputs that some controller has no room for: it has a full batch that waits for a merger.
    fn unacknowledged(&self) -> usize {
        let arrived = self.base + self.waiting.len();
        let room = self.taken.iter().map(|taken| taken + self.factor).min().unwrap_or(arrived);
        arrived.saturating_sub(room)
    }

    /// No more outputs come.
    fn close(&mut self) {
        self.closed = true;
    }

    /// Starts every merge that has its inputs and an idle merger, and lets go of what all groups have merged.
    fn advance<T: Tasks>(&mut self, tasks: &T) -> Result<()> {
        let arrived = self.base + self.waiting.len();
        for (group, (taken, running)) in
            self.groups.list.iter_mut().zip(self.taken.iter_mut().zip(&mut self.running))
        {
            while running.len() < self.mergers {
                let batch = self.factor.min(arrived - *taken);
                if batch == 0 || (batch < self.factor && !self.closed) {
                    break;
                }
                let from = *taken - self.base;
                running.push(group.merge(tasks, self.waiting.range(from..from + batch))?);
                *taken += batch;
            }
        }
        let done = self.taken.iter().min().copied().unwrap_or(arrived);
        // The merges that were submitted hold on to their inputs; these were the last other handles.
        self.waiting.drain(..done - self.base);
        self.base = done;
        Ok(())
    }

    fn running(&self) -> Vec<Made> {
        self.running.iter().flatten().cloned().collect()
    }

    /// Notes that a merge has ended, and so one merger is idle.
    ///
    /// # Errors
    /// What it failed with.
    fn merged(&mut self, merge: &Made) -> Result<()> {
        merge.tally.get()?;
        let id = merge.tally.id();
        self.running.iter_mut().for_each(|running| running.retain(|other| other.tally.id() != id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::tests::{Numbers, made};

    fn controllers(mergers: u32) -> Controllers {
        let bounds = Bounds { maps: 4, factor: 3, mergers, groups: 2 };
        Controllers::new(Layout::new(4).unwrap(), bounds).unwrap()
    }

    #[test]
    fn a_mapper_counts_once_and_a_full_controller_does_not_acknowledge() {
        let mut controllers = controllers(1);
        let tasks = Numbers::default();
        for mapper in 0..3 {
            assert!(controllers.offer(mapper, made(mapper)));
            assert!(!controllers.offer(mapper, made(mapper)), "its second output is dropped");
        }
        assert_eq!(controllers.unacknowledged(), 0);
        controllers.advance(&tasks).unwrap();
        let first = controllers.running();
        assert_eq!(first.len(), 2, "one merge in each group");
        assert!(controllers.waiting.is_empty(), "what all groups merge is let go");

        // The mergers are busy: one more batch is collected and acknowledged, the next output is not.
        (3..6).for_each(|mapper| assert!(controllers.offer(mapper, made(mapper))));
        controllers.advance(&tasks).unwrap();
        assert_eq!((controllers.running().len(), controllers.unacknowledged()), (2, 0));
        controllers.offer(6, made(6));
        assert_eq!(controllers.unacknowledged(), 1);

        // One group's merger is idle again, but the other's is not: still not acknowledged by all.
        controllers.merged(&first[0]).unwrap();
        controllers.advance(&tasks).unwrap();
        assert_eq!(controllers.unacknowledged(), 1);
        controllers.merged(&first[1]).unwrap();
        controllers.advance(&tasks).unwrap();
        assert_eq!(controllers.unacknowledged(), 0);
    }
}
