//! `wait`: answering attempts that wait for partitions, and remembering answers that a replay must get again.
//!
//! An answer is decided at the moment the attempt has a cpu to go on with, not when the last partition arrived. A
//! wait for fewer than all or with a timeout could be answered otherwise on replay, so its answer is recorded; any
//! other answer follows from the partitions themselves.

use fanfold_protocol::{
    AttemptId, Code, Error, Kind, PartitionId, limit, message::ToExecutor, record::Record, value::Output,
};

use crate::{
    Scheduler,
    interest::Resolved,
    output::{Content, Was},
    slab::TaskIx,
    task::{Blocked, Part, Wait},
    timer::Timer,
};

/// How an awaited partition stands.
enum Standing<'a> {
    Ready(&'a Output),
    /// It was made and given up since. The waiter, a replay, gets what it was: most replays only pass it on or never
    /// look at it, and one that reads it reports the loss and waits again.
    Stale(&'a fanfold_protocol::value::Stored),
    Failed(&'a Error),
    Pending(Part),
}

impl Scheduler {
    pub(crate) fn wait(
        &mut self,
        attempt: AttemptId,
        number: u64,
        on: &[PartitionId],
        count: u32,
        timeout_ms: Option<u64>,
    ) {
        let Some(ix) = self.current(attempt) else { return };
        if !self.is_new_wait(ix, number) {
            return;
        }
        if on.len() > limit::WAIT_FUTURES_MAX || count as usize > on.len() {
            let message = format!(
                "a wait for {count} of {} futures: at most {} can be waited for at once, and no more than given",
                on.len(),
                limit::WAIT_FUTURES_MAX
            );
            return self.attempt_broken(ix, Error::invalid(message));
        }
        let job = self.tasks[ix].job;
        let on: Vec<Option<Part>> = on.iter().map(|&id| self.part(job, id)).collect();
        on.iter().flatten().for_each(|&part| self.adopt(ix, part));
        let choice = (timeout_ms.is_some() || (count as usize) < on.len()).then(|| self.next_choice(ix));
        let recorded = choice.and_then(|choice| self.recorded_answer(ix, choice));
        if recorded.iter().flatten().any(|&position| position as usize >= on.len()) {
            return self.attempt_broken(ix, self.waits_otherwise(ix));
        }
        let waits = recorded.is_none() && timeout_ms != Some(0);
        let timer = timeout_ms
            .filter(|_| waits)
            .map(|timeout_ms| self.timers.set(self.now_ms.saturating_add(timeout_ms), Timer::Wait(ix)));
        let wait =
            Wait { number, on, count, ready: 0, choice, recorded, timer, timed_out: timeout_ms == Some(0) };
        if let Some(run) = self.tasks[ix].run_mut() {
            run.blocked = Some(Blocked::Wait(Box::new(wait)));
        }
        self.answer_wait(ix);
    }

    /// Whether this is no repeated message; drops an older wait that is still open.
    pub(crate) fn is_new_wait(&mut self, ix: TaskIx, number: u64) -> bool {
        let Some(run) = self.tasks[ix].run_mut() else { return false };
        if number < run.wait_next {
            return false;
        }
        run.wait_next = number + 1;
        match run.blocked.take() {
            Some(Blocked::Wait(wait)) => {
                if let Some(timer) = wait.timer {
                    self.timers.cancel(timer);
                }
                self.unwatch(ix);
            }
            Some(Blocked::Next { generator, .. }) => self.forget_taker(generator, ix),
            None => {}
        }
        true
    }

    fn waits_otherwise(&self, ix: TaskIx) -> Error {
        let message = format!(
            "task {} waits for other futures than when it ran before: its function is not deterministic",
            self.tasks[ix].id
        );
        Error::new(Kind::Guest, Code::NonDeterministic, message)
    }

    /// The number of a wait among those whose answer is a matter of time. Other waits do not count: an attempt that
    /// cannot read a partition waits for it once more, and another attempt does not.
    fn next_choice(&mut self, ix: TaskIx) -> u64 {
        let Some(run) = self.tasks[ix].run_mut() else { return 0 };
        run.choices += 1;
        run.choices - 1
    }

    fn recorded_answer(&mut self, ix: TaskIx, number: u64) -> Option<Box<[u32]>> {
        let id = self.tasks[ix].id;
        if let Some(positions) = self.job_of(ix).replay.waited.remove(&(id, number)) {
            self.tasks[ix].driver_mut().waited.insert(number, positions.into());
        }
        self.tasks[ix].driver.as_ref()?.waited.get(&number).cloned()
    }

    fn standing(&self, part: Part) -> Standing<'_> {
        let pending = match self.resolve(part) {
            Resolved::Ready(_, output) => return Standing::Ready(output),
            Resolved::Failed(error) => return Standing::Failed(error),
            Resolved::Pending(pending) => pending,
        };
        match self.slot(pending).map(|slot| &slot.content) {
            Some(Content::Gone(gone)) if gone.freed => match &gone.was {
                Was::Stored(stored) => Standing::Stale(stored),
                _ => Standing::Pending(pending),
            },
            _ => Standing::Pending(pending),
        }
    }

    /// Answers the attempt's wait if enough is ready; else it goes on waiting, without its cpu.
    pub(crate) fn answer_wait(&mut self, ix: TaskIx) {
        let Some(run) = self.tasks[ix].run_mut() else { return };
        let Some(Blocked::Wait(mut wait)) = run.blocked.take() else { return };
        let pending = |(n, part): (u32, Part)| match self.standing(part) {
            Standing::Pending(pending) => Some((n, pending)),
            _ => None,
        };
        let on = |n: u32| Some((n, wait.on[n as usize]?));
        let missing: Vec<(u32, Part)> = wait.positions().filter_map(on).filter_map(pending).collect();
        wait.ready = wait.positions().count() as u32 - missing.len() as u32;
        if wait.ready >= wait.needed() {
            return self.send_answer(ix, *wait);
        }
        if let Some(run) = self.tasks[ix].run_mut() {
            run.blocked = Some(Blocked::Wait(wait));
        }
        self.unwatch(ix);
        for (position, part) in missing {
            self.watch(ix, part, position);
        }
        self.release_cpu(ix);
    }

    fn send_answer(&mut self, ix: TaskIx, wait: Wait) {
        self.unwatch(ix);
        if let Some(timer) = wait.timer {
            self.timers.cancel(timer);
        }
        let answer = |n: u32| {
            let Some(part) = wait.on[n as usize] else {
                let error = Error::not_found(Code::Partition, "no such partition in this job");
                return Some((n, Err(error)));
            };
            match self.standing(part) {
                Standing::Ready(output) => Some((n, Ok(output.clone()))),
                Standing::Stale(stored) => Some((n, Ok(Output::Stored(stored.clone())))),
                Standing::Failed(error) => Some((n, Err(error.clone()))),
                Standing::Pending(_) => None,
            }
        };
        let ready: Vec<(u32, Result<Output, Error>)> = wait.positions().filter_map(answer).collect();
        if let Some(choice) = wait.choice.filter(|_| wait.recorded.is_none()) {
            self.record_answer(ix, choice, ready.iter().map(|(n, _)| *n).collect());
        }
        let attempt = self.tasks[ix].attempt_id(self.epoch);
        self.send_to_run(ix, ToExecutor::Woken { attempt, wait: wait.number, ready });
    }

    fn record_answer(&mut self, ix: TaskIx, wait: u64, ready: Vec<u32>) {
        let task = &mut self.tasks[ix];
        task.driver_mut().waited.insert(wait, ready.as_slice().into());
        let task = task.id;
        self.log(ix, |job| Record::Waited { job, task, wait, ready });
    }

    pub(crate) fn wait_timed_out(&mut self, ix: TaskIx) {
        let Some(Blocked::Wait(wait)) = self.tasks[ix].run_mut().and_then(|run| run.blocked.as_mut()) else {
            return;
        };
        wait.timer = None;
        wait.timed_out = true;
        self.wake(ix);
    }
}
