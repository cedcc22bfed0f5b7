//! What is left to do, what has left the pipeline, and what it took.

use super::{
    Engine, Input, Slice,
    engine::{Stage, Totals},
    queue::{Portion, position},
};

/// Why a pipeline cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// The stage.
    pub stage: String,
    /// Bytes that one output of it takes, with what must stay meanwhile.
    pub wants_bytes: u64,
    /// Bytes there are.
    pub memory_bytes: u64,
}

impl Engine {
    /// The next rows that leave the pipeline. Give them back with [`Engine::release`].
    pub fn take_out(&mut self) -> Option<Slice> {
        let first = position(self.out.first()?);
        if self.limits.ordered && self.first_open().is_some_and(|open| open < first) {
            return None;
        }
        let portion = Portion { bytes: 0, batch: 1, single: true };
        self.out.take(portion).0.pop()
    }

    /// Rows that left the pipeline are no longer needed.
    pub fn release(&mut self, slice: &Slice) {
        self.close(slice);
    }

    /// Of an ordered pipeline: where the first of what is under way begins.
    pub(super) fn first_open(&self) -> Option<Vec<u64>> {
        let key = |input: &Input| match input {
            Input::Split { split, row, skip } => Some(vec![u64::from(*split), *row, *skip]),
            Input::Slices(slices) => slices.first().map(position),
        };
        let waiting = self.stages.iter().filter_map(|stage| stage.queue.first().map(position));
        let aside = self.stages.iter().flat_map(|stage| &stage.aside).filter_map(|(input, _)| key(input));
        let running = self.running.values().filter_map(|launch| key(&launch.input));
        waiting.chain(aside).chain(running).chain(self.source.first_key()).min()
    }

    /// Whether all rows have left.
    pub fn is_finished(&self) -> bool {
        let idle = |stage: &Stage| stage.queue.is_empty() && stage.aside.is_empty();
        self.running.is_empty()
            && self.source.is_empty()
            && self.stages.iter().all(idle)
            && self.out.is_empty()
    }

    /// Why nothing runs and nothing can be started, if that is so.
    pub fn stuck(&self) -> Option<Stuck> {
        if !self.running.is_empty() || self.is_finished() {
            return None;
        }
        let held = self.memory.limit() - self.memory.free();
        let wants = |(n, stage): (usize, &Stage)| {
            let first = stage.aside.first().map(|(_, wants)| *wants);
            let waits = first.or_else(|| (!stage.queue.is_empty()).then_some(stage.grant))?;
            Some((n, waits))
        };
        let (n, wants) =
            self.stages.iter().enumerate().rev().find_map(wants).unwrap_or((0, self.stages[0].grant));
        let (stage, memory_bytes) = (self.shapes[n].name.clone(), self.memory.limit());
        Some(Stuck { stage, wants_bytes: held + wants, memory_bytes })
    }

    /// Partitions whose last row was taken, since the last time.
    pub fn take_freed(&mut self) -> Vec<u64> {
        self.memory.take_freed()
    }

    /// Splits all of whose rows have left the pipeline, since the last time. Only keyed pipelines know.
    pub fn take_done_splits(&mut self) -> Vec<u32> {
        self.source.take_done()
    }

    /// The most bytes there were at any time, granted ones included.
    pub fn peak_bytes(&self) -> u64 {
        self.memory.peak()
    }

    /// What each stage has done.
    pub fn totals(&self) -> Vec<Totals> {
        self.stages.iter().map(|stage| stage.totals).collect()
    }

    /// Tasks that were started.
    pub fn launched(&self) -> u64 {
        self.launched
    }
}
