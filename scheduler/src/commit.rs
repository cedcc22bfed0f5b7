//! Attempts that finish: the one commit of a task, and what is made again afterwards.

use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, JobId, Kind,
    message::{Spent, Usage},
    value::{Output, Value},
};

use crate::{
    Scheduler,
    scheduler::Work,
    slab::TaskIx,
    task::{Outcome, Part},
};

impl Scheduler {
    /// Counts what an attempt that ends has used, if it is one of ours.
    pub(crate) fn used(&mut self, attempt: AttemptId, usage: &Usage, spent: &Spent) {
        let Some(&ix) = self.task_index.get(&attempt.task) else { return };
        if self.current(attempt) != Some(ix)
            && self.backed_up_by(attempt).is_none()
            && !self.pool.is_stopping(attempt)
        {
            return;
        }
        let stage = self.tasks[ix].stage;
        let job = self.job_of(ix);
        job.usage.add(usage);
        job.spent.add(spent);
        if let Some(stage) = job.stage_mut(stage) {
            stage.bytes_read += usage.bytes_read;
            stage.bytes_written += usage.bytes_written;
        }
    }

    /// Counts what was done for a job beside its attempts. What is done after its end is on nobody's bill.
    pub(crate) fn spent(&mut self, job: JobId, spent: &Spent) {
        if let Some(&ix) = self.job_index.get(&job)
            && let Some(job) = self.jobs.get_mut(ix)
        {
            job.spent.add(spent);
        }
    }

    pub(crate) fn finished(
        &mut self,
        executor: ExecutorId,
        attempt: AttemptId,
        result: Result<Vec<Output>, Error>,
        usage: &Usage,
    ) {
        if result.as_ref().is_err_and(|error| error.code == Code::Draining) {
            self.leaving(executor); // It will say so itself; until then it would be given the same again.
        }
        if let Some(ix) = self.backed_up_by(attempt) {
            match &result {
                Ok(_) => self.backup_won(ix),
                Err(_) => return self.backup_ended(ix),
            }
        }
        let Some(ix) = self.current(attempt) else {
            // Fenced: it was told to stop, and its task may have another attempt or none. Were its outputs taken,
            // a task could commit twice.
            if self.pool.stopped(executor, attempt) {
                result.iter().flatten().for_each(|output| self.free_output(output));
            }
            return;
        };
        match result {
            Ok(outputs) => self.commit(ix, attempt, outputs, usage),
            Err(error) if error.code == Code::Draining && self.backup_replaces(ix) => {}
            Err(error) => {
                self.end_run(ix);
                self.attempt_failed(ix, error);
            }
        }
    }

    fn commit(&mut self, ix: TaskIx, attempt: AttemptId, mut outputs: Vec<Output>, usage: &Usage) {
        outputs.iter_mut().for_each(|output| self.note_early(ix, output));
        let outputs = match self.checked_outputs(ix, outputs) {
            Ok(outputs) => outputs,
            Err((outputs, error)) => {
                outputs.iter().for_each(|output| self.free_output(output));
                let non_deterministic = error.code == Code::NonDeterministic;
                self.end_run(ix);
                if non_deterministic && self.tasks[ix].is_committed() {
                    return self.remake_failed(ix, error);
                }
                return self.attempt_failed(ix, error);
            }
        };
        self.note_pace(ix);
        self.end_run(ix);
        self.tasks[ix].trace.committed(attempt.number);
        if self.tasks[ix].is_open() {
            self.memoise(ix, &outputs);
            self.commit_first(ix, attempt, outputs, usage);
        } else {
            for (n, output) in outputs.into_iter().enumerate() {
                self.take_again(Part { task: ix, output: n as u32 }, output);
            }
        }
        let job = self.tasks[ix].job;
        if self.jobs[job].root == Some(ix) {
            // Most jobs end here: then all of it is forgotten, and nothing has to be let go of one by one.
            self.check_end(job);
            if self.tasks.get(ix).is_none() {
                return;
            }
        }
        let task = &mut self.tasks[ix];
        (task.failures, task.losses) = (0, 0);
        self.settled(ix);
    }

    /// Lets go of what a task that has committed does not need any more.
    pub(crate) fn settled(&mut self, ix: TaskIx) {
        self.release_args(ix);
        self.finish_driver(ix, None);
        self.wake_takers(ix);
        self.need_missing(ix); // Lost again while it was being made again.
        self.agenda.push_back(Work::Retire(ix));
    }

    pub(crate) fn commit_first(
        &mut self,
        ix: TaskIx,
        attempt: AttemptId,
        outputs: Vec<Output>,
        usage: &Usage,
    ) {
        self.log_commit(ix, attempt, &outputs, usage);
        self.tasks[ix].output_bytes += outputs.iter().map(Output::bytes).sum::<u64>();
        self.settle_outcome(ix, Outcome::Committed);
        for (n, output) in outputs.into_iter().enumerate() {
            self.place_output(Part { task: ix, output: n as u32 }, output);
        }
    }

    /// The outputs, if they are what was asked for and what was made before.
    fn checked_outputs(
        &mut self,
        ix: TaskIx,
        outputs: Vec<Output>,
    ) -> Result<Vec<Output>, (Vec<Output>, Error)> {
        if let Some(error) = self.wrong_count(ix, outputs.len()) {
            return Err((outputs, error));
        }
        let mut checked = Vec::with_capacity(outputs.len());
        let mut rest = outputs.into_iter();
        while let Some(output) = rest.next() {
            let part = Part { task: ix, output: checked.len() as u32 };
            let result = self.checked_output(part, output.clone());
            let error = match result {
                Ok(output) if self.matches_made(part, &output) => {
                    checked.push(output);
                    continue;
                }
                Ok(_) => self.differs(part),
                Err(error) => error,
            };
            checked.push(output);
            checked.extend(rest);
            return Err((checked, error));
        }
        Ok(checked)
    }

    fn wrong_count(&self, ix: TaskIx, returned: usize) -> Option<Error> {
        let task = &self.tasks[ix];
        let (known, known_puts) =
            (task.outputs.len(), task.driver.as_ref().map_or(0, |driver| driver.puts.len()));
        let (yields, puts) = task.run().map_or((0, 0), |run| (run.yields as usize, run.puts as usize));
        let expected = if task.is_generator() { 0 } else { known };
        if returned != expected {
            let message = format!("the function returned {returned} outputs, and {expected} were asked for");
            return Some(Error::new(Kind::Guest, Code::MalformedResponse, message));
        }
        if task.is_generator() && yields < known || puts < known_puts {
            let message =
                "the function ran again and made fewer partitions than before: it is not deterministic";
            return Some(Error::new(Kind::Guest, Code::NonDeterministic, message));
        }
        None
    }

    /// An output as it is kept: an alias of inline bytes becomes those bytes.
    ///
    /// # Errors
    /// `guest`/malformed-response where it is an alias of nothing known, or of itself.
    pub(crate) fn checked_output(&mut self, part: Part, output: Output) -> Result<Output, Error> {
        let Output::Alias(value) = output else { return Ok(output) };
        if let Value::Inline(payload) = *value {
            return Ok(Output::Inline(payload));
        }
        let job = self.tasks[part.task].job;
        let Some(id) = value.needs() else { return Ok(Output::Alias(value)) };
        let wrong = |what: &str| {
            let message = format!("the function returned partition {id}, {what}");
            Err(Error::new(Kind::Guest, Code::MalformedResponse, message))
        };
        match self.part(job, id) {
            None => wrong("which is not known in this job"),
            Some(_) if self.leads_to(&value, part) => wrong("which is that output itself"),
            Some(_) => Ok(Output::Alias(value)),
        }
    }
}
