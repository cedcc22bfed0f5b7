//! Attempts that fail, and tasks that fail or are cancelled. What follows a failed attempt is decided in
//! [`crate::retry`].

use fanfold_protocol::{AttemptId, Code, Error, Kind, PartitionId, record::Record};

use crate::{
    Scheduler,
    retry::{self, History, Verdict},
    scheduler::Work,
    slab::TaskIx,
    task::{Outcome, Part, Phase},
    timer::Timer,
};

impl Scheduler {
    /// The task's attempt, which is no longer running, ended with `error`.
    pub(crate) fn attempt_failed(&mut self, ix: TaskIx, error: Error) {
        let verdict = retry::decide(&error, &self.history(ix));
        self.follow(ix, error, verdict);
    }

    /// The task's attempt was lost: with its executor, or because something it had made was.
    pub(crate) fn attempt_lost(&mut self, ix: TaskIx, error: Error) {
        let verdict = retry::decide_lost(&self.history(ix));
        self.follow(ix, error, verdict);
    }

    fn history(&self, ix: TaskIx) -> History {
        let task = &self.tasks[ix];
        let terms = task.spec.as_ref().map(|spec| &*spec.terms);
        History {
            attempts: terms.map_or(1, |terms| terms.attempts),
            backoff_ms: terms.map_or(0, |terms| terms.backoff_ms),
            deterministic: terms.is_none_or(|terms| terms.deterministic),
            recorded_root: self.jobs[task.job].recorded && task.parent.is_none(),
            memory: task.memory,
            memory_max: terms.map_or(0, |terms| terms.memory_max),
            failures: task.failures,
            losses: task.losses,
        }
    }

    fn follow(&mut self, ix: TaskIx, error: Error, verdict: Verdict) {
        if verdict != Verdict::Final {
            self.expect_questions_again(ix);
        }
        match verdict {
            Verdict::Final if self.tasks[ix].is_open() => self.fail(ix, error),
            Verdict::Final => self.remake_failed(ix, error),
            Verdict::After(delay_ms) => {
                self.log_attempt(ix, &error);
                let timer = self.timers.set(self.now_ms.saturating_add(delay_ms), Timer::Backoff(ix));
                let task = &mut self.tasks[ix];
                task.failures += 1;
                task.error = Some(Box::new(error));
                task.phase = Phase::Backoff(timer);
            }
            Verdict::WithMemory(memory) => {
                self.tasks[ix].memory = memory;
                self.enqueue(ix);
            }
            Verdict::Lost => {
                self.tasks[ix].losses += 1;
                self.tasks[ix].error = Some(Box::new(error));
                self.enqueue(ix);
            }
            Verdict::Elsewhere => self.enqueue(ix),
        }
    }

    fn log_attempt(&mut self, ix: TaskIx, error: &Error) {
        if self.tasks[ix].parent.is_none() {
            let (attempt, at_ms) = (self.tasks[ix].attempt_id(self.epoch), self.now_ms);
            self.log(ix, |job| Record::AttemptFailed { job, attempt, at_ms, error: error.clone() });
        }
    }

    pub(crate) fn backoff_passed(&mut self, ix: TaskIx) {
        if matches!(self.tasks[ix].phase, Phase::Backoff(_)) {
            self.tasks[ix].phase = Phase::Idle;
            self.enqueue(ix);
        }
    }

    pub(crate) fn deadline_passed(&mut self, ix: TaskIx) {
        self.tasks[ix].deadline = None;
        if self.tasks[ix].is_open() {
            let error =
                Error::new(Kind::Limit, Code::Deadline, "the task's deadline passed before it finished");
            self.fail(ix, error);
        }
    }

    /// An argument of the task will never be: the task fails with the same error and does not run.
    pub(crate) fn argument_failed(&mut self, ix: TaskIx, error: Error) {
        if self.tasks[ix].is_open() {
            self.fail(ix, error);
        } else {
            self.remake_failed(ix, error);
        }
    }

    /// The task, which is open, fails for good, whatever it is doing.
    pub(crate) fn fail(&mut self, ix: TaskIx, error: Error) {
        if !self.tasks[ix].is_open() {
            return;
        }
        self.set_idle(ix, error.clone());
        if self.tasks[ix].parent.is_some() {
            let task = self.tasks[ix].id;
            self.log(ix, |job| Record::Failed { job, task, error: error.clone() });
        } else {
            let job = self.tasks[ix].job;
            self.agenda.push_back(Work::End(job));
        }
        self.settle_outcome(ix, Outcome::Failed(Box::new(error.clone())));
        self.release_args(ix);
        self.finish_driver(ix, Some(&error));
        self.tell_missing(ix);
        self.wake_takers(ix);
        self.agenda.push_back(Work::Retire(ix));
    }

    /// Ends whatever the task is doing.
    pub(crate) fn set_idle(&mut self, ix: TaskIx, error: Error) {
        self.stop_run(ix, error);
        self.unwatch(ix);
        match std::mem::replace(&mut self.tasks[ix].phase, Phase::Idle) {
            Phase::Backoff(timer) => self.timers.cancel(timer),
            // It stays in the queue until placement sees it there. Its class must be looked at for that even while
            // nothing of it fits: an executor may be kept free for nothing but this task.
            Phase::Ready(class) => self.ready.classes[class].blocked_at = None,
            _ => {}
        }
    }

    /// A driver has finished for good: its handles go, and with them the tasks that nobody else wants.
    pub(crate) fn finish_driver(&mut self, ix: TaskIx, failure: Option<&Error>) {
        let Some(driver) = self.tasks[ix].driver.as_mut() else { return };
        let adopted = std::mem::take(&mut driver.adopted);
        let children: Vec<TaskIx> = driver.children.iter().flatten().copied().collect();
        for put in 0..driver.puts.len() as u32 {
            self.unhold(Part { task: ix, output: crate::task::put_number(put) });
        }
        for child in children {
            for output in 0..self.tasks[child].outputs.len() as u32 {
                self.unhold(Part { task: child, output });
            }
            if self.tasks[child].flags.wanted {
                let error = failure.cloned().unwrap_or_else(|| self.not_called_again(child));
                self.remake_failed(child, error);
            }
            if self.tasks[child].is_open() {
                self.agenda.push_back(Work::Retire(child));
            }
        }
        adopted.into_iter().for_each(|part| self.release(part));
    }

    fn not_called_again(&self, child: TaskIx) -> Error {
        let message = format!(
            "task {} was not called when its driver ran again: the driver is not deterministic",
            self.tasks[child].id
        );
        Error::new(Kind::Guest, Code::NonDeterministic, message)
    }

    /// An open task whose outputs nobody refers to: cancelled, unless its driver may yet come back to it.
    pub(crate) fn cancel_orphan(&mut self, ix: TaskIx) {
        let Some(parent) = self.tasks[ix].parent else { return };
        if self.tasks[parent].is_settled() {
            let flags = &mut self.tasks[ix].flags;
            (flags.orphaned, flags.silent) = (true, true);
            self.fail(ix, cancelled("its driver has ended and nothing refers to its outputs"));
        }
    }

    /// The attempt cancels the tasks that make these.
    pub(crate) fn cancel_futures(&mut self, attempt: AttemptId, futures: &[PartitionId]) {
        let Some(ix) = self.current(attempt) else { return };
        let job = self.tasks[ix].job;
        for id in futures {
            let Some(&target) = self.task_index.get(&id.task) else { continue };
            if self.tasks[target].job == job && !self.is_above(target, ix) {
                self.cancel_tree(target);
            }
        }
    }

    /// Whether `task` is `below` or one that called it.
    fn is_above(&self, task: TaskIx, below: TaskIx) -> bool {
        let mut next = Some(below);
        while let Some(ix) = next {
            if ix == task {
                return true;
            }
            next = self.tasks[ix].parent;
        }
        false
    }

    fn cancel_tree(&mut self, ix: TaskIx) {
        let mut stack = vec![ix];
        while let Some(task) = stack.pop() {
            if let Some(driver) = &self.tasks[task].driver {
                stack.extend(driver.children.iter().flatten().rev());
            }
            // The log needs no word of descendants: their driver is never run again.
            self.tasks[task].flags.silent |= task != ix;
            self.fail(task, cancelled("the task was cancelled by its caller"));
        }
    }
}

pub(crate) fn cancelled(message: &'static str) -> Error {
    Error::new(Kind::Platform, Code::Cancelled, message).retryable(false)
}
