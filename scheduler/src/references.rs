//! Reference counts: what keeps partitions and task records.
//!
//! A partition's *bytes* stay while it is referred to by
//! - a handle: each output of a call is held by the driver that called it, and each `put` by its task, until dropped
//!   or until the driver has finished for good. Handles belong to the driver and not to its attempt: a replay of a
//!   lost attempt wants them again;
//! - an argument of a task that has yet to run (to the end);
//! - a live output that names it;
//! - the job's end, for the root's outputs.
//!
//! A task's *record* (its call) stays while one of its outputs is alive, or while the record of a task stays that has
//! one of them as an argument: it is what making that task's outputs again takes. After that the task is *retired*:
//! only its fingerprint and its answers stay, so that a replay of its driver neither runs nor commits it twice. When
//! the driver is retired too, those go as well.
//!
//! When an output is dropped, the partitions its bytes name become the dropping driver's own handles: it may have
//! adopted some of them. They go when it drops them or ends.

use fanfold_protocol::{
    AttemptId, PartitionId,
    call::Durability,
    value::{Output, Stored, StoredKey},
};

use crate::{
    Scheduler,
    output::{Content, Gone, Was},
    scheduler::Work,
    slab::TaskIx,
    task::Part,
};

/// A dead inline output this small is kept with its task's record: a replayed driver gets it without running the task
/// again, for less than the record of that would take.
const INLINE_KEPT_BYTES: usize = 256;

impl Scheduler {
    pub(crate) fn acquire(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        slot.refs += 1;
        if slot.refs == 1 {
            self.enliven(part);
            self.nest(part);
        }
    }

    /// The same for what an output names. What that names in turn is put off: such chains can be of any length.
    fn acquire_named(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        slot.refs += 1;
        if slot.refs == 1 {
            self.enliven(part);
            self.nests_due += 1;
            self.agenda.push_back(Work::Nest(part));
        }
    }

    /// Counts the output as alive until it is buried.
    pub(crate) fn enliven(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        if !std::mem::replace(&mut slot.alive, true) {
            self.tasks[part.task].alive += 1;
        }
    }

    pub(crate) fn release(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        slot.refs -= 1;
        if slot.refs == 0 {
            self.agenda.push_back(Work::Dead(part));
        }
    }

    pub(crate) fn pin(&mut self, task: TaskIx) {
        self.tasks[task].pins += 1;
    }

    pub(crate) fn unpin(&mut self, ix: TaskIx) {
        let Some(task) = self.tasks.get_mut(ix) else { return };
        task.pins -= 1;
        if task.pins == 0 {
            self.agenda.push_back(Work::Retire(ix));
        }
    }

    /// Gives the output's handle to whoever called for it.
    pub(crate) fn hold(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        if !std::mem::replace(&mut slot.held, true) {
            self.acquire(part);
        }
    }

    pub(crate) fn unhold(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part) else { return };
        if std::mem::replace(&mut slot.held, false) {
            self.release(part);
        }
    }

    /// Whether the handle that came with the output's call is `driver`'s.
    fn is_own(&self, driver: TaskIx, part: Part) -> bool {
        match crate::task::put_index(part.output) {
            Some(_) => part.task == driver,
            None => self.tasks[part.task].parent == Some(driver),
        }
    }

    /// Makes `driver`, which can name the output, a holder of it.
    pub(crate) fn adopt(&mut self, driver: TaskIx, part: Part) {
        if self.is_own(driver, part) {
            self.hold(part);
        } else if self.tasks[driver].driver_mut().adopted.insert(part) {
            self.acquire(part);
        }
    }

    /// The driver dropped its last handles to these.
    pub(crate) fn dropped(&mut self, attempt: AttemptId, futures: &[PartitionId]) {
        let Some(ix) = self.current(attempt) else { return };
        let job = self.tasks[ix].job;
        for &id in futures {
            let Some(part) = self.part_seen(id).filter(|part| self.tasks[part.task].job == job) else {
                continue;
            };
            let nested = self.slot(part).and_then(|slot| slot.nested.clone());
            nested.iter().flatten().for_each(|&named| self.adopt(ix, named));
            if self.is_own(ix, part) {
                self.unhold(part);
            } else if self.tasks[ix].driver_mut().adopted.remove(&part) {
                self.release(part);
            }
        }
    }

    /// Has a live output keep alive what its bytes name.
    pub(crate) fn nest(&mut self, part: Part) {
        let Some(job) = self.tasks.get(part.task).map(|task| task.job) else { return };
        let Some(slot) = self.slot(part).filter(|slot| slot.nested.is_none() && slot.refs > 0) else {
            return;
        };
        let ids: Vec<PartitionId> = match &slot.content {
            Content::Made(output) => match output.as_ref() {
                Output::Inline(payload) if payload.refs.is_empty() => return,
                Output::Inline(payload) => payload.refs.clone(),
                Output::Stored(stored) => stored.refs.clone(),
                Output::Alias(value) => value.refers().collect(),
            },
            Content::Gone(gone) => match &gone.was {
                Was::Stored(stored) if !gone.freed => stored.refs.clone(),
                _ => return,
            },
            Content::Pending => return,
        };
        let named: Box<[Part]> = ids.into_iter().filter_map(|id| self.part(job, id)).collect();
        if named.is_empty() {
            return;
        }
        named.iter().for_each(|&part| self.acquire_named(part));
        if let Some(slot) = self.slot_mut(part) {
            slot.nested = Some(named);
        }
    }

    /// Gives up the bytes of an output that nothing refers to.
    pub(crate) fn bury(&mut self, part: Part) {
        let Some(slot) = self.slot_mut(part).filter(|slot| slot.refs == 0) else { return };
        let nested = slot.nested.take();
        match std::mem::take(&mut slot.content) {
            Content::Made(output) => match *output {
                Output::Inline(payload)
                    if payload.bytes.len() <= INLINE_KEPT_BYTES && payload.refs.is_empty() =>
                {
                    slot.content = Content::Made(Box::new(Output::Inline(payload)));
                }
                output => {
                    self.free_output(&output);
                    self.set_gone(part, Gone { was: Was::of(output), freed: true });
                }
            },
            Content::Gone(gone) => {
                self.set_gone(part, Gone { freed: true, ..*gone });
                self.sweep(part);
            }
            Content::Pending => {}
        }
        nested.iter().flatten().for_each(|&named| self.release(named));
        if let Some(slot) = self.slot_mut(part)
            && std::mem::take(&mut slot.alive)
        {
            self.tasks[part.task].alive -= 1;
        }
        self.agenda.push_back(Work::Retire(part.task));
    }

    pub(crate) fn set_gone(&mut self, part: Part, gone: Gone) {
        if let Some(slot) = self.slot_mut(part) {
            slot.content = Content::Gone(Box::new(gone));
        }
    }

    /// Has every copy of an output dropped.
    pub(crate) fn free_output(&mut self, output: &Output) {
        if let Output::Stored(stored) = output {
            self.free_stored(stored, true);
        }
    }

    /// `may_be_stored`: the object store may have a copy even if it is not known to.
    pub(crate) fn free_stored(&mut self, stored: &Stored, may_be_stored: bool) {
        if stored.key.is_memo() {
            return; // The data of an entry answers other jobs' calls, too: it is the owner's.
        }
        match stored.at.filter(|&at| self.pool.find(at).is_some()) {
            Some(executor) => self.free_at(executor, stored.key),
            None if stored.durable || may_be_stored => self.frees_stored.push(stored.key),
            None => {}
        }
    }

    pub(crate) fn free_at(&mut self, executor: fanfold_protocol::ExecutorId, key: StoredKey) {
        self.frees.entry(executor).or_default().push(key);
    }

    /// Lets the task's arguments go that were held for its next attempt.
    pub(crate) fn release_args(&mut self, ix: TaskIx) {
        if !std::mem::replace(&mut self.tasks[ix].args_held, false) {
            return;
        }
        let args = std::mem::take(&mut self.tasks[ix].args);
        args.iter().for_each(|&part| self.release(part));
        self.tasks[ix].args = args;
    }

    pub(crate) fn acquire_args(&mut self, ix: TaskIx) {
        if std::mem::replace(&mut self.tasks[ix].args_held, true) {
            return;
        }
        let args = std::mem::take(&mut self.tasks[ix].args);
        args.iter().for_each(|&part| self.acquire(part));
        self.tasks[ix].args = args;
    }

    /// Whether the output may reach the object store at all.
    pub(crate) fn may_be_stored(&self, task: TaskIx) -> bool {
        self.tasks[task].spec.as_ref().is_none_or(|spec| spec.terms.durability != Durability::None)
    }

    /// The task may be needed by nobody: unfinished, it is cancelled; settled, its record goes.
    pub(crate) fn retire(&mut self, ix: TaskIx) {
        let Some(task) = self.tasks.get(ix).filter(|task| task.alive == 0 && task.parent.is_some()) else {
            return;
        };
        if task.is_open() {
            return self.cancel_orphan(ix);
        }
        if task.pins > 0 {
            return;
        }
        if !task.is_idle() {
            return self.abandon(ix);
        }
        self.drop_spec(ix);
        self.drop_record(ix);
    }

    /// The task is being run again for outputs that nobody wants any more.
    fn abandon(&mut self, ix: TaskIx) {
        let awaited =
            self.tasks[ix].output_numbers().any(|output| self.is_awaited(Part { task: ix, output }));
        let settled = self.tasks[ix].parent.is_some_and(|parent| self.tasks[parent].is_settled());
        if !awaited && settled {
            self.stop_remaking(ix, "nothing refers to its outputs any more");
        }
    }

    /// Ends the making again of a task's outputs.
    pub(crate) fn stop_remaking(&mut self, ix: TaskIx, why: &'static str) {
        self.set_idle(ix, super::failure::cancelled(why));
        self.release_args(ix);
        self.finish_driver(ix, None);
        self.agenda.push_back(Work::Retire(ix));
    }

    /// Keeps of a retired task what a replay of its driver needs.
    fn drop_spec(&mut self, ix: TaskIx) {
        let task = &mut self.tasks[ix];
        let Some(spec) = task.spec.take() else { return };
        if task.fingerprint.is_none() {
            task.fingerprint = Some(Box::new(spec.fingerprint()));
        }
        let args = std::mem::take(&mut task.args);
        let held = std::mem::replace(&mut task.args_held, false);
        let mut inputs: Vec<(u32, u32)> =
            args.iter().map(|part| (self.tasks[part.task].ordinal, part.output)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        self.tasks[ix].inputs = inputs.into();
        for part in args {
            if held {
                self.release(part);
            }
            self.unpin(part.task);
        }
        self.drop_children(ix);
    }

    /// Forgets descendants of a retired driver: if it is ever called again, they are called again by it.
    fn drop_children(&mut self, ix: TaskIx) {
        let Some(driver) = &self.tasks[ix].driver else { return };
        if driver.children_kept > 0 {
            self.agenda.extend(driver.children.iter().flatten().map(|&child| Work::Retire(child)));
        }
    }

    fn drop_record(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let Some(parent) = task.parent else { return };
        let keeps = |driver: &crate::task::Driver| {
            driver.children_kept > 0
                || !driver.waited.is_empty()
                || driver.puts.iter().any(|slot| slot.interest.is_some())
        };
        let needed = task.is_generator()
            || task.flags.wanted
            || task.outputs.iter().any(|slot| slot.interest.is_some())
            || task.driver.as_deref().is_some_and(keeps);
        if needed || !self.tasks[parent].is_retired() {
            return;
        }
        let Some(task) = self.tasks.remove(ix) else { return };
        self.task_index.remove(&task.id);
        let job = &mut self.jobs[task.job];
        job.attempt_floor = job.attempt_floor.max(task.attempt);
        let driver = self.tasks[parent].driver_mut();
        driver.children[task.place as usize] = None;
        driver.children_kept -= 1;
        if driver.children_kept == 0 {
            driver.children.clear();
            self.agenda.push_back(Work::Retire(parent));
        }
    }
}
