//! Backup attempts: a task that takes far longer than others of its kind is started once more elsewhere.
//!
//! Only a task that does nothing but compute has one: deterministic, no generator, and without calls, puts or waits so
//! far. Both attempts have tokens of their own; the backup may finish and do nothing else. Whichever finishes first is
//! the task's attempt, and the other is stopped: what it still says is late, like that of any stopped attempt. As soon
//! as either acts as a driver there is one attempt only, the first, so that calls and answers never come from two.
//!
//! A job looks at its attempts twice a second while it has any that might be slow.

use std::collections::{HashMap, VecDeque};

use fanfold_protocol::{AttemptId, Code, Digest, Error, Kind, call::Placement, message::ToExecutor};

use crate::{
    Scheduler,
    interest::Resolved,
    placement::needed_args,
    slab::{ExecutorIx, JobIx, TaskIx},
    task::{Run, Task},
    timer::{Timer, TimerKey},
};

/// No attempt is slow before this: below it, starting another one gains nothing.
const SLOW_MS_MIN: u64 = 1000;
/// An attempt is slow when it takes longer than this many medians of its class.
const SLOW_MEDIANS: u64 = 3;
/// Finished tasks of a class before its median says anything.
const TIMES_MIN: usize = 5;
/// Run times kept of a class, the latest.
const TIMES_KEPT: usize = 32;
/// One backup for so many running attempts of the job (and always one).
const RUNNING_PER_BACKUP: u64 = 10;
/// Time between two looks.
const LOOK_MS: u64 = 500;

/// How fast a job's tasks are.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Attempts that may become slow, in the order they began. Those that have ended are let go of at every look and
    /// whenever there is no room for one more, so there are at most about twice as many as run.
    watched: VecDeque<Watched>,
    pub timer: Option<TimerKey>,
    /// Backups that run.
    backups: u64,
    /// By stage (the entry) and version.
    times: HashMap<(u32, Digest), Times>,
}

/// A task, its ordinal (its index may be used again) and the number of its attempt.
type Watched = (TaskIx, u32, u32);

/// The latest run times of a class in milliseconds, in no order.
#[derive(Debug, Default)]
struct Times {
    recent: Vec<u32>,
    next: usize,
}

impl Times {
    fn add(&mut self, ms: u64) {
        let ms = u32::try_from(ms).unwrap_or(u32::MAX);
        match self.recent.get_mut(self.next) {
            Some(oldest) => *oldest = ms,
            None => self.recent.push(ms),
        }
        self.next = (self.next + 1) % TIMES_KEPT;
    }

    /// Beyond which an attempt is slow, once enough is known.
    fn slow_ms(&self) -> Option<u64> {
        if self.recent.len() < TIMES_MIN {
            return None;
        }
        let mut sorted = self.recent.clone();
        sorted.sort_unstable();
        let median = u64::from(sorted[sorted.len() / 2]);
        Some(SLOW_MS_MIN.max(SLOW_MEDIANS * median))
    }
}

impl Scheduler {
    /// Keeps an eye on an attempt that has begun.
    pub(crate) fn watch_pace(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let (job_ix, entry) = (task.job, (ix, task.ordinal, task.attempt));
        if task.parent.is_none() || !may_have_backup(task) {
            return;
        }
        let mut watched = std::mem::take(&mut self.jobs[job_ix].pace.watched);
        if watched.len() == watched.capacity() {
            self.let_go(job_ix, &mut watched);
        }
        watched.push_back(entry);
        let job = &mut self.jobs[job_ix];
        job.pace.watched = watched;
        if job.pace.timer.is_none() {
            job.pace.timer = Some(self.timers.set(self.now_ms + SLOW_MS_MIN, Timer::Stragglers(job_ix)));
        }
    }

    /// The task's attempt is about to commit: how long it took counts for its class.
    pub(crate) fn note_pace(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let (Some(run), Some(spec)) = (task.run(), &task.spec) else { return };
        if task.parent.is_some() && !is_driver(task, run) {
            let took_ms = self.now_ms.saturating_sub(run.since_ms);
            let class = (task.stage, spec.terms.version);
            self.job_of(ix).pace.times.entry(class).or_default().add(took_ms);
        }
    }

    /// Starts backups for what is slow, as far as there is room.
    pub(crate) fn look_for_stragglers(&mut self, job_ix: JobIx) {
        let mut watched = std::mem::take(&mut self.jobs[job_ix].pace.watched);
        self.let_go(job_ix, &mut watched);
        for &(ix, ..) in &watched {
            let job = &self.jobs[job_ix];
            let most = (job.running / RUNNING_PER_BACKUP).max(1);
            if job.pace.backups >= most || !self.is_old(ix) {
                break; // They are in the order they began.
            }
            if self.is_slow(ix)
                && self.has_arguments(ix)
                && let Some(executor) = self.idle_elsewhere(ix)
            {
                self.start_backup(ix, executor);
            }
        }
        let again = !watched.is_empty();
        let timer = again.then(|| self.timers.set(self.now_ms + LOOK_MS, Timer::Stragglers(job_ix)));
        let pace = &mut self.jobs[job_ix].pace;
        (pace.watched, pace.timer) = (watched, timer);
    }

    /// Removes attempts that have ended or will have no backup.
    fn let_go(&self, job: JobIx, watched: &mut VecDeque<Watched>) {
        watched.retain(|&(ix, ordinal, number)| {
            let task = self.tasks.get(ix).filter(|task| task.job == job && task.ordinal == ordinal);
            task.is_some_and(|task| task.attempt_number() == number && may_have_backup(task))
        });
    }

    fn elapsed_ms(&self, ix: TaskIx) -> u64 {
        self.tasks[ix].run().map_or(0, |run| self.now_ms.saturating_sub(run.since_ms))
    }

    fn is_old(&self, ix: TaskIx) -> bool {
        self.elapsed_ms(ix) >= SLOW_MS_MIN
    }

    fn is_slow(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        let Some(spec) = &task.spec else { return false };
        let times = self.jobs[task.job].pace.times.get(&(task.stage, spec.terms.version));
        times.and_then(Times::slow_ms).is_some_and(|slow_ms| self.elapsed_ms(ix) > slow_ms)
    }

    /// Whether what it was given is all still there.
    fn has_arguments(&self, ix: TaskIx) -> bool {
        needed_args(&self.tasks[ix]).all(|(_, part)| matches!(self.resolve(part), Resolved::Ready(..)))
    }

    /// The executor with the most room for another attempt of the task, of those that do not run it. What runnable
    /// tasks could use is not idle: they were placed before this.
    fn idle_elsewhere(&self, ix: TaskIx) -> Option<ExecutorIx> {
        let run = self.tasks[ix].run()?;
        let idle = self.pool.executors.iter().filter(|(other, executor)| {
            *other != run.executor
                && !executor.leaving
                && run.charge.fits(&executor.free())
                && executor.resumes.is_empty()
                && self.kept_for(executor).is_none()
        });
        let roomiest = idle.max_by_key(|(ix, executor)| {
            let free = executor.free();
            (free.cpu_millis, free.memory, std::cmp::Reverse(*ix))
        });
        roomiest.map(|(ix, _)| ix)
    }

    fn start_backup(&mut self, ix: TaskIx, executor: ExecutorIx) {
        let task = &mut self.tasks[ix];
        let number = task.attempt + 1;
        let Some(run) = task.run_mut() else { return };
        let charge = run.charge;
        run.backup = Some(Box::new(Run::new(number, executor, charge, self.now_ms)));
        task.attempt = number;
        task.flags.backed_up = true;
        self.pool.start(executor, &charge);
        self.job_of(ix).pace.backups += 1;
        self.count_retry(ix);
        self.attempt_entered(ix);
        self.send_run(ix, number, executor);
    }

    /// The task whose backup `attempt` is.
    pub(crate) fn backed_up_by(&self, attempt: AttemptId) -> Option<TaskIx> {
        let ix = *self.task_index.get(&attempt.task).filter(|_| attempt.epoch == self.epoch)?;
        let backup = self.tasks[ix].run()?.backup.as_ref()?;
        (backup.number == attempt.number).then_some(ix)
    }

    /// The attempt does what only drivers do. If it has a backup, or is one, that ends.
    pub(crate) fn acts_as_driver(&mut self, attempt: AttemptId) {
        let Some(ix) = self.current(attempt).or_else(|| self.backed_up_by(attempt)) else { return };
        if let Some(backup) = self.tasks[ix].run_mut().and_then(|run| run.backup.take()) {
            self.stop_backup_run(ix, &backup);
        }
    }

    /// The backup, which is no longer the task's, is told to stop.
    pub(crate) fn stop_backup_run(&mut self, ix: TaskIx, backup: &Run) {
        self.backup_left(ix, backup);
        self.stop_attempt(ix, backup);
    }

    fn backup_left(&mut self, ix: TaskIx, backup: &Run) {
        self.job_of(ix).pace.backups -= 1;
        self.attempt_left(ix, backup);
    }

    fn stop_attempt(&mut self, ix: TaskIx, run: &Run) {
        let attempt = AttemptId { task: self.tasks[ix].id, epoch: self.epoch, number: run.number };
        self.pool.stop(run.executor, attempt, &run.charge, true);
        let executor = self.pool.executors[run.executor].id;
        let error =
            Error::new(Kind::Platform, Code::Cancelled, "another attempt of the task is the one that counts");
        self.send(executor, ToExecutor::Stop { attempt, error: error.retryable(false) });
    }

    /// The backup takes the place of the task's attempt, which is returned.
    fn promote_backup(&mut self, ix: TaskIx) -> Option<Run> {
        let run = self.tasks[ix].run_mut()?;
        let backup = run.backup.take()?;
        let former = std::mem::replace(run, *backup);
        self.job_of(ix).pace.backups -= 1;
        self.attempt_left(ix, &former);
        Some(former)
    }

    /// The backup has finished first.
    pub(crate) fn backup_won(&mut self, ix: TaskIx) {
        if let Some(former) = self.promote_backup(ix) {
            self.stop_attempt(ix, &former);
        }
    }

    /// The backup ended without a result: its task has the other attempt.
    pub(crate) fn backup_ended(&mut self, ix: TaskIx) {
        if let Some(backup) = self.tasks[ix].run_mut().and_then(|run| run.backup.take()) {
            self.backup_left(ix, &backup);
            self.pool.end(backup.executor, &backup.charge, true);
        }
    }

    /// The attempt was not begun, and its backup goes on in its place. Whether it has one.
    pub(crate) fn backup_replaces(&mut self, ix: TaskIx) -> bool {
        let former = self.promote_backup(ix);
        if let Some(former) = &former {
            self.pool.end(former.executor, &former.charge, true);
        }
        former.is_some()
    }

    /// `left` is gone. Whether the task has an attempt elsewhere.
    pub(crate) fn lose_backed_run(&mut self, ix: TaskIx, left: ExecutorIx) -> bool {
        let Some(run) = self.tasks[ix].run_mut().filter(|run| run.backup.is_some()) else { return false };
        if run.executor == left {
            self.promote_backup(ix);
        } else if let Some(backup) = run.backup.take() {
            self.backup_left(ix, &backup);
        }
        true
    }
}

fn may_have_backup(task: &Task) -> bool {
    let bound = |placement| matches!(placement, Placement::On { strict: true, .. });
    let suits =
        task.spec.as_ref().is_some_and(|spec| spec.terms.deterministic && !bound(spec.terms.placement));
    suits && !task.flags.backed_up && task.run().is_some_and(|run| !is_driver(task, run))
}

/// Whether the attempt has done more than compute.
fn is_driver(task: &Task, run: &Run) -> bool {
    task.driver.is_some() || task.is_generator() || run.wait_next > 0
}
