//! Generators and puts: outputs that exist before their task has finished.
//!
//! A generator may be [`limit::GENERATOR_AHEAD_MAX`] outputs ahead of its consumer. One that has yielded all it may
//! is *starved*: its cpu is given to others, else it could hold the slot that its consumer needs to ask for more.

use fanfold_protocol::{
    AttemptId, Code, Error, Kind, PartitionId, TaskId, limit, message::ToExecutor, record::Record,
    value::Output,
};

use crate::{
    Scheduler,
    output::{Content, Slot},
    scheduler::Work,
    slab::TaskIx,
    task::{Blocked, Cpu, Outcome, Part, put_index},
};

impl Scheduler {
    pub(crate) fn yielded(&mut self, attempt: AttemptId, output: u32, value: Output) {
        let Some(ix) = self.current(attempt).filter(|&ix| self.tasks[ix].is_generator()) else {
            return self.made_late(attempt, output, &value);
        };
        let known = self.tasks[ix].outputs.len() as u32;
        if output > known || put_index(output).is_some() {
            return self.out_of_order(ix, "yielded", output);
        }
        let new = output == known;
        if new {
            self.tasks[ix].outputs.push(Slot::default());
        }
        let taken = self.tasks[ix].feed.as_ref().map_or(0, |feed| feed.taken);
        let parent = self.tasks[ix].parent;
        if output >= taken && parent.is_some_and(|parent| !self.tasks[parent].is_settled()) {
            // Kept for the consumer until it has taken it. One it took and dropped is not kept again.
            self.hold(Part { task: ix, output });
        }
        if let Some(run) = self.tasks[ix].run_mut() {
            run.yields = run.yields.max(output + 1);
        }
        self.made_early(ix, attempt, output, value, new);
        self.wake_takers(ix);
        self.check_credit(ix);
    }

    pub(crate) fn put(&mut self, attempt: AttemptId, output: u32, value: Output) {
        let (Some(ix), Some(n)) = (self.current(attempt), put_index(output)) else {
            return self.made_late(attempt, output, &value);
        };
        // A replayed driver puts again what the log may know.
        self.known_slot(ix, output);
        let puts = &mut self.tasks[ix].driver_mut().puts;
        if n > puts.len() {
            return self.out_of_order(ix, "put", output);
        }
        let new = n == puts.len();
        if new {
            puts.push(Slot::default());
        }
        if let Some(run) = self.tasks[ix].run_mut() {
            run.puts = run.puts.max(n as u32 + 1);
        }
        self.hold(Part { task: ix, output });
        self.made_early(ix, attempt, output, value, new);
    }

    /// An attempt that is being stopped made something: nobody will ever refer to it. (Unless this is a repeated
    /// message, about what it made before.)
    fn made_late(&mut self, attempt: AttemptId, output: u32, value: &Output) {
        let known = self.part_seen(PartitionId { task: attempt.task, output });
        let accepted = known.and_then(|part| self.slot(part)?.stored()).map(|stored| stored.key);
        let is_accepted = matches!(value, Output::Stored(stored) if Some(stored.key) == accepted);
        if !is_accepted && self.pool.is_stopping(attempt) {
            self.free_output(value);
        }
    }

    fn out_of_order(&mut self, ix: TaskIx, verb: &str, output: u32) {
        let message = format!("output {output} was {verb} out of order by the executor");
        self.attempt_broken(ix, Error::internal(message));
    }

    /// An output of an attempt that goes on: new, or made again and to be compared.
    fn made_early(&mut self, ix: TaskIx, attempt: AttemptId, output: u32, mut value: Output, new: bool) {
        self.note_early(ix, &mut value);
        let part = Part { task: ix, output };
        let value = match self.checked_output(part, value) {
            Ok(value) => value,
            Err(error) => return self.attempt_broken(ix, error),
        };
        if !new {
            if !self.matches_made(part, &value) {
                self.free_output(&value);
                return self.attempt_broken(ix, self.differs(part));
            }
            return self.take_again(part, value);
        }
        self.log(ix, |job| Record::Made { job, attempt, output, value: value.clone() });
        self.tasks[ix].output_bytes += value.bytes();
        self.place_output(part, value);
    }

    pub(crate) fn next(&mut self, attempt: AttemptId, wait: u64, generator: TaskId, output: u32) {
        let Some(ix) = self.current(attempt) else { return };
        if !self.is_new_wait(ix, wait) {
            return;
        }
        let job = self.tasks[ix].job;
        let found = self.known_task(job, generator).filter(|&g| self.tasks[g].is_generator() && g != ix);
        let Some(generator) = found else {
            let error = Error::not_found(Code::Partition, "no such generator in this job");
            return self.send_to_run(ix, ToExecutor::Next { attempt, wait, result: Err(error) });
        };
        let feed = self.tasks[generator].feed.get_or_insert_default();
        let asks_more = output >= feed.asked;
        feed.asked = feed.asked.max(output.saturating_add(1));
        feed.takers.push(ix);
        if let Some(run) = self.tasks[ix].run_mut() {
            run.blocked = Some(Blocked::Next { wait, generator, output });
        }
        if asks_more {
            self.give_credit(generator);
        }
        self.answer_next(ix);
    }

    /// Answers the attempt's `Next` if it can be; else it goes on waiting, without its cpu.
    pub(crate) fn answer_next(&mut self, ix: TaskIx) {
        let Some(Blocked::Next { wait, generator, output }) =
            self.tasks[ix].run().and_then(|run| run.blocked.as_ref())
        else {
            return;
        };
        let (wait, generator, output) = (*wait, *generator, *output);
        let Some(result) = self.next_result(generator, output) else { return self.release_cpu(ix) };
        self.forget_taker(generator, ix);
        if let Some(run) = self.tasks[ix].run_mut() {
            run.blocked = None;
        }
        if let Ok(Some(_)) = result {
            if let Some(feed) = &mut self.tasks[generator].feed {
                feed.taken = feed.taken.max(output + 1);
            }
            self.adopt(ix, Part { task: generator, output });
        }
        let attempt = self.tasks[ix].attempt_id(self.epoch);
        self.send_to_run(ix, ToExecutor::Next { attempt, wait, result });
    }

    fn next_result(&self, generator: TaskIx, output: u32) -> Option<Result<Option<PartitionId>, Error>> {
        let task = &self.tasks[generator];
        if task.outputs.get(output as usize).is_some_and(|slot| !matches!(slot.content, Content::Pending)) {
            return Some(Ok(Some(PartitionId { task: task.id, output })));
        }
        match &task.outcome {
            Outcome::Open => None,
            Outcome::Committed => Some(Ok(None)),
            Outcome::Failed(error) => Some(Err((**error).clone())),
        }
    }

    /// Lets attempts that ask the generator for an output look again.
    pub(crate) fn wake_takers(&mut self, generator: TaskIx) {
        let Some(feed) = &self.tasks[generator].feed else { return };
        for taker in feed.takers.clone() {
            let asked = match self.tasks[taker].run().and_then(|run| run.blocked.as_ref()) {
                Some(Blocked::Next { output, .. }) => *output,
                _ => continue,
            };
            if self.next_result(generator, asked).is_some() {
                self.wake(taker);
            }
        }
    }

    pub(crate) fn forget_taker(&mut self, generator: TaskIx, taker: TaskIx) {
        if let Some(feed) = self.tasks.get_mut(generator).and_then(|task| task.feed.as_mut()) {
            feed.takers.retain(|&other| other != taker);
        }
    }

    /// A driver that runs again asks its generators from the start again.
    pub(crate) fn expect_questions_again(&mut self, ix: TaskIx) {
        let Some(driver) = self.tasks[ix].driver.take() else { return };
        for &child in driver.children.iter().flatten() {
            if let Some(feed) = &mut self.tasks[child].feed {
                (feed.asked, feed.taken) = (0, 0);
            }
        }
        self.tasks[ix].driver = Some(driver);
    }

    /// Grants the generator's attempt as many outputs as its consumer's questions allow; never fewer than before.
    pub(crate) fn grant(&mut self, generator: TaskIx) {
        let task = &mut self.tasks[generator];
        let asked = task.feed.as_ref().map_or(0, |feed| feed.asked.max(feed.needed));
        if let Some(run) = task.run_mut() {
            run.may_yield = run.may_yield.max(asked.saturating_add(limit::GENERATOR_AHEAD_MAX));
        }
    }

    pub(crate) fn send_credit(&mut self, generator: TaskIx) {
        let attempt = self.tasks[generator].attempt_id(self.epoch);
        let Some(below) = self.tasks[generator].run().map(|run| run.may_yield) else { return };
        self.send_to_run(generator, ToExecutor::MayYield { attempt, below });
    }

    pub(crate) fn give_credit(&mut self, generator: TaskIx) {
        self.grant(generator);
        let Some(run) = self.tasks[generator].run_mut() else { return };
        if run.starved && run.yields >= run.may_yield {
            return; // Its consumer, a replay, asks for what was yielded long ago.
        }
        run.starved = false;
        match (&run.blocked, run.cpu) {
            (None, Cpu::Released) => self.wake(generator),
            (None, Cpu::Queued) => {} // It is told when it has its cpu.
            _ => self.send_credit(generator),
        }
    }

    /// A generator that has yielded all it may gives its cpu back.
    fn check_credit(&mut self, ix: TaskIx) {
        let Some(run) = self.tasks[ix].run_mut() else { return };
        if run.yields >= run.may_yield && !run.starved {
            run.starved = true;
            self.release_cpu(ix);
        }
    }

    /// The attempt did what no attempt may: it is stopped, and its task fails or cannot be made again.
    pub(crate) fn attempt_broken(&mut self, ix: TaskIx, error: Error) {
        if self.tasks[ix].is_open() {
            return self.fail(ix, error);
        }
        self.stop_run(ix, error.clone());
        self.remake_failed(ix, error);
    }

    pub(crate) fn differs(&self, part: Part) -> Error {
        let message = format!(
            "partition {} was made again and differs: its function is not deterministic; \
             set `deterministic = false` in its manifest or remove what varies",
            self.partition_id(part)
        );
        Error::new(Kind::Guest, Code::NonDeterministic, message)
    }

    /// Whether an output made again is what was made before.
    pub(crate) fn matches_made(&self, part: Part, output: &Output) -> bool {
        match self.slot(part).map(|slot| &slot.content) {
            Some(Content::Made(made)) => crate::output::same(made, output),
            Some(Content::Gone(gone)) => gone.was.is(output),
            Some(Content::Pending) | None => true,
        }
    }

    /// Takes an output made again where the first is gone and somebody may still want it.
    pub(crate) fn take_again(&mut self, part: Part, output: Output) {
        let Some(slot) = self.slot(part) else { return };
        let wanted = slot.refs > 0 || slot.interest.is_some();
        match &slot.content {
            Content::Made(made) => match (made.as_ref(), &output) {
                // The same message again.
                (Output::Stored(known), Output::Stored(now)) if known.key == now.key => {}
                (Output::Stored(known), Output::Stored(_)) if known.at.is_none() => {
                    // Hearsay: the object store is said to have it. Where the task had to run again for one output
                    // that was not there after all, others may not be either: this copy is certain.
                    let known = known.clone();
                    self.free_stored(&known, true);
                    self.place_output(part, output);
                }
                _ => self.free_output(&output),
            },
            Content::Gone(gone) if gone.was.is_copy(&output) => {} // The same message again: that copy is gone.
            Content::Gone(_) if !wanted => self.free_output(&output),
            Content::Gone(_) | Content::Pending => {
                self.place_output(part, output);
            }
        }
    }

    /// Puts an output in its place and tells those who wait for it.
    pub(crate) fn place_output(&mut self, part: Part, output: Output) {
        self.sweep(part); // It was made again before its executor came back with the first copy.
        let Some(slot) = self.slot_mut(part) else { return };
        slot.content = Content::Made(Box::new(output));
        if slot.refs > 0 {
            self.nest(part);
        } else {
            self.enliven(part);
            self.agenda.push_back(Work::Dead(part));
        }
        self.agenda.push_back(Work::Settled(part));
    }
}
