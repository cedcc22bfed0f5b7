//! Which stage starts the next task.
//!
//! A stage can start one if it has input, its resources are free, and there is memory. Of the memory, one grant of every
//! later stage must stay free: what is made can then always be processed to the end of the pipeline, so nothing can wait
//! for ever (the banker's rule for resources that are taken in one order). An ordered pipeline holds back what comes too
//! early; there only the first rows of all may go that far, and others leave half of the memory free for them, so that even
//! a row much larger than a grant gets through.

use super::{Engine, Input, Mode, queue::position};

/// What to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pick {
    pub stage: usize,
    /// Which of the inputs that were set aside, instead of the next ones.
    pub aside: Option<usize>,
}

impl Engine {
    /// The next task to start, if there is one.
    pub(super) fn choose(&mut self) -> Option<Pick> {
        if let Some(pick) = self.aside() {
            return Some(pick);
        }
        let stage = match self.limits.mode {
            Mode::Full | Mode::NoRepartition => self.adaptive(),
            Mode::Static => {
                (0..self.stages.len()).rev().find(|&n| self.in_static_share(n) && self.can_start(n))
            }
            Mode::NoAdaptive => (0..self.stages.len()).find(|&n| self.can_start(n)),
            Mode::Staged => self.in_turn(),
        };
        stage.map(|stage| Pick { stage, aside: None })
    }

    /// Inputs whose output is larger than a grant go first, as soon as there is room for it; until then the source waits,
    /// so that there will be. When nothing else is left, they need not leave room for later stages.
    fn aside(&self) -> Option<Pick> {
        let idle = self.running.is_empty() && !(0..self.stages.len()).any(|n| self.can_start(n));
        (0..self.stages.len()).rev().find_map(|stage| {
            let room = |wants: u64| match idle {
                true => wants <= self.memory.free(),
                false => self.has_room(stage, wants, false),
            };
            let fits = |(_, wants): &(Input, u64)| room(*wants) && self.has_resources(stage);
            let n = self.stages[stage].aside.iter().position(fits)?;
            Some(Pick { stage, aside: Some(n) })
        })
    }

    /// The stage with the least output that waits; the later one of two. The source is one of them while less waits than
    /// its budget, or where there is nothing else to wait for.
    fn adaptive(&self) -> Option<usize> {
        let able: Vec<usize> = (0..self.stages.len()).filter(|&n| self.can_start(n)).collect();
        let idle = self.running.is_empty() && able == [0];
        let from = if idle || self.waiting_bytes() < self.budget() { 0 } else { 1 };
        able.into_iter().filter(|&n| n >= from).rev().min_by_key(|&n| self.output_bytes(n))
    }

    /// Bytes that may wait between the stages before the source waits, too: so many inputs for each stage as it has tasks
    /// when all stages keep up with each other, and as many again. More would fill the memory and make nothing faster.
    pub(super) fn budget(&self) -> u64 {
        let measured: Vec<_> = self.stages.iter().map(|stage| stage.measured).collect();
        let needs: Vec<&[u32]> = self.shapes.iter().map(|shape| &*shape.needs).collect();
        let Some(tasks) = super::concurrency(&measured, &needs, &self.limits.capacity) else {
            return u64::MAX;
        };
        let tasks: f64 = tasks.iter().skip(1).map(|tasks| 2.0 * tasks.ceil()).sum();
        let largest = self.stages.iter().map(|stage| stage.grant).max().unwrap_or(0);
        tasks as u64 * largest
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.queue.bytes()).sum()
    }

    /// Mode `staged`: the stage whose turn it is, or the next one that has something to do once that has nothing left.
    fn in_turn(&mut self) -> Option<usize> {
        for _ in 0..=self.stages.len() {
            if self.can_start(self.turn) {
                return Some(self.turn);
            }
            if !self.running.is_empty() {
                return None;
            }
            self.turn = (self.turn + 1) % self.stages.len();
        }
        None
    }

    fn can_start(&self, n: usize) -> bool {
        let stage = &self.stages[n];
        let input = match n {
            0 => !self.source.is_empty() && self.stages.iter().all(|stage| stage.aside.is_empty()),
            _ => !stage.queue.is_empty() && (self.has_batch(n) || !self.more_comes(n)),
        };
        input && self.has_resources(n) && self.has_room(n, stage.grant, self.is_first(n))
    }

    /// Whether the input makes a batch, or would not get more.
    pub(super) fn has_batch(&self, n: usize) -> bool {
        let (queue, batch) = (&self.stages[n].queue, self.shapes[n].batch);
        self.limits.keyed || queue.rows() >= batch || queue.is_begun()
    }

    /// Whether more input may come. Where nothing runs nobody waits for it.
    pub(super) fn more_comes(&self, n: usize) -> bool {
        let busy = |(n, stage): (usize, &super::engine::Stage)| {
            let input = if n == 0 { !self.source.is_empty() } else { !stage.queue.is_empty() };
            stage.running > 0 || input
        };
        !self.running.is_empty() && self.stages[..n].iter().enumerate().any(busy)
    }

    fn has_resources(&self, n: usize) -> bool {
        self.lacking(n).is_none()
    }

    /// See the module.
    pub(super) fn has_room(&self, n: usize, grant: u64, first: bool) -> bool {
        let chain: u64 = self.stages[n + 1..].iter().map(|stage| stage.grant).sum();
        let stays = match self.limits.mode {
            _ if self.limits.ordered && !first => self.memory.limit() / 2,
            // How large outputs are is found out while there is room for larger ones.
            _ if n == 0 && self.stages.iter().any(|stage| stage.totals.rows == 0) => self.memory.limit() / 2,
            // A stage that has its turn wants all its slots, so the source does not fill the memory before that.
            Mode::Staged if n == 0 => self.slots_bytes_max(),
            _ => 0,
        };
        grant.saturating_add(chain.max(stays)) <= self.memory.free()
    }

    /// Grants for all slots of the stage for which these are the most; at most half of the memory.
    fn slots_bytes_max(&self) -> u64 {
        let all = |n: usize| u64::from(self.slots(n)) * self.stages[n].grant;
        (1..self.stages.len()).map(all).max().unwrap_or(0).min(self.memory.limit() / 2)
    }

    /// Whether the stage's next input is the first of all rows that are under way.
    pub(super) fn is_first(&self, n: usize) -> bool {
        if !self.limits.ordered {
            return false;
        }
        let next = match n {
            0 => self.source.first_key(),
            _ => self.stages[n].queue.first().map(position),
        };
        next.is_some() && next == self.first_open()
    }

    /// Bytes that the stage made and the next one has not begun, and those it is making.
    fn output_bytes(&self, n: usize) -> u64 {
        let waiting = self.stages.get(n + 1).map_or(0, |next| next.queue.bytes());
        waiting + self.stages[n].granted
    }

    /// Whether the stage's output has room in an equal share of the memory. One task always may.
    fn in_memory_share(&self, n: usize) -> bool {
        let makers = self.shapes.iter().filter(|shape| !shape.sink).count().max(1) as u64;
        let (share, output) = (self.memory.limit() / makers, self.output_bytes(n));
        output == 0 || output + self.stages[n].grant <= share
    }

    /// Whether the stage has a slot of its own left, and room in its share of the memory.
    fn in_static_share(&self, n: usize) -> bool {
        let main = self.main_resource(n);
        let sharers =
            (0..self.stages.len()).filter(|&other| self.main_resource(other) == main).count() as u32;
        self.stages[n].running < (self.slots(n) / sharers).max(1) && self.in_memory_share(n)
    }

    /// Tasks of the stage that could run if no others did.
    pub(super) fn slots(&self, n: usize) -> u32 {
        let main = self.main_resource(n);
        (self.limits.capacity[main] / self.shapes[n].needs[main].max(1)).max(1)
    }

    /// The resource of which a task of the stage takes the largest share.
    fn main_resource(&self, n: usize) -> usize {
        let share =
            |r: &usize| f64::from(self.shapes[n].needs[*r]) / f64::from(self.limits.capacity[*r].max(1));
        (0..self.limits.capacity.len()).max_by(|a, b| share(a).total_cmp(&share(b))).unwrap_or(0)
    }
}
