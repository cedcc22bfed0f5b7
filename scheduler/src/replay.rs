//! What a job's log says becomes tasks again, each when it is first called or named.
//!
//! A task that is known from the log only has no call yet (`spec` is absent). Its outputs can be read where they are
//! inline, in the object store or on a live executor; making one again takes a replay of its driver first.

use fanfold_protocol::{Error, PartitionId, TaskId, record::Committed, value::Output};

use crate::{
    Scheduler,
    output::{Content, Slot},
    slab::{JobIx, TaskIx},
    task::{Flags, Outcome, Part, Phase, Task, Trace, put_index},
};

impl Scheduler {
    /// The task `id` of `job`: called before, or known from the log.
    pub(crate) fn known_task(&mut self, job: JobIx, id: TaskId) -> Option<TaskIx> {
        if let Some(&ix) = self.task_index.get(&id) {
            return (self.tasks[ix].job == job).then_some(ix);
        }
        let replay = &mut self.jobs[job].replay;
        if let Some(committed) = replay.committed.remove(&id) {
            return self.recall_committed(job, id, committed);
        }
        let error = replay.failed.remove(&id)?;
        Some(self.recall_failed(job, id, error))
    }

    fn recall_committed(&mut self, job: JobIx, id: TaskId, committed: Committed) -> Option<TaskIx> {
        let parent = match committed.parent {
            Some(parent) => Some(self.known_task(job, parent)?),
            None => None,
        };
        let ix = self.add_task(job, id, parent);
        self.take_commit(ix, committed);
        Some(ix)
    }

    fn recall_failed(&mut self, job: JobIx, id: TaskId, error: Error) -> TaskIx {
        // The log of a failure does not say who called: whoever calls it now does.
        let ix = self.add_task(job, id, None);
        self.tasks[ix].outcome = Outcome::Failed(Box::new(error));
        self.jobs[job].strays.push(ix);
        ix
    }

    /// A record of a task that nothing is known of yet but its id. It is open and idle.
    pub(crate) fn add_task(&mut self, job_ix: JobIx, id: TaskId, parent: Option<TaskIx>) -> TaskIx {
        let job = &mut self.jobs[job_ix];
        let ordinal = job.ordinal_next;
        job.ordinal_next += 1;
        let ix = self.tasks.insert(Task {
            id,
            job: job_ix,
            parent,
            depth: 0,
            place: 0,
            ordinal,
            stage: u32::MAX,
            outcome: Outcome::Open,
            phase: Phase::Idle,
            spec: None,
            args: Box::default(),
            args_held: false,
            fingerprint: None,
            outputs: Vec::new(),
            alive: 0,
            pins: 0,
            interest: None,
            driver: None,
            feed: None,
            memory: 0,
            attempt: job.attempt_floor,
            failures: 0,
            losses: 0,
            called_by: 0,
            deadline: None,
            error: None,
            flags: Flags::default(),
            output_bytes: 0,
            inputs: Box::default(),
            memo: None,
            version: u32::MAX,
            trace: Trace::default(),
        });
        self.task_index.insert(id, ix);
        if let Some(parent) = parent {
            self.add_child(parent, ix);
        }
        ix
    }

    pub(crate) fn add_child(&mut self, parent: TaskIx, child: TaskIx) {
        let driver = self.tasks[parent].driver_mut();
        let place = driver.children.len() as u32;
        driver.children.push(Some(child));
        driver.children_kept += 1;
        let depth = self.tasks[parent].depth + 1;
        let child = &mut self.tasks[child];
        (child.parent, child.place, child.depth) = (Some(parent), place, depth);
    }

    /// Takes over what the log says of the task's commit.
    pub(crate) fn take_commit(&mut self, ix: TaskIx, committed: Committed) {
        let task = &mut self.tasks[ix];
        task.outcome = Outcome::Committed;
        task.fingerprint = Some(Box::new(committed.fingerprint));
        let mut outputs = committed.outputs;
        self.recall_yields(ix, &mut outputs);
        for (n, output) in outputs.into_iter().enumerate() {
            let slot = self.recalled_slot(output);
            if n < self.tasks[ix].outputs.len() {
                let part = Part { task: ix, output: n as u32 };
                self.fill_slot(part, slot.content);
            } else {
                self.tasks[ix].outputs.push(slot);
            }
        }
    }

    fn fill_slot(&mut self, part: Part, content: Content) {
        let Some(slot) = self.slot_mut(part) else { return };
        slot.content = content;
        if slot.refs > 0 {
            self.nest(part);
        }
    }

    /// What the log says a generator yielded, appended to `outputs`.
    pub(crate) fn recall_yields(&mut self, ix: TaskIx, outputs: &mut Vec<Output>) {
        let (task, job) = (self.tasks[ix].id, self.tasks[ix].job);
        let made = &mut self.jobs[job].replay.made;
        while let Some(output) = made.remove(&PartitionId { task, output: outputs.len() as u32 }) {
            outputs.push(output);
        }
    }

    pub(crate) fn recalled_slot(&mut self, output: Output) -> Slot {
        let content = match output {
            Output::Stored(stored) => self.recalled_content(stored),
            output => Content::Made(Box::new(output)),
        };
        Slot { content, ..Slot::default() }
    }

    /// Whether the task has output `output`, taking it over from the log if that is where it is known.
    pub(crate) fn known_slot(&mut self, ix: TaskIx, output: u32) -> bool {
        if self.tasks[ix].slot(output).is_some() {
            return true;
        }
        match put_index(output) {
            Some(n) => self.recall_puts(ix, n),
            None => self.failed_slot(ix, output),
        }
    }

    fn recall_puts(&mut self, ix: TaskIx, upto: usize) -> bool {
        let (task, job) = (self.tasks[ix].id, self.tasks[ix].job);
        let mut n = self.tasks[ix].driver.as_ref().map_or(0, |driver| driver.puts.len());
        while n <= upto {
            let id = PartitionId { task, output: PartitionId::FIRST_PUT + n as u32 };
            let Some(output) = self.jobs[job].replay.made.remove(&id) else { return false };
            let slot = self.recalled_slot(output);
            self.tasks[ix].driver_mut().puts.push(slot);
            n += 1;
        }
        true
    }

    /// The log of a failure does not say how many outputs there would have been: any that is named has failed.
    fn failed_slot(&mut self, ix: TaskIx, output: u32) -> bool {
        let task = &mut self.tasks[ix];
        let recalled = matches!(task.outcome, Outcome::Failed(_)) && task.spec.is_none();
        if !recalled || output >= fanfold_protocol::limit::OUTPUTS_MAX {
            return false;
        }
        task.outputs.resize_with(output as usize + 1, Slot::default);
        true
    }
}
