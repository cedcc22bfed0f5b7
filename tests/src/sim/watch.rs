//! What is watched while a run goes on: what must hold, and branches that should be taken at least once over all seeds.

use fanfold_protocol::{
    AttemptId, Code, Error, TaskId,
    message::{FromExecutor, ToExecutor},
    value::Output,
};

use super::run::{Run, key_of};

impl Run {
    pub(super) fn watch_sent(&mut self, message: &ToExecutor) {
        match message {
            ToExecutor::Run(run) => {
                let task = run.attempt.task;
                if !self.started.insert(run.attempt) {
                    self.world.violation(format!("{:?} was started twice", run.attempt));
                }
                *self.runs.entry(task).or_default() += 1;
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
                match error.code {
                    Code::Deadline => self.world.note("a deadline passed"),
                    Code::PartitionLost => {
                        self.world.note("an attempt was started anew for what it had made")
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
        match result {
            Ok(outputs) => {
                if self.world.stopped.contains(&attempt) {
                    self.world.note("a late result was fenced");
                } else {
                    self.finished.insert(attempt.task);
                }
                self.told.extend(outputs.iter().filter_map(key_of));
            }
            Err(_) if self.world.stopped.contains(&attempt) => {}
            Err(_) => {
                *self.own_failures.entry(attempt.task).or_default() += 1;
                self.replayed |= self.drivers.contains(&attempt.task);
            }
        }
    }
}
