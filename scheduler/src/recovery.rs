//! Lost partitions: noticing, and making again the smallest set of tasks.
//!
//! Losing a copy only marks it. Somebody who needs the output waits for it, and waiting is what has its task run
//! again; that task's own arguments may be gone, and then it waits for them in the same way.

use fanfold_protocol::{
    AttemptId, Code, Error, Kind,
    value::{Output, Stored, StoredKey},
};

use crate::{
    Scheduler,
    output::{Content, Gone, Was},
    scheduler::Work,
    slab::TaskIx,
    task::{Outcome, Part, Phase},
};

impl Scheduler {
    /// The output's executor has left: a copy that only it had is away.
    pub(crate) fn copy_away(&mut self, part: Part) {
        let job = self.tasks[part.task].job;
        let Some(Content::Made(output)) = self.slot_mut(part).map(|slot| &mut slot.content) else { return };
        let Output::Stored(stored) = output.as_mut() else { return };
        if stored.durable {
            stored.at = None;
            return;
        }
        let stored = stored.clone();
        self.set_gone(part, Gone { was: Was::Stored(stored), freed: false });
        self.agenda.push_back(Work::End(job));
    }

    /// An attempt could not read a copy.
    pub(crate) fn lost(&mut self, attempt: AttemptId, key: StoredKey) {
        let Some(ix) = self.current(attempt).or_else(|| self.backed_up_by(attempt)) else { return };
        let job = self.tasks[ix].job;
        if key.is_memo() {
            let parts = self.reused_as(job, &key);
            return parts.into_iter().for_each(|part| self.lost_copy(part, key));
        }
        let known = self.part_seen(key.partition).filter(|part| self.tasks[part.task].job == job);
        if let Some(part) = known {
            self.lost_copy(part, key);
        }
    }

    fn lost_copy(&mut self, part: Part, key: StoredKey) {
        let job = self.tasks[part.task].job;
        let gone: Option<Stored> = match self.slot_mut(part).map(|slot| &mut slot.content) {
            Some(Content::Made(output)) => match output.as_ref() {
                Output::Stored(stored) if stored.key == key => Some(stored.clone()),
                _ => None,
            },
            Some(Content::Gone(gone)) => {
                // What a replay was told stood for something given up is wanted after all.
                if matches!(&gone.was, Was::Stored(stored) if stored.key == key) {
                    gone.freed = false;
                }
                None
            }
            _ => None,
        };
        if let Some(stored) = gone {
            self.lose(part, stored);
            self.agenda.push_back(Work::End(job));
        }
    }

    /// The copy is of no use: it is dropped wherever it is, and made again when somebody needs it.
    pub(crate) fn lose(&mut self, part: Part, stored: Stored) {
        self.free_stored(&stored, true);
        self.set_gone(part, Gone { was: Was::of(Output::Stored(stored)), freed: false });
    }

    pub(crate) fn durable(&mut self, key: StoredKey) {
        self.holdings.durable(&key);
        let Some(&task) = self.task_index.get(&key.partition.task) else { return };
        let job = self.tasks[task].job;
        if self.jobs[job].id != key.job {
            return;
        }
        let part = Part { task, output: key.partition.output };
        match self.slot_mut(part).map(|slot| &mut slot.content) {
            Some(Content::Made(output)) if is_copy(output, &key) => {
                if let Output::Stored(stored) = output.as_mut() {
                    stored.durable = true;
                }
                if self.jobs[job].end.timer.is_some() {
                    self.agenda.push_back(Work::End(job));
                }
            }
            _ => self.durable_early(task, key),
        }
    }

    /// The upload was faster than the word that there is something to upload.
    fn durable_early(&mut self, task: TaskIx, key: StoredKey) {
        let epoch = self.epoch;
        let Some(run) = self.tasks[task].run_mut().filter(|_| key.epoch == epoch) else { return };
        if run.number == key.attempt {
            run.early_durable.push(key);
        } else if let Some(backup) = run.backup.as_mut().filter(|backup| backup.number == key.attempt) {
            backup.early_durable.push(key);
        }
    }

    /// Takes into account what was heard of an output's upload before the output itself.
    pub(crate) fn note_early(&mut self, task: TaskIx, output: &mut Output) {
        let Output::Stored(stored) = output else { return };
        let early = self.tasks[task].run().is_some_and(|run| run.early_durable.contains(&stored.key));
        stored.durable |= early;
    }

    /// Somebody waits for `part`: if nobody is making it, its task runs again.
    pub(crate) fn need(&mut self, part: Part) {
        let Some(task) = self.tasks.get(part.task) else { return };
        let Some(slot) = task.slot(part.output).filter(|slot| slot.interest.is_some()) else { return };
        let failed = matches!(task.outcome, Outcome::Failed(_)) || task.flags.unmakeable;
        if failed || matches!(slot.content, Content::Made(_)) {
            return self.agenda.push_back(Work::Settled(part));
        }
        let Some(gone) = slot.gone() else {
            return; // It was never made, and its task is on the way.
        };
        if gone.away().is_some() && self.holdings.is_grace() {
            return; // The executor that has it may be about to come.
        }
        if let Some(feed) = self.tasks[part.task].feed.as_mut().filter(|feed| feed.needed <= part.output) {
            feed.needed = part.output + 1;
            self.give_credit(part.task);
        }
        let task = &self.tasks[part.task];
        match (&task.outcome, &task.phase) {
            (_, Phase::Running(run)) if run.has_made(part.output) => self.restart(part),
            (Outcome::Committed, Phase::Idle) => self.remake(part.task),
            _ => {} // It is about to run anyway.
        }
    }

    /// Runs a committed task again for its outputs that are gone.
    pub(crate) fn remake(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        if !task.is_committed() || !task.is_idle() || task.flags.unmakeable {
            return;
        }
        if task.spec.as_ref().is_some_and(|spec| !spec.terms.deterministic) {
            let message = format!(
                "a partition of task {} was lost and cannot be made again: its function is not deterministic",
                task.id
            );
            return self.remake_failed(ix, partition_lost(message));
        }
        if task.spec.is_none() {
            return self.recall_call(ix);
        }
        self.unwatch(ix);
        self.acquire_args(ix);
        self.expect_questions_again(ix);
        self.enqueue(ix);
    }

    /// An executor has come back with an output of the task: if no other one is awaited, it need not run again.
    pub(crate) fn withdraw(&mut self, ix: TaskIx) {
        let task = &self.tasks[ix];
        let is_missing =
            |output| task.slot(output).is_some_and(|slot| slot.interest.is_some() && slot.gone().is_some());
        let is_remade = task.is_committed() && !task.is_idle() && task.driver.is_none();
        if is_remade && !task.is_generator() && !task.output_numbers().any(is_missing) {
            self.stop_remaking(ix, "its outputs are there again");
        }
    }

    /// What the task was called with is not known any more, or not yet: its driver has to call it again.
    fn recall_call(&mut self, ix: TaskIx) {
        let Some(parent) = self.tasks[ix].parent else {
            return self.remake_failed(ix, partition_lost("a lost partition's task is not known"));
        };
        let driver = &self.tasks[parent];
        let called = self.tasks[ix].called_by;
        match (&driver.outcome, &driver.phase) {
            (Outcome::Failed(_), Phase::Idle) => {
                self.remake_failed(
                    ix,
                    partition_lost("a partition was lost and the driver of its task has failed"),
                );
            }
            (_, Phase::Running(run)) if called == run.number => {
                self.remake_failed(ix, partition_lost("a partition was given up: nothing referred to it"));
            }
            _ => {
                self.tasks[ix].flags.wanted = true;
                self.remake(parent);
                let driver = &self.tasks[parent];
                if driver.flags.unmakeable {
                    let error = driver.error.as_deref().cloned();
                    let error =
                        error.unwrap_or_else(|| partition_lost("the driver of its task cannot run again"));
                    self.remake_failed(ix, error);
                }
            }
        }
    }

    /// The task's outputs that are gone stay so; those who need one get `error`.
    pub(crate) fn remake_failed(&mut self, ix: TaskIx, error: Error) {
        let task = &mut self.tasks[ix];
        task.flags.unmakeable = true;
        task.flags.wanted = false;
        task.error = Some(Box::new(error.clone()));
        let job = task.job;
        self.unwatch(ix);
        self.tasks[ix].phase = Phase::Idle;
        self.release_args(ix);
        self.finish_driver(ix, Some(&error));
        self.tell_missing(ix);
        self.wake_takers(ix);
        if self.jobs[job].root == Some(ix) {
            self.agenda.push_back(Work::End(job));
        }
        self.agenda.push_back(Work::Retire(ix));
    }

    /// An output that a running attempt has made already is lost: only another attempt makes it again.
    fn restart(&mut self, part: Part) {
        let message = format!("partition {} was lost and is being made again", self.partition_id(part));
        let error = Error::new(Kind::Lost, Code::PartitionLost, message);
        self.stop_run(part.task, error.clone());
        self.attempt_lost(part.task, error);
    }
}

fn partition_lost(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Lost, Code::PartitionLost, message).retryable(false)
}

fn is_copy(output: &Output, key: &StoredKey) -> bool {
    matches!(output, Output::Stored(stored) if stored.key == *key)
}
