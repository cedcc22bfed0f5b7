//! The executors: what each offers, what is free, and who waits there to go on.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use fanfold_protocol::{
    AttemptId, ExecutorId, TaskId, custom::Custom, limit::CUSTOM_RESOURCES_MAX, message::Offer,
};

use crate::{
    slab::{ClassIx, ExecutorIx, Slab, TaskIx},
    timer::TimerKey,
};

/// An amount of what executors have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Resources {
    /// Slots, in thousandths of a cpu.
    pub cpu_millis: u32,
    /// Bytes.
    pub memory: u64,
    /// GPUs.
    pub gpu: u32,
    /// Custom resources, in the order in which the scheduler first heard their names.
    pub custom: [u32; CUSTOM_RESOURCES_MAX],
}

impl Resources {
    /// Whether this fits into `free`.
    pub fn fits(&self, free: &Self) -> bool {
        self.cpu_millis <= free.cpu_millis
            && self.memory <= free.memory
            && self.gpu <= free.gpu
            && self.custom.iter().zip(&free.custom).all(|(needed, free)| needed <= free)
    }

    fn add(&mut self, other: &Self) {
        self.cpu_millis += other.cpu_millis;
        self.memory += other.memory;
        self.gpu += other.gpu;
        self.custom.iter_mut().zip(&other.custom).for_each(|(mine, other)| *mine += other);
    }

    fn remove(&mut self, other: &Self) {
        self.cpu_millis -= other.cpu_millis;
        self.memory -= other.memory;
        self.gpu -= other.gpu;
        self.custom.iter_mut().zip(&other.custom).for_each(|(mine, other)| *mine -= other);
    }

    /// What is left of this without `other`; nothing of what `other` has more of.
    pub(crate) fn without(&self, other: &Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            memory: self.memory.saturating_sub(other.memory),
            gpu: self.gpu.saturating_sub(other.gpu),
            custom: std::array::from_fn(|n| self.custom[n].saturating_sub(other.custom[n])),
        }
    }
}

/// The names of custom resources, by their places in [`Resources::custom`].
#[derive(Debug, Default)]
pub(crate) struct Kinds(Vec<String>);

impl Kinds {
    /// The amounts in their places. A name that is heard for the first time gets the next place; where there is none left,
    /// that name.
    pub fn learn(&mut self, custom: &Custom) -> Result<[u32; CUSTOM_RESOURCES_MAX], String> {
        for name in custom.keys().filter(|name| !self.0.contains(name)).cloned().collect::<Vec<_>>() {
            if self.0.len() == CUSTOM_RESOURCES_MAX {
                return Err(name);
            }
            self.0.push(name);
        }
        Ok(self.places(custom))
    }

    /// The amounts in their places; names that were never heard have none.
    pub fn places(&self, custom: &Custom) -> [u32; CUSTOM_RESOURCES_MAX] {
        std::array::from_fn(|n| self.0.get(n).and_then(|name| custom.get(name)).copied().unwrap_or_default())
    }

    /// The name at a place.
    pub fn name(&self, place: usize) -> &str {
        self.0.get(place).map_or("", String::as_str)
    }
}

/// An executor as queries show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutorView {
    /// Which.
    pub id: ExecutorId,
    /// What it offers.
    pub total: Resources,
    /// What attempts occupy. More than `total` after it has offered less.
    pub used: Resources,
    /// What is free.
    pub free: Resources,
    /// Attempts on it, those being stopped included.
    pub attempts: usize,
    /// Whether it takes no new attempts because it will leave.
    pub leaving: bool,
}

#[derive(Debug)]
pub(crate) struct Executor {
    pub id: ExecutorId,
    /// What it offers; it may change at any time, also to less than is used.
    pub total: Resources,
    pub used: Resources,
    /// What attempts keep that have given their cpu back: draining does not free these.
    pub blocked: Resources,
    pub attempts: usize,
    /// Attempts that may go on once they get a cpu, with the task's ordinal and the attempt's number.
    pub resumes: VecDeque<(TaskIx, AttemptId)>,
    /// Attempts that were told to stop and have not answered, with what they occupy.
    pub stopping: BTreeMap<AttemptId, Resources>,
    /// Kept free for a large task of this class, until the timer.
    pub reservation: Option<(ClassIx, TimerKey)>,
    /// Tasks that wait for room and are meant to run here; see [`crate::ahead`]. Some may have started elsewhere.
    pub meant: VecDeque<(TaskIx, TaskId)>,
    /// It finishes what runs and takes nothing new.
    pub leaving: bool,
}

impl Executor {
    /// What may be given to new attempts.
    pub fn free(&self) -> Resources {
        self.total.without(&self.used)
    }

    /// Whether it could run something of this size if nothing else were there.
    pub fn could_fit(&self, needs: &Resources) -> bool {
        !self.leaving && needs.fits(&self.total)
    }

    /// Whether an attempt that is here may take its cpu back. One that needs more than is offered by now gets it when
    /// it is alone: it would wait for ever otherwise.
    pub fn may_resume(&self, cpu_millis: u32) -> bool {
        cpu_millis <= self.free().cpu_millis || self.used.cpu_millis == 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub executors: Slab<ExecutorIx, Executor>,
    index: HashMap<ExecutorId, ExecutorIx>,
    /// Executors with somebody in `resumes`.
    pub resuming: BTreeSet<ExecutorIx>,
    /// Whether one has ever joined.
    pub has_had_any: bool,
    /// Changes whenever something may fit that did not before.
    pub version: u64,
    pub kinds: Kinds,
}

impl Pool {
    pub fn find(&self, id: ExecutorId) -> Option<ExecutorIx> {
        self.index.get(&id).copied()
    }

    /// What an executor offers. A custom resource of which there is no place left counts as not offered: no task can ask
    /// for it either.
    pub fn offered(&mut self, offer: &Offer) -> Resources {
        let custom = self.kinds.learn(&offer.custom).unwrap_or_else(|_| self.kinds.places(&offer.custom));
        Resources { cpu_millis: offer.cpu_millis, memory: offer.memory, gpu: offer.gpu, custom }
    }

    pub fn join(&mut self, offer: &Offer) -> ExecutorIx {
        let total = self.offered(offer);
        let ix = self.executors.insert(Executor {
            id: offer.executor,
            total,
            used: Resources::default(),
            blocked: Resources::default(),
            attempts: 0,
            resumes: VecDeque::new(),
            stopping: BTreeMap::new(),
            reservation: None,
            meant: VecDeque::new(),
            leaving: false,
        });
        self.index.insert(offer.executor, ix);
        self.has_had_any = true;
        self.version += 1;
        ix
    }

    pub fn leave(&mut self, id: ExecutorId) -> Option<(ExecutorIx, Executor)> {
        let ix = self.index.remove(&id)?;
        self.resuming.remove(&ix);
        self.version += 1;
        Some((ix, self.executors.remove(ix)?))
    }

    /// Charges an attempt that starts.
    pub fn start(&mut self, ix: ExecutorIx, charge: &Resources) {
        let executor = &mut self.executors[ix];
        executor.used.add(charge);
        executor.attempts += 1;
    }

    /// Gives back what an attempt occupied when it ended; `held`: it had its cpu.
    pub fn end(&mut self, ix: ExecutorIx, charge: &Resources, held: bool) {
        let charge = if held { *charge } else { self.unblock(ix, charge) };
        let executor = &mut self.executors[ix];
        executor.used.remove(&charge);
        executor.attempts -= 1;
        self.version += 1;
    }

    /// Gives back the cpu of an attempt that blocks.
    pub fn block(&mut self, ix: ExecutorIx, charge: &Resources) {
        let executor = &mut self.executors[ix];
        executor.used.cpu_millis -= charge.cpu_millis;
        executor.blocked.add(&Resources { cpu_millis: 0, ..*charge });
        self.version += 1;
    }

    /// Charges the cpu again of an attempt that goes on.
    pub fn resume(&mut self, ix: ExecutorIx, charge: &Resources) {
        self.unblock(ix, charge);
        self.executors[ix].used.cpu_millis += charge.cpu_millis;
    }

    /// What a blocked attempt occupies, no longer counted as blocked.
    fn unblock(&mut self, ix: ExecutorIx, charge: &Resources) -> Resources {
        let kept = Resources { cpu_millis: 0, ..*charge };
        self.executors[ix].blocked.remove(&kept);
        kept
    }

    /// Leaves an attempt's charge in place until the executor says that it has stopped.
    pub fn stop(&mut self, ix: ExecutorIx, attempt: AttemptId, charge: &Resources, held: bool) {
        let charge = if held { *charge } else { self.unblock(ix, charge) };
        self.executors[ix].stopping.insert(attempt, charge);
    }

    /// An attempt that was told to stop has. Whether there was one.
    pub fn stopped(&mut self, id: ExecutorId, attempt: AttemptId) -> bool {
        let Some(ix) = self.find(id) else { return false };
        let executor = &mut self.executors[ix];
        let Some(charge) = executor.stopping.remove(&attempt) else { return false };
        executor.used.remove(&charge);
        executor.attempts -= 1;
        self.version += 1;
        true
    }

    pub fn is_stopping(&self, attempt: AttemptId) -> bool {
        self.executors.iter().any(|(_, executor)| executor.stopping.contains_key(&attempt))
    }

    pub fn views(&self) -> impl Iterator<Item = ExecutorView> + '_ {
        self.executors.iter().map(|(_, executor)| ExecutorView {
            id: executor.id,
            total: executor.total,
            used: executor.used,
            free: executor.free(),
            attempts: executor.attempts,
            leaving: executor.leaving,
        })
    }
}
