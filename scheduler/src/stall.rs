//! The watch over jobs that stand still. A job with something to run that runs nothing for five seconds is a bug, of
//! the platform or of its function, and says so itself.

use crate::{
    Command, Scheduler,
    slab::{JobIx, TaskIx},
    task::{Blocked, Cpu, Phase},
    timer::Timer,
};

/// How long a job may run nothing before it is looked at.
const STALL_MS: u64 = 5000;

impl Scheduler {
    /// Has the job looked at in a while. At most one timer per job, set at most every five seconds.
    pub(crate) fn arm_stall(&mut self, ix: JobIx) {
        let job = &mut self.jobs[ix];
        if job.stall_timer.is_none() {
            let at_ms = job.idle_since_ms.max(self.now_ms.saturating_sub(STALL_MS - 1)) + STALL_MS;
            job.stall_timer = Some(self.timers.set(at_ms, Timer::Stall(ix)));
        }
    }

    pub(crate) fn check_stall(&mut self, ix: JobIx) {
        let now_ms = self.now_ms;
        let job = &mut self.jobs[ix];
        job.stall_timer = None;
        if job.computing > 0 {
            return; // It is set again when nothing runs.
        }
        if now_ms >= job.idle_since_ms + STALL_MS {
            let tell = !job.stall_told && self.stands_still(ix);
            let job = &mut self.jobs[ix];
            job.idle_since_ms = now_ms;
            if tell {
                job.stall_told = true;
                let id = job.id;
                let reason = self.waiting_reason(id).unwrap_or_default();
                self.command(Command::Stalled { job: id, reason });
            }
        }
        self.arm_stall(ix);
    }

    /// Whether nothing that happens by itself will set the job going: no timer, no busy executor.
    fn stands_still(&self, ix: JobIx) -> bool {
        let waits_for_store = self.jobs[ix].end.timer.is_some();
        !waits_for_store && !self.tasks_of(ix).into_iter().any(|task| self.goes_on_by_itself(task))
    }

    fn goes_on_by_itself(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        match &task.phase {
            Phase::Idle | Phase::Waiting { .. } => false,
            Phase::Backoff(_) => true,
            Phase::Ready(_) => self.may_come_to_fit(ix),
            Phase::Running(run) => match (&run.blocked, run.cpu) {
                (Some(Blocked::Wait(wait)), _) if wait.timer.is_some() => true,
                (_, Cpu::Queued) => self.pool.executors[run.executor].used.cpu_millis > 0,
                _ => false,
            },
        }
    }

    /// Whether an executor that could run the task is busy with something else.
    fn may_come_to_fit(&self, ix: TaskIx) -> bool {
        let Some(needs) = self.needs_of(ix) else { return false };
        let busy = |executor: &crate::executor::Executor| {
            executor.used.cpu_millis > 0 || !executor.stopping.is_empty()
        };
        self.pool.executors.iter().any(|(_, executor)| executor.could_fit(&needs) && busy(executor))
    }
}
