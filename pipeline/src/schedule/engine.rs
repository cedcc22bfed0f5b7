//! The state of a running pipeline, and how it changes when tasks start and end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Input, Launch, Limits, Measured, Mode, Outcome, Shape, Slice, Stop,
    memory::Memory,
    queue::{Portion, Queue, position},
    source::Source,
};

/// Task inputs of a stateful stage at most, in target sizes.
const STATEFUL_TARGETS: u64 = 16;
/// Share of the memory that is left for one partition of each stage, at least: targets are made smaller for it.
const HEADROOM: u64 = 4;

/// A pipeline that runs. See [`super`] for what it promises.
#[derive(Debug)]
pub struct Engine {
    pub(super) shapes: Vec<Shape>,
    pub(super) limits: Limits,
    pub(super) memory: Memory,
    pub(super) source: Source,
    pub(super) stages: Vec<Stage>,
    pub(super) running: BTreeMap<u64, Launch>,
    /// Of each resource, what running tasks occupy.
    pub(super) used: Vec<u32>,
    /// Of mode `staged`: the stage whose turn it is.
    pub(super) turn: usize,
    /// Stages before this one have nothing left to do: a later one has all the rows it may pass on.
    ended: usize,
    /// What left the last stage, and in an ordered pipeline waits for what comes before it.
    pub(super) out: Queue,
    pub(super) launched: u64,
}

/// One stage of it.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub queue: Queue,
    /// Inputs whose output does not fit into a common grant, and what they want.
    pub aside: Vec<(Input, u64)>,
    pub running: u32,
    /// Bytes granted to running tasks.
    pub granted: u64,
    /// What the next task is granted.
    pub grant: u64,
    pub measured: Measured,
    pub totals: Totals,
}

/// What a stage has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Tasks that ended.
    pub tasks: u64,
    /// Bytes of input; for the first stage, bytes made.
    pub bytes_in: u64,
    /// Bytes of partitions made.
    pub bytes_out: u64,
    /// Rows made.
    pub rows: u64,
}

impl Engine {
    /// A pipeline over splits, by number. There must be at least one stage.
    pub fn new(shapes: Vec<Shape>, limits: Limits, splits: impl IntoIterator<Item = u32>) -> Self {
        let target = limits.target_bytes.min(limits.memory_bytes / (HEADROOM * shapes.len() as u64)).max(1);
        let stage = |shape: &Shape| Stage { grant: if shape.sink { 0 } else { target }, ..Stage::default() };
        Self {
            stages: shapes.iter().map(stage).collect(),
            memory: Memory::new(limits.memory_bytes),
            source: Source::new(splits),
            running: BTreeMap::new(),
            used: vec![0; limits.capacity.len()],
            turn: 0,
            ended: 0,
            out: Queue::default(),
            launched: 0,
            limits: Limits { target_bytes: target, ..limits },
            shapes,
        }
    }

    /// The next task to start, if any can be.
    pub fn launch(&mut self) -> Option<Launch> {
        let pick = self.choose()?;
        let (input, grant) = match pick.aside {
            Some(n) => self.stages[pick.stage].aside.remove(n),
            None => (self.take(pick.stage)?, self.stages[pick.stage].grant),
        };
        if !self.memory.grant(grant) {
            return None; // Never: `choose` has looked.
        }
        let id = self.launched;
        self.launched += 1;
        let key = match &input {
            Input::Split { split, row, skip } => vec![u64::from(*split), *row, *skip],
            Input::Slices(slices) if self.limits.keyed => slices.first().map(position).unwrap_or_default(),
            Input::Slices(_) => vec![id],
        };
        let stage = &mut self.stages[pick.stage];
        stage.running += 1;
        stage.granted += grant;
        self.used.iter_mut().zip(&self.shapes[pick.stage].needs).for_each(|(used, needs)| *used += needs);
        let whole = self.limits.mode == Mode::NoRepartition && !self.shapes[pick.stage].sink;
        let launch = Launch { id, stage: pick.stage, input, grant, whole, key };
        self.running.insert(id, launch.clone());
        Some(launch)
    }

    fn take(&mut self, stage: usize) -> Option<Input> {
        if stage == 0 {
            return self.source.take();
        }
        let portion = self.portion(stage);
        let (slices, cut) = self.stages[stage].queue.take(portion);
        if let (true, Some(last)) = (cut, slices.last()) {
            self.memory.share(last.hold);
        }
        Some(Input::Slices(slices))
    }

    /// A stage whose tasks first load something gets its slots' shares of all that waits, so that it loads less often
    /// the more there is to do.
    fn portion(&self, stage: usize) -> Portion {
        let (target, shape) = (self.limits.target_bytes, &self.shapes[stage]);
        let share = self.stages[stage].queue.bytes() / u64::from(self.slots(stage));
        let bytes = match shape.stateful {
            true => share.clamp(target, STATEFUL_TARGETS * target),
            false => target,
        };
        let single = self.limits.keyed || self.limits.mode == Mode::NoRepartition;
        Portion { bytes, batch: shape.batch, single }
    }

    /// A task has ended; one that does not run is ignored. Returns the number of the partition that it made, if that is
    /// wanted: it stays until [`Engine::take_freed`] names it.
    pub fn done(&mut self, id: u64, outcome: &Outcome) -> Option<u64> {
        let launch = self.running.remove(&id)?;
        for stage in &mut self.stages {
            stage.measured.event(stage.running);
        }
        let needs = &self.shapes[launch.stage].needs;
        self.used.iter_mut().zip(needs).for_each(|(used, needs)| *used -= needs);
        let stage = &mut self.stages[launch.stage];
        stage.running -= 1;
        stage.totals.tasks += 1;
        stage.granted -= launch.grant;
        self.memory.settle(launch.grant);
        if launch.stage < self.ended {
            self.drop_input(launch.input);
            return None;
        }
        if outcome.wants > 0 {
            stage.aside.push((launch.input, outcome.wants));
            self.raise_grant(launch.stage, launch.whole, outcome.wants);
            return None;
        }
        let made = self.pass_on(&launch, outcome);
        let taken = match launch.input {
            input if launch.stage < self.ended => {
                self.drop_input(input);
                0
            }
            Input::Split { split, .. } => {
                match outcome.stop {
                    Some(Stop { row, skip, .. }) => self.source.stop(split, row, skip),
                    None => self.source.closed(split),
                }
                outcome.bytes
            }
            Input::Slices(slices) => self.put_back(launch.stage, slices, outcome.stop),
        };
        let stage = &mut self.stages[launch.stage];
        stage.measured.ended(taken, outcome.bytes);
        stage.totals.bytes_in += taken;
        stage.totals.bytes_out += outcome.bytes;
        made
    }

    /// Batches that do not fit are all alike, as a row that does not fit is not: the stage's next tasks are granted as much,
    /// if that leaves half of the memory, and if a grant for each stage is free right now, which `choose` counts on. Of
    /// keyed pipelines grants never change: what a task makes follows from them.
    fn raise_grant(&mut self, stage: usize, whole: bool, wants: u64) {
        let others: u64 = self.stages.iter().map(|stage| stage.grant).sum::<u64>() - self.stages[stage].grant;
        let all = others.saturating_add(wants);
        let fits = all <= self.memory.free() && all <= self.memory.limit() / 2;
        if whole || (fits && self.shapes[stage].batch > 1 && !self.limits.keyed) {
            self.stages[stage].grant = self.stages[stage].grant.max(wants);
        }
    }

    /// What a task made goes to the next stage.
    fn pass_on(&mut self, launch: &Launch, outcome: &Outcome) -> Option<u64> {
        let (shape, stage) = (&self.shapes[launch.stage], &mut self.stages[launch.stage]);
        let left = shape.rows_max.map_or(u64::MAX, |max| max - stage.totals.rows);
        let rows = outcome.rows.min(left);
        stage.totals.rows += rows;
        let made = (rows > 0 && !shape.sink).then(|| self.memory.hold(outcome.bytes));
        if let Some(hold) = made {
            let slice = Slice { hold, key: launch.key.clone(), rows: 0..rows, skip: 0, bytes: outcome.bytes };
            let next = self.stages.get_mut(launch.stage + 1).map_or(&mut self.out, |next| &mut next.queue);
            next.push(slice, self.limits.ordered);
            if self.limits.keyed {
                self.source.opened(split(&launch.key));
            }
        }
        if rows == left {
            self.end_before(launch.stage + 1);
        }
        made
    }

    /// What a task did not get to goes back to where it was. Returns the bytes of what it did.
    fn put_back(&mut self, stage: usize, slices: Vec<Slice>, stop: Option<Stop>) -> u64 {
        let at = stop.map_or(slices.len(), |stop| stop.slice as usize);
        let mut taken = 0;
        for (n, mut slice) in slices.into_iter().enumerate().rev() {
            if let Some(stop) = stop.filter(|_| n == at) {
                let all = slice.row_count();
                let row = stop.row.clamp(slice.rows.start, slice.rows.end);
                let bytes = (u128::from(slice.bytes) * u128::from(slice.rows.end - row)
                    / u128::from(all.max(1))) as u64;
                taken += slice.bytes - bytes;
                slice = Slice { rows: row..slice.rows.end, skip: stop.skip, bytes, ..slice };
            }
            if n >= at {
                self.stages[stage].queue.put_back(slice, self.limits.ordered);
            } else {
                taken += slice.bytes;
                self.close(&slice);
            }
        }
        taken
    }

    /// A slice was processed to its end.
    pub(super) fn close(&mut self, slice: &Slice) {
        self.memory.release(slice.hold);
        if self.limits.keyed {
            self.source.closed(split(&slice.key));
        }
    }

    /// Input that nobody will look at.
    fn drop_input(&mut self, input: Input) {
        if let Input::Slices(slices) = input {
            slices.iter().for_each(|slice| self.memory.release(slice.hold));
        }
    }

    /// The stages before `stage` have nothing left to do.
    fn end_before(&mut self, stage: usize) {
        self.ended = self.ended.max(stage);
        self.source.end();
        for n in 0..self.ended {
            let mut left = vec![Input::Slices(self.stages[n].queue.clear())];
            left.extend(self.stages[n].aside.drain(..).map(|(input, _)| input));
            left.into_iter().for_each(|input| self.drop_input(input));
        }
    }
}

/// The split that a key begins with.
fn split(key: &[u64]) -> u32 {
    key.first().map_or(0, |&split| split as u32)
}
