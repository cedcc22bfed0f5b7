//! Runnable tasks, and which goes next.
//!
//! Tasks that need the same resources form a *class*: if one of them fits nowhere, none does, so a full cluster costs
//! one look per class and not one per task. Within a job tasks of a class go first in, first out (those run again go
//! to the front, see [`Turn`]); between jobs the one that has used the least cpu time by weight goes first.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_protocol::ExecutorId;

use crate::{
    executor::Resources,
    job::{Job, Queue},
    slab::{ClassIx, JobIx, Slab, TaskIx},
};

/// Cpu time is charged in thousandths of a millisecond of one slot, by weight.
const CHARGE_SCALE: u64 = 1024;
/// Empty classes kept, so that a shape that comes and goes is not made anew each time.
const CLASSES_KEPT: usize = 64;

/// An empty queue that had room for more than so many tasks gives the room back.
const QUEUE_KEPT: usize = 256;

/// Where in its job's queue a task goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It has never run: after those that became runnable before it.
    Next,
    /// It runs again, with its ordinal: before those that have never run, and among its like in the order of calls.
    Again(u32),
    /// The same, but it may turn out not to be needed: after all others, until [`Ready::no_later`].
    Later(u32),
}

/// What a class's tasks need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    pub needs: Resources,
    /// The only executor that will do.
    pub only: Option<ExecutorId>,
}

#[derive(Debug)]
pub(crate) struct Class {
    pub shape: Shape,
    /// Jobs with tasks in it, by virtual time and the order of their first one.
    pub jobs: BTreeSet<(u64, u64, JobIx)>,
    /// The pool's version at which it fitted nowhere.
    pub blocked_at: Option<u64>,
    /// Since when it has fitted nowhere, and how many tasks had been started then.
    pub blocked_since: Option<(u64, u64)>,
    /// Not to be given a reservation before this.
    pub patient_until_ms: u64,
    pub reserved: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ready {
    pub classes: Slab<ClassIx, Class>,
    by_shape: BTreeMap<Shape, ClassIx>,
    /// Classes with jobs.
    pub filled: BTreeSet<ClassIx>,
    /// Classes with a reservation and nothing left to run.
    pub unwanted: Vec<ClassIx>,
    /// Tasks started so far.
    pub started: u64,
    order: u64,
    /// Virtual time of the job that went last: a job that comes back after a pause starts here.
    clock: u64,
}

impl Ready {
    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// The class of `shape`, made if need be.
    pub fn class(&mut self, shape: Shape) -> ClassIx {
        if let Some(&class) = self.by_shape.get(&shape) {
            return class;
        }
        if self.by_shape.len() >= CLASSES_KEPT {
            self.drop_empty();
        }
        let class = self.classes.insert(Class {
            shape,
            jobs: BTreeSet::new(),
            blocked_at: None,
            blocked_since: None,
            patient_until_ms: 0,
            reserved: false,
        });
        self.by_shape.insert(shape, class);
        class
    }

    fn drop_empty(&mut self) {
        let empty: Vec<ClassIx> = self
            .classes
            .iter()
            .filter(|(_, class)| class.jobs.is_empty() && !class.reserved)
            .map(|(ix, _)| ix)
            .collect();
        for ix in empty {
            if let Some(class) = self.classes.remove(ix) {
                self.by_shape.remove(&class.shape);
            }
        }
    }

    /// Puts a task into its class's queue. Returns the class.
    pub fn push(&mut self, ix: JobIx, job: &mut Job, task: TaskIx, shape: Shape, turn: Turn) -> ClassIx {
        if job.queues.iter().all(|queue| queue.key.is_none()) {
            job.virtual_time = job.virtual_time.max(self.clock);
        }
        let class = self.class(shape);
        self.order += 1;
        let order = self.order;
        // A class may have been dropped while it was empty, and its index used again for another shape.
        job.queues.retain(|queue| queue.key.is_some() || queue.class == class);
        let n = job.queues.iter().position(|queue| queue.class == class).unwrap_or_else(|| {
            job.queues.push(Queue::new(class));
            job.queues.len() - 1
        });
        let queue = &mut job.queues[n];
        match turn {
            Turn::Next => queue.tasks.push_back((task, order)),
            Turn::Again(ordinal) => drop(queue.again.insert((ordinal, task))),
            Turn::Later(ordinal) => drop(queue.later.insert((ordinal, task))),
        }
        self.leave(ix, queue);
        self.enter(ix, job.virtual_time, queue);
        class
    }

    /// What was put off goes before what has never run.
    pub fn no_later(&mut self, ix: JobIx, job: &mut Job) {
        let virtual_time = job.virtual_time;
        for queue in job.queues.iter_mut().filter(|queue| !queue.later.is_empty()) {
            self.leave(ix, queue);
            queue.again.append(&mut queue.later);
            self.enter(ix, virtual_time, queue);
        }
    }

    fn enter(&mut self, ix: JobIx, virtual_time: u64, queue: &mut Queue) {
        let Some((_, order)) = queue.head() else { return };
        queue.key = Some((virtual_time, order));
        self.classes[queue.class].jobs.insert((virtual_time, order, ix));
        self.filled.insert(queue.class);
    }

    fn leave(&mut self, ix: JobIx, queue: &mut Queue) {
        if let Some((virtual_time, order)) = queue.key.take() {
            self.classes[queue.class].jobs.remove(&(virtual_time, order, ix));
        }
    }

    fn tidy(&mut self, class: ClassIx) {
        if self.classes[class].jobs.is_empty() {
            self.classes[class].blocked_since = None;
            self.filled.remove(&class);
            if self.classes[class].reserved {
                self.unwanted.push(class);
            }
        }
    }

    /// The class and job to be served next, of classes for which `open` holds.
    pub fn first(&self, open: impl Fn(&Class) -> bool) -> Option<(ClassIx, JobIx)> {
        let heads = self.filled.iter().filter_map(|&ix| {
            let class = &self.classes[ix];
            let head = class.jobs.first()?;
            open(class).then_some((*head, ix))
        });
        heads.min().map(|((_, _, job), class)| (class, job))
    }

    /// Whether the job's place in the class is what its use of cpu time says; puts it right if not.
    pub fn settle(&mut self, ix: JobIx, job: &mut Job, class: ClassIx) -> bool {
        let virtual_time = job.virtual_time;
        let Some(queue) = job.queues.iter_mut().find(|queue| queue.class == class) else { return true };
        if queue.key.is_some_and(|(at, _)| at >= virtual_time) {
            return true;
        }
        self.leave(ix, queue);
        self.enter(ix, virtual_time, queue);
        false
    }

    /// The first task of the job in the class.
    pub fn head(job: &Job, class: ClassIx) -> Option<TaskIx> {
        job.queues.iter().find(|queue| queue.class == class)?.head().map(|(task, _)| task)
    }

    /// Removes that task.
    pub fn pop(&mut self, ix: JobIx, job: &mut Job, class: ClassIx) {
        let virtual_time = job.virtual_time;
        let Some(queue) = job.queues.iter_mut().find(|queue| queue.class == class) else { return };
        queue.pop();
        if queue.tasks.is_empty() && queue.tasks.capacity() > QUEUE_KEPT {
            queue.tasks = std::collections::VecDeque::new();
        }
        self.leave(ix, queue);
        self.enter(ix, virtual_time, queue);
        self.tidy(class);
    }

    /// A task of the job starts: it pays one millisecond in advance.
    pub fn charge_start(&mut self, job: &mut Job, cpu_millis: u32) {
        self.clock = self.clock.max(job.virtual_time);
        self.started += 1;
        job.virtual_time += charge(job.weight, cpu_millis, 1);
    }

    /// A task of the job gives its cpu back after `elapsed_ms`.
    pub fn charge_end(job: &mut Job, cpu_millis: u32, elapsed_ms: u64) {
        job.virtual_time += charge(job.weight, cpu_millis, elapsed_ms.saturating_sub(1));
    }

    /// Takes everything of a job out.
    pub fn remove_job(&mut self, ix: JobIx, job: &mut Job) {
        for mut queue in std::mem::take(&mut job.queues) {
            if queue.key.is_some() {
                self.leave(ix, &mut queue);
                self.tidy(queue.class);
            }
        }
    }
}

fn charge(weight: u32, cpu_millis: u32, elapsed_ms: u64) -> u64 {
    u64::from(cpu_millis.max(1)) * elapsed_ms.saturating_mul(CHARGE_SCALE) / u64::from(weight)
}
