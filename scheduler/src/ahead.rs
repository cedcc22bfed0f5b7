//! Looking ahead: while there is no room, executors are told what those tasks will read that come next.
//!
//! A task that is next in its queue is *meant* for the executor that has most of its inputs; that one is told to fetch
//! the rest. When a slot comes free there, the task goes before others of its class and job that would have fitted as
//! well. It is a hint and no promise: the task starts wherever there is room, and what was fetched in vain is evicted.

use std::cmp::Reverse;

use fanfold_protocol::{
    call::Placement,
    message::ToExecutor,
    value::{Output, Stored, Value},
};

use crate::{
    Scheduler,
    interest::Resolved,
    placement::needed_args,
    ready::Shape,
    slab::{ClassIx, ExecutorIx, JobIx, TaskIx},
    task::{Part, Phase, Task},
};

/// Tasks at the front of a queue that are looked at: it is done whenever a class is found to fit nowhere.
const TASKS_LOOKED_AT: usize = 4;
/// Tasks meant for one executor: one that starts next, and one more.
const MEANT_MAX: usize = 2;
/// A task with more inputs starts to read before all of them could be fetched, and looking at them takes long.
const INPUTS_MAX: usize = 32;

impl Scheduler {
    /// Finds executors for the next tasks of a class that fits nowhere, and has their inputs fetched.
    pub(crate) fn look_ahead(&mut self, class: ClassIx) {
        // One executor has all there is, or the object store has it.
        if self.pool.executors.iter().nth(1).is_none() {
            return;
        }
        let Some(&(_, _, job)) = self.ready.classes[class].jobs.first() else { return };
        let queue = self.jobs[job].queues.iter().find(|queue| queue.class == class);
        let next = queue.into_iter().flat_map(|queue| queue.tasks.iter().take(TASKS_LOOKED_AT));
        let next: Vec<TaskIx> = next
            .map(|(task, _)| *task)
            .filter(|&task| self.tasks.get(task).is_some_and(|task| may_be_meant(task, class)))
            .collect();
        for task in next {
            self.mean(class, task);
        }
    }

    fn mean(&mut self, class: ClassIx, ix: TaskIx) {
        let id = self.tasks[ix].id;
        if self.pool.executors.iter().any(|(_, executor)| executor.meant.contains(&(ix, id))) {
            return;
        }
        let inputs = self.stored_inputs(ix, |_, _| true);
        let Some(executor) = self.nearest(class, &inputs) else { return };
        let here = Some(self.pool.executors[executor].id);
        // Of what is long, the executor reads what it needs when the task does.
        let fetched =
            |value: &Value, stored: &Stored| stored.at != here && stored.meta.bytes <= value.whole_max();
        let missing = self.stored_inputs(ix, fetched);
        if let (Some(here), false) = (here, missing.is_empty()) {
            self.pool.executors[executor].meant.push_back((ix, id));
            self.send(here, ToExecutor::Prefetch(missing));
        }
    }

    /// Stored partitions among the arguments that are wanted.
    fn stored_inputs(&self, task: TaskIx, wanted: impl Fn(&Value, &Stored) -> bool) -> Vec<Stored> {
        let values = self.tasks[task].spec.as_ref().map_or(&[][..], |spec| &*spec.args);
        let stored = |(n, part): (usize, Part)| match (values.get(n), self.resolve(part)) {
            (Some(value), Resolved::Ready(_, Output::Stored(stored))) if wanted(value, stored) => {
                Some(stored.clone())
            }
            _ => None,
        };
        needed_args(&self.tasks[task]).filter_map(stored).collect()
    }

    /// The executor with most bytes of `inputs` among those that could run the class and for which little else is meant.
    fn nearest(&mut self, class: ClassIx, inputs: &[Stored]) -> Option<ExecutorIx> {
        if inputs.is_empty() {
            return None;
        }
        let Shape { needs, only } = self.ready.classes[class].shape;
        let tasks = &self.tasks;
        let still = |&(ix, id): &(TaskIx, _)| {
            tasks.get(ix).is_some_and(|task: &Task| task.id == id && matches!(task.phase, Phase::Ready(_)))
        };
        self.pool.executors.iter_mut().for_each(|(_, executor)| executor.meant.retain(still));
        let free = self.pool.executors.iter().filter(|(_, executor)| {
            executor.could_fit(&needs)
                && only.is_none_or(|only| only == executor.id)
                && executor.meant.len() < MEANT_MAX
        });
        let rated = free.map(|(ix, executor)| {
            let near = inputs.iter().filter(|stored| stored.at == Some(executor.id));
            let bytes: u64 = near.map(|stored| stored.meta.bytes).sum();
            ((bytes, Reverse(executor.meant.len()), Reverse(ix)), ix)
        });
        rated.max().map(|(_, ix)| ix)
    }

    /// What to start on `executor`, where `head` is next: a task of the same class and job that is meant for it, if there
    /// is one at the front of the queue, else the head. It is at the head afterwards.
    pub(crate) fn meant_for(
        &mut self,
        executor: ExecutorIx,
        class: ClassIx,
        job: JobIx,
        head: TaskIx,
    ) -> TaskIx {
        let meant = self.pool.executors[executor].meant.iter().find(|(ix, id)| {
            self.tasks.get(*ix).is_some_and(|task| {
                task.id == *id
                    && task.job == job
                    && matches!(task.phase, Phase::Ready(queued) if queued == class)
            })
        });
        let Some(&(task, _)) = meant.filter(|(task, _)| *task != head) else { return head };
        if !self.may_start(class, task) {
            return head;
        }
        let queue = self.jobs[job].queues.iter_mut().find(|queue| queue.class == class);
        let Some(queue) = queue.filter(|queue| queue.again.is_empty()) else { return head };
        let front = queue.tasks.iter().take(TASKS_LOOKED_AT + MEANT_MAX);
        let Some(position) = front.map(|(task, _)| *task).position(|queued| queued == task) else {
            return head;
        };
        // They change places; the order in which the places were taken stays.
        (queue.tasks[0].0, queue.tasks[position].0) = (task, head);
        task
    }
}

/// Whether it makes sense to fetch for the task: it waits for room, and where it runs depends on its inputs or is fixed.
fn may_be_meant(task: &Task, class: ClassIx) -> bool {
    let placed = task.spec.as_ref().is_some_and(|spec| {
        matches!(spec.terms.placement, Placement::Local | Placement::On { strict: true, .. })
    });
    placed
        && matches!(task.phase, Phase::Ready(queued) if queued == class)
        && (1..=INPUTS_MAX).contains(&task.args.len())
}
