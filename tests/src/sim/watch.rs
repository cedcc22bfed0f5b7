//! What is watched while a run goes on: what must hold, and branches that should be taken at least once over all seeds.

use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, TaskId,
    link::Held,
    message::{FromExecutor, ToExecutor},
    value::{Output, StoredKey},
};
use fanfold_scheduler::Command;
use rand::Rng as _;

use super::{
    plan::Fault,
    run::{Run, key_of},
    world::Happening,
};

impl Run {
    /// The executor's attempts are given up.
    pub(super) fn watch_left(&mut self, executor: ExecutorId) {
        let mut taken_over = false;
        for attempts in self.believed.values_mut() {
            let two = attempts.len() == 2;
            attempts.retain(|_, at| *at != executor);
            taken_over |= two && attempts.len() == 1;
        }
        if taken_over {
            self.world.note("one of two attempts was lost with its executor");
        }
    }

    /// What became of the copies that an executor has brought along.
    pub(super) fn watch_held(&mut self, held: &[Held], out: &[Command]) {
        let freed = |key: &StoredKey| {
            out.iter().any(|command| match command {
                Command::Send { message: ToExecutor::Free(keys), .. } => keys.contains(key),
                _ => false,
            })
        };
        for Held { key, .. } in held {
            self.world.note(match (freed(key), key.epoch == self.world.epoch) {
                (true, _) => "a copy came back that nobody knew any more",
                (false, true) => "a copy came back and counted again",
                (false, false) => "a new owner took over a copy",
            });
        }
    }

    fn watch_started(&mut self, executor: ExecutorId, attempt: AttemptId) {
        if !self.started.insert(attempt) {
            self.world.violation(format!("{attempt:?} was started twice"));
        }
        let believed = self.believed.entry(attempt.task).or_default();
        let elsewhere = believed.values().all(|at| *at != executor);
        believed.insert(attempt, executor);
        match believed.len() {
            1 => *self.runs.entry(attempt.task).or_default() += 1,
            2 if elsewhere => {
                let executors = believed.values().copied().collect();
                self.disturb_backup(executor, executors);
            }
            _ => self.world.violation(format!("{attempt:?} is one of too many attempts: {believed:?}")),
        }
    }

    /// Two attempts of a task are a short while: here is what shall happen in it now and then.
    fn disturb_backup(&mut self, backup: ExecutorId, both: Vec<ExecutorId>) {
        self.world.note("a backup was started");
        match self.world.rng.random_range(0..4) {
            0 if !self.world.nothing_lost => {
                let victim = both[self.world.rng.random_range(0..2)];
                self.world.within(30, Happening::Fault(Fault::KillThis(victim)));
            }
            // Slower than the straggler, so that this one wins after all.
            1 | 2 => {
                self.world.nodes.entry(backup).and_modify(|node| node.slow = 1000);
            }
            _ => {}
        }
    }

    pub(super) fn watch_sent(&mut self, executor: ExecutorId, message: &ToExecutor) {
        match message {
            ToExecutor::Run(run) => {
                let task = run.attempt.task;
                self.watch_started(executor, run.attempt);
                let program: usize = run.entry.parse().unwrap_or_default();
                if run.memory > self.world.programs[program].memory {
                    self.world.note("memory was doubled");
                }
                if self.finished.contains(&task) {
                    self.world.note("a committed task ran again");
                }
            }
            ToExecutor::Stop { attempt, error } => {
                self.world.stopped.insert(*attempt);
                self.believed.entry(attempt.task).or_default().remove(attempt);
                match error.code {
                    Code::Deadline => self.world.note("a deadline passed"),
                    Code::PartitionLost => {
                        self.world.note("an attempt was started anew for what it had made")
                    }
                    Code::Cancelled if error.message.contains("another attempt") => {
                        let mut others = self.believed[&attempt.task].keys();
                        let backup = others.any(|other| other.number < attempt.number);
                        self.world.note(if backup {
                            "a backup was stopped"
                        } else {
                            "a backup finished first"
                        });
                    }
                    Code::Cancelled if error.message.contains("nothing refers") => {
                        self.world.note("an orphan was cancelled");
                    }
                    _ => {}
                }
            }
            ToExecutor::Woken { attempt, wait, ready } => {
                let choice = self.choices.get(attempt).and_then(|choices| choices.get(wait));
                let first = choice.and_then(|choice| self.short.get(&(attempt.task, *choice)));
                if first.is_some_and(|first| first != attempt) {
                    self.world.note("a short answer was given again to a replay");
                }
                for (_, result) in ready {
                    match result.as_ref().map_err(|error| error.code) {
                        Err(Code::NonDeterministic) => self.world.note("a lie was found out"),
                        Err(Code::PartitionLost) => self.world.note("a partition was lost for good"),
                        Ok(Output::Stored(stored)) if stored.at.is_none() && !stored.durable => {
                            self.world.note("a replay was told of what was given up");
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn watch_answer(&mut self, task: TaskId, wait: u64, ready: &[u32]) {
        let Some(&(count, _)) = self.waits.get(&(task, wait)) else { return };
        let latest = self
            .started
            .range(AttemptId { task, epoch: 0, number: 0 }..)
            .take_while(|a| a.task == task)
            .last();
        if let Some(&attempt) = latest {
            if ready.len() < count as usize {
                self.world.note("a timed-out wait was recorded");
            }
            self.short.insert((task, wait), attempt);
        }
    }

    pub(super) fn watch_received(&mut self, message: &FromExecutor) {
        match message {
            FromExecutor::Wait { attempt, wait, on, count, timeout_ms } => {
                if timeout_ms.is_some() || (*count as usize) < on.len() {
                    let choices = self.choices.entry(*attempt).or_default();
                    let number = choices.len() as u64;
                    let number = *choices.entry(*wait).or_insert(number);
                    self.waits.insert((attempt.task, number), (*count, on.len()));
                }
                self.drivers.insert(attempt.task);
            }
            FromExecutor::Finished { attempt, result, .. } => self.watch_finished(*attempt, result),
            FromExecutor::Put { value, .. } | FromExecutor::Yield { value, .. } => {
                self.told.extend(key_of(value))
            }
            _ => {}
        }
    }

    pub(super) fn watch_finished(&mut self, attempt: AttemptId, result: &Result<Vec<Output>, Error>) {
        let believed = self.believed.entry(attempt.task).or_default().remove(&attempt).is_some();
        match result {
            Ok(outputs) => {
                if !believed {
                    self.world.note("a late result was fenced");
                } else {
                    self.finished.insert(attempt.task);
                }
                self.told.extend(outputs.iter().filter_map(key_of));
            }
            Err(_) if !believed => {}
            Err(_) => {
                *self.own_failures.entry(attempt.task).or_default() += 1;
                self.replayed |= self.drivers.contains(&attempt.task);
            }
        }
    }
}
