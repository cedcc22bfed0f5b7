//! Attempts on their executors: starting, giving the cpu back, going on, stopping.

use fanfold_protocol::{
    AttemptId, Error,
    call::Durability,
    message::{Argument, Assignment, ToExecutor},
    rest::RunView,
    value::{Output, Value},
};

use crate::{
    Scheduler,
    interest::Resolved,
    placement::needed_args,
    ready::Ready,
    slab::{ExecutorIx, TaskIx},
    spec::Spec,
    task::{Blocked, Cpu, Phase, Run, Task},
};

impl Scheduler {
    /// Starts an attempt of a queued task on an executor with room for it.
    pub(crate) fn start(&mut self, ix: TaskIx, executor: ExecutorIx) {
        let Some(charge) = self.needs_of(ix) else { return };
        let memo = self.tasks[ix].spec.as_ref().is_some_and(|spec| spec.terms.memo);
        self.pool.start(executor, &charge);
        let task = &mut self.tasks[ix];
        let again = task.attempt > 0;
        // What it had from an equal call is lost: it runs after all.
        let reused = !again && task.is_committed() && memo;
        task.attempt += 1;
        let number = task.attempt;
        task.phase = Phase::Running(Box::new(Run::new(number, executor, charge, self.now_ms)));
        if task.trace.begun_ms == 0 {
            task.trace.begun_ms = self.now_ms;
        }
        let generator = task.is_generator();
        if again {
            self.count_retry(ix);
        }
        if reused && let Some(stage) = self.stage_of(ix) {
            stage.reused = stage.reused.saturating_sub(1);
        }
        self.attempt_entered(ix);
        self.send_run(ix, number, executor);
        if generator {
            self.grant(ix);
            self.send_credit(ix);
        } else {
            self.watch_pace(ix);
        }
    }

    /// The counts of the task's stage.
    pub(crate) fn stage_of(&mut self, ix: TaskIx) -> Option<&mut fanfold_protocol::rest::Stage> {
        let stage = self.tasks[ix].stage;
        self.job_of(ix).stage_mut(stage)
    }

    /// Counts an attempt beyond the first.
    pub(crate) fn count_retry(&mut self, ix: TaskIx) {
        self.job_of(ix).retries += 1;
        if let Some(stage) = self.stage_of(ix) {
            stage.retries += 1;
        }
    }

    /// Counts an attempt that starts.
    pub(crate) fn attempt_entered(&mut self, ix: TaskIx) {
        let (stage, now_ms) = (self.tasks[ix].stage, self.now_ms);
        let job = self.job_of(ix);
        job.running += 1;
        if let Some(stage) = job.stage_mut(stage) {
            stage.running += 1;
            stage.started_at_ms.get_or_insert(now_ms);
        }
        self.cpu_gained(ix);
    }

    /// The same for one that has ended.
    pub(crate) fn attempt_left(&mut self, ix: TaskIx, run: &Run) {
        let ended = RunView { ended_at_ms: Some(self.now_ms), ..self.run_view(run) };
        self.tasks[ix].trace.left(ended);
        let stage = self.tasks[ix].stage;
        let job = self.job_of(ix);
        job.running -= 1;
        if let Some(stage) = job.stage_mut(stage) {
            stage.running -= 1;
        }
        if run.cpu == Cpu::Held {
            self.cpu_lost(ix, run.charge.cpu_millis, run.since_ms);
        }
    }

    pub(crate) fn send_run(&mut self, ix: TaskIx, number: u32, executor: ExecutorIx) {
        if let Some(assignment) = self.assignment(ix, number) {
            let executor = self.pool.executors[executor].id;
            self.send(executor, ToExecutor::Run(Box::new(assignment)));
        }
    }

    fn assignment(&self, ix: TaskIx, number: u32) -> Option<Assignment> {
        let task = &self.tasks[ix];
        let spec = task.spec.as_ref()?;
        let terms = &*spec.terms;
        let job = &self.jobs[task.job];
        let recorded_root = job.recorded && task.parent.is_none();
        Some(Assignment {
            attempt: AttemptId { task: task.id, epoch: self.epoch, number },
            job: job.id,
            version: terms.version,
            entry: terms.entry.clone(),
            args: self.arguments(task, spec),
            outputs: terms.outputs,
            generator: terms.generator,
            memory: task.memory,
            gpu: terms.gpu,
            timeout_ms: terms.timeout_ms,
            durability: if recorded_root { Durability::Eager } else { terms.durability },
        })
    }

    fn arguments(&self, task: &Task, spec: &Spec) -> Vec<Argument> {
        let plain = |value: &Value| Argument { value: value.clone(), output: None };
        let mut args: Vec<Argument> = spec.args.iter().map(plain).collect();
        for (n, part) in needed_args(task) {
            if let Resolved::Ready(_, output) = self.resolve(part) {
                args[n] = self.argument(&spec.args[n], output);
            }
        }
        args
    }

    /// The argument `value`, whose partition turned out to be `output`. Where that is an alias of blocks or of an
    /// object's range, the value given is narrowed to it.
    fn argument(&self, value: &Value, output: &Output) -> Argument {
        let Output::Alias(target) = output else {
            return Argument { value: value.clone(), output: Some(output.clone()) };
        };
        match (value, target.as_ref()) {
            (Value::Blocks { first, count, .. }, Value::Blocks { partition, first: from, .. }) => {
                let first = from.saturating_add(*first);
                let value = Value::Blocks { partition: *partition, first, count: *count };
                Argument { value, output: self.underlying(target) }
            }
            _ => Argument { value: (**target).clone(), output: self.underlying(target) },
        }
    }

    fn underlying(&self, value: &Value) -> Option<Output> {
        let part = self.part_seen(value.needs()?)?;
        match self.resolve(part) {
            Resolved::Ready(_, output) => Some(output.clone()),
            _ => None,
        }
    }

    fn cpu_gained(&mut self, ix: TaskIx) {
        let job = self.job_of(ix);
        job.computing += 1;
        job.stall_told = false;
    }

    fn cpu_lost(&mut self, ix: TaskIx, cpu_millis: u32, since_ms: u64) {
        let now_ms = self.now_ms;
        let job_ix = self.tasks[ix].job;
        let job = &mut self.jobs[job_ix];
        job.computing -= 1;
        Ready::charge_end(job, cpu_millis, now_ms.saturating_sub(since_ms));
        if job.computing == 0 {
            job.idle_since_ms = now_ms;
            self.arm_stall(job_ix);
        }
    }

    /// The attempt computes no more until it is woken: its cpu is free, its memory is not.
    pub(crate) fn release_cpu(&mut self, ix: TaskIx) {
        let Some(run) = self.tasks[ix].run_mut().filter(|run| run.cpu == Cpu::Held) else { return };
        run.cpu = Cpu::Released;
        let (executor, charge, since_ms) = (run.executor, run.charge, run.since_ms);
        self.pool.block(executor, &charge);
        self.cpu_lost(ix, charge.cpu_millis, since_ms);
    }

    /// What the attempt waits for is there: it goes on as soon as it has a cpu.
    pub(crate) fn wake(&mut self, ix: TaskIx) {
        let epoch = self.epoch;
        let attempt = self.tasks[ix].attempt_id(epoch);
        let Some(run) = self.tasks[ix].run_mut() else { return };
        if run.starved && run.blocked.is_some() {
            // It will be held back at its next yield again and may compute until then without a slot: if it took
            // one it would keep it while it is held back.
            return self.go_on(ix);
        }
        match run.cpu {
            Cpu::Queued => {}
            Cpu::Held => self.go_on(ix),
            Cpu::Released => {
                let executor = &mut self.pool.executors[run.executor];
                if executor.resumes.is_empty() && executor.may_resume(run.charge.cpu_millis) {
                    return self.resume(ix);
                }
                run.cpu = Cpu::Queued;
                executor.resumes.push_back((ix, attempt));
                self.pool.resuming.insert(run.executor);
            }
        }
    }

    fn resume(&mut self, ix: TaskIx) {
        let now_ms = self.now_ms;
        let Some(run) = self.tasks[ix].run_mut() else { return };
        (run.cpu, run.since_ms) = (Cpu::Held, now_ms);
        let (executor, charge) = (run.executor, run.charge);
        self.pool.resume(executor, &charge);
        self.cpu_gained(ix);
        if self.tasks[ix].is_generator() {
            self.send_credit(ix);
        }
        self.go_on(ix);
    }

    fn go_on(&mut self, ix: TaskIx) {
        match self.tasks[ix].run().map(|run| &run.blocked) {
            Some(Some(Blocked::Wait(_))) => self.answer_wait(ix),
            Some(Some(Blocked::Next { .. })) => self.answer_next(ix),
            Some(None) | None => {}
        }
    }

    /// Gives free cpus to attempts that wait to go on, before anything new starts.
    pub(crate) fn serve_resumes(&mut self) {
        if self.pool.resuming.is_empty() {
            return;
        }
        let executors: Vec<ExecutorIx> = self.pool.resuming.iter().copied().collect();
        for executor in executors {
            while self.serve_resume(executor) {}
            if self.pool.executors[executor].resumes.is_empty() {
                self.pool.resuming.remove(&executor);
                self.pool.version += 1;
            }
        }
    }

    fn serve_resume(&mut self, ix: ExecutorIx) -> bool {
        let Some(&(task, attempt)) = self.pool.executors[ix].resumes.front() else { return false };
        let waits = self.current(attempt) == Some(task)
            && self.tasks[task].run().is_some_and(|run| run.cpu == Cpu::Queued);
        let cpu_millis = self.tasks.get(task).and_then(|task| task.run()).map(|run| run.charge.cpu_millis);
        let fits =
            !waits || cpu_millis.is_some_and(|cpu_millis| self.pool.executors[ix].may_resume(cpu_millis));
        if fits {
            self.pool.executors[ix].resumes.pop_front();
        }
        if waits && fits {
            self.resume(task);
        }
        fits
    }

    /// Takes the current attempt away from the task, which is then idle. Its charge is the caller's to settle.
    fn leave_run(&mut self, ix: TaskIx) -> Option<Run> {
        self.unwatch(ix);
        let task = &mut self.tasks[ix];
        let mut run = match std::mem::replace(&mut task.phase, Phase::Idle) {
            Phase::Running(run) => *run,
            other => {
                task.phase = other;
                return None;
            }
        };
        match &run.blocked {
            Some(Blocked::Wait(wait)) => {
                if let Some(timer) = wait.timer {
                    self.timers.cancel(timer);
                }
            }
            Some(Blocked::Next { generator, .. }) => self.forget_taker(*generator, ix),
            None => {}
        }
        self.attempt_left(ix, &run);
        if let Some(executor) = self.pool.executors.get(run.executor) {
            self.tasks[ix].trace.executor = Some(executor.id);
        }
        if let Some(backup) = run.backup.take() {
            self.stop_backup_run(ix, &backup);
        }
        Some(run)
    }

    /// The attempt ended by itself.
    pub(crate) fn end_run(&mut self, ix: TaskIx) {
        if let Some(run) = self.leave_run(ix) {
            self.pool.end(run.executor, &run.charge, run.cpu == Cpu::Held);
        }
    }

    /// The attempt's executor is gone, and with it what was charged there.
    pub(crate) fn lose_run(&mut self, ix: TaskIx) {
        self.leave_run(ix);
    }

    /// Tells the attempt to stop. What it occupies stays charged until its executor says that it has.
    pub(crate) fn stop_run(&mut self, ix: TaskIx, error: Error) {
        let attempt = self.tasks[ix].attempt_id(self.epoch);
        let Some(run) = self.leave_run(ix) else { return };
        self.pool.stop(run.executor, attempt, &run.charge, run.cpu == Cpu::Held);
        let executor = self.pool.executors[run.executor].id;
        self.send(executor, ToExecutor::Stop { attempt, error });
    }
}
