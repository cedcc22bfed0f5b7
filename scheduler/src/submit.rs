//! Jobs and calls that begin: new tasks, and calls that a replayed driver makes again.

use fanfold_protocol::{AttemptId, Code, Error, Kind, TaskId, call::TaskSpec, limit};

use crate::{
    JobStart, Scheduler,
    job::Job,
    output::{Content, Gone, Slot, Was},
    scheduler::Work,
    slab::TaskIx,
    spec::Spec,
    task::{Outcome, Part, Task},
    timer::Timer,
};

impl Scheduler {
    pub(crate) fn job_started(&mut self, start: JobStart) {
        if self.job_index.contains_key(&start.job) {
            return;
        }
        let id = start.root.id;
        self.sort_holdings(start.job, &start.replay);
        let mut job = Job::new(start.job, start.recorded, start.weight, start.replay);
        job.idle_since_ms = self.now_ms;
        let committed = job.replay.committed.remove(&id);
        let failures = job.root_failed_before;
        let job = self.jobs.insert(job);
        self.job_index.insert(start.job, job);
        let root = self.add_task(job, id, None);
        self.jobs[job].root = Some(root);
        self.arm_stall(job);
        self.tasks[root].failures = failures;
        if let Some(committed) = committed {
            self.take_commit(root, committed);
        }
        self.define(root, start.root);
        self.hold_outputs(root);
        if self.tasks[root].is_open() {
            self.begin(root);
        } else {
            self.agenda.push_back(Work::End(job));
        }
    }

    /// A driver's call.
    pub(crate) fn submitted(&mut self, attempt: AttemptId, id: TaskId, spec: Result<TaskSpec, Error>) {
        let Some(parent) = self.current(attempt) else { return };
        let job = self.tasks[parent].job;
        match self.known_task(job, id) {
            Some(ix) => self.called_again(parent, ix, spec),
            None => self.called_first(parent, id, spec),
        }
    }

    fn called_first(&mut self, parent: TaskIx, id: TaskId, spec: Result<TaskSpec, Error>) {
        let job = self.tasks[parent].job;
        if self.task_index.contains_key(&id) {
            return; // Another job's: no call of this one makes that id.
        }
        let ix = self.add_task(job, id, Some(parent));
        self.tasks[ix].called_by = self.tasks[parent].attempt_number();
        let again = self.tasks[parent].is_committed();
        self.tasks[ix].flags.silent = again || self.tasks[parent].flags.silent;
        let spec = match spec {
            Ok(spec) => spec,
            Err(error) => {
                self.count_task(ix, "");
                return self.fail(ix, error);
            }
        };
        let refusal = self.refusal(&spec, parent, job);
        let generator = spec.terms.generator;
        self.define(ix, spec);
        self.hold_outputs(ix);
        if let Some(error) = refusal {
            return self.fail(ix, error);
        }
        if again && !generator {
            // Its driver committed before, so it has run before: it runs again only if that takes its outputs.
            return self.settle_unseen(ix);
        }
        self.begin(ix);
    }

    /// Why a call cannot be accepted.
    fn refusal(&mut self, spec: &TaskSpec, parent: TaskIx, job: crate::slab::JobIx) -> Option<Error> {
        if self.jobs[job].open >= limit::JOB_TASKS_PENDING_MAX {
            let message = format!(
                "the job has {} unfinished tasks, the most it may have; wait for some before calling more",
                limit::JOB_TASKS_PENDING_MAX
            );
            return Some(Error::new(Kind::Overloaded, Code::QueueFull, message));
        }
        if spec.terms.outputs > limit::OUTPUTS_MAX {
            let message = format!("{} outputs are more than {}", spec.terms.outputs, limit::OUTPUTS_MAX);
            return Some(Error::new(Kind::Invalid, Code::Call, message));
        }
        if self.tasks[parent].depth >= limit::TASK_DEPTH_MAX {
            let message = format!("calls are nested more than {} deep", limit::TASK_DEPTH_MAX);
            return Some(Error::new(Kind::Invalid, Code::Call, message));
        }
        let mut named = spec.args.iter().flat_map(|value| value.refers());
        let unknown = named.find(|&id| self.part(job, id).is_none());
        if let Some(id) = unknown {
            return Some(Self::unknown_partition(id));
        }
        let mut needed = spec.args.iter().filter_map(|value| value.needs());
        let of_caller = needed.find(|id| self.is_output_of_caller(parent, id.task, id.output));
        of_caller.map(|id| {
            let message =
                format!("argument {id} is an output of a task that waits for this one to be called");
            Error::new(Kind::Invalid, Code::Call, message)
        })
    }

    /// Whether the output is still to be made by `driver` or one above it: a callee that needs it would never start.
    fn is_output_of_caller(&self, driver: TaskIx, id: TaskId, output: u32) -> bool {
        let mut next = Some(driver);
        while let Some(task) = next.map(|ix| &self.tasks[ix]) {
            if task.id == id {
                let content = task.slot(output).map(|slot| &slot.content);
                return !task.is_generator() && matches!(content, Some(Content::Pending));
            }
            next = task.parent;
        }
        false
    }

    /// Gives a task its call. What its arguments name must be known; the records of those tasks stay from now on.
    fn define(&mut self, ix: TaskIx, spec: TaskSpec) {
        let job = self.tasks[ix].job;
        let mut args: Vec<Part> = Vec::new();
        for id in spec.args.iter().flat_map(|value| value.refers()) {
            args.extend(self.part(job, id));
        }
        args.iter().for_each(|part| self.pin(part.task));
        if self.tasks[ix].stage == u32::MAX {
            self.count_task(ix, &spec.terms.entry);
        }
        let (version, terms) = (spec.terms.version, self.jobs[job].terms.share(spec.terms));
        self.tasks[ix].version = self.jobs[job].version(version);
        let mut yielded = Vec::new();
        if terms.generator && self.tasks[ix].outputs.is_empty() {
            self.recall_yields(ix, &mut yielded);
        }
        let slots: Vec<Slot> = yielded.into_iter().map(|output| self.recalled_slot(output)).collect();
        let task = &mut self.tasks[ix];
        task.memory = task.memory.max(terms.memory);
        task.outputs.extend(slots);
        if terms.generator {
            task.feed.get_or_insert_default();
        } else {
            let outputs = terms.outputs.min(limit::OUTPUTS_MAX) as usize;
            task.outputs.resize_with(outputs.max(task.outputs.len()), Slot::default);
        }
        task.args = args.into();
        task.spec = Some(Spec { args: spec.args.into(), terms });
    }

    fn count_task(&mut self, ix: TaskIx, entry: &str) {
        let open = self.tasks[ix].is_open();
        let job = self.job_of(ix);
        let stage = job.stage(entry);
        job.tasks += 1;
        job.open += usize::from(open);
        if let Some(counts) = job.stage_mut(stage) {
            counts.tasks += 1;
            counts.finished += u64::from(!open);
        }
        self.tasks[ix].stage = stage;
    }

    fn hold_outputs(&mut self, ix: TaskIx) {
        for output in 0..self.tasks[ix].outputs.len() as u32 {
            self.hold(Part { task: ix, output });
        }
    }

    /// Has an open task run.
    fn begin(&mut self, ix: TaskIx) {
        self.acquire_args(ix);
        let deadline = self.tasks[ix].spec.as_ref().and_then(|spec| spec.terms.deadline_at_ms);
        self.tasks[ix].deadline = deadline.map(|at_ms| self.timers.set(at_ms, Timer::Deadline(ix)));
        self.enqueue(ix);
    }

    /// Treats a task as committed, its outputs unknown.
    fn settle_unseen(&mut self, ix: TaskIx) {
        let stage = self.tasks[ix].stage;
        self.tasks[ix].outcome = Outcome::Committed;
        for slot in &mut self.tasks[ix].outputs {
            slot.content = Content::Gone(Box::new(Gone { was: Was::Unknown, freed: false }));
        }
        let job = self.job_of(ix);
        job.open -= 1;
        if let Some(counts) = job.stage_mut(stage) {
            counts.finished += 1;
        }
        self.need_missing(ix);
        self.agenda.push_back(Work::Retire(ix));
    }

    /// A replayed driver makes a call that is known.
    fn called_again(&mut self, parent: TaskIx, ix: TaskIx, spec: Result<TaskSpec, Error>) {
        match self.tasks[ix].parent {
            None if ix != parent && !self.is_root(ix) => self.add_child(parent, ix),
            Some(caller) if caller == parent => {}
            _ => return,
        }
        let attempt = self.tasks[parent].attempt_number();
        if std::mem::replace(&mut self.tasks[ix].called_by, attempt) == attempt {
            return; // The same message again.
        }
        let Ok(spec) = spec else { return self.hold_outputs(ix) };
        if !self.is_same_call(ix, &spec) {
            let message = format!(
                "task {} was called with other arguments than before: its driver is not deterministic; wait for \
                 futures in a fixed order and use no clock, random number or environment but the given ones",
                self.tasks[ix].id
            );
            return self.attempt_broken(parent, Error::new(Kind::Guest, Code::NonDeterministic, message));
        }
        if self.tasks[ix].spec.is_none() {
            self.define(ix, spec);
        }
        self.hold_outputs(ix);
        if self.tasks[ix].flags.orphaned {
            self.revive_orphan(ix);
        }
        if std::mem::take(&mut self.tasks[ix].flags.wanted) {
            self.remake(ix);
        }
        self.need_missing(ix);
    }

    fn is_root(&self, ix: TaskIx) -> bool {
        self.jobs[self.tasks[ix].job].root == Some(ix)
    }

    fn is_same_call(&self, ix: TaskIx, spec: &TaskSpec) -> bool {
        let Task { spec: known, fingerprint, .. } = &self.tasks[ix];
        match (known, fingerprint) {
            (Some(known), _) => known.is_like(&spec.args, &spec.terms),
            (None, Some(fingerprint)) => **fingerprint == spec.terms.fingerprint(&spec.args),
            (None, None) => true,
        }
    }

    /// A task that was cancelled when its driver ended, since nobody wanted it, is called by that driver's replay: it
    /// counts as run, and runs if anybody wants it now.
    fn revive_orphan(&mut self, ix: TaskIx) {
        let task = &mut self.tasks[ix];
        task.flags.orphaned = false;
        task.flags.silent = true;
        task.outcome = Outcome::Committed;
        for slot in task.outputs.iter_mut().filter(|slot| matches!(slot.content, Content::Pending)) {
            slot.content = Content::Gone(Box::new(Gone { was: Was::Unknown, freed: false }));
        }
    }
}
