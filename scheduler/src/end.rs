//! The end of a job: when its root's outputs, and all they name, exist and are safe; or when it failed or was
//! cancelled.

use std::collections::BTreeSet;

use fanfold_protocol::{Error, PartitionId, record::Record, value::Output};

use crate::{
    Command, JobEnd, Scheduler,
    failure::cancelled,
    interest::{END, Resolved},
    job::Job,
    output::Content,
    scheduler::Work,
    slab::{JobIx, TaskIx},
    task::{Outcome, Part},
    timer::Timer,
};

/// How long the end of a recorded job waits for its outputs to reach the object store. Uploads begin at the commit;
/// a store that takes longer than this is failing, and the owner has to know of the result all the same.
const DURABLE_WAIT_MS: u64 = 30_000;
/// Tasks in the graph that goes with a job's end.
const GRAPH_TASKS_MAX: usize = 10_000;

/// What a job's result consists of.
#[derive(Default)]
struct Reach {
    /// Still to be made.
    pending: BTreeSet<Part>,
    /// The root's outputs and everything they name.
    parts: BTreeSet<Part>,
}

impl Scheduler {
    /// Ends the job if its root has settled and its result is complete and safe.
    pub(crate) fn check_end(&mut self, ix: JobIx) {
        let Some(root) = self.jobs.get(ix).and_then(|job| job.root) else { return };
        match &self.tasks[root].outcome {
            Outcome::Open => return,
            Outcome::Failed(error) => {
                let error = (**error).clone();
                return self.end_job(ix, Err(error));
            }
            Outcome::Committed if !self.tasks[root].is_idle() => return,
            Outcome::Committed => {}
        }
        if self.nests_due > 0 {
            return self.agenda.push_back(Work::End(ix)); // Not all that the result names is known yet.
        }
        self.unwatch(root);
        let outputs = match self.root_outputs(root) {
            Ok(outputs) => outputs,
            Err(error) => return self.end_job(ix, Err(error)),
        };
        let reach = self.reach(root);
        for &part in &reach.pending {
            self.watch(root, part, END);
        }
        if reach.pending.is_empty() && !self.must_wait_for_store(ix, &reach) {
            self.end_job(ix, Ok(outputs));
        }
    }

    /// The root's outputs as far as they are there.
    fn root_outputs(&self, root: TaskIx) -> Result<Vec<Output>, Error> {
        let mut outputs = Vec::new();
        for output in 0..self.tasks[root].outputs.len() as u32 {
            match self.resolve(Part { task: root, output }) {
                Resolved::Ready(_, output) => outputs.push(output.clone()),
                Resolved::Failed(error) => return Err(error.clone()),
                Resolved::Pending(_) => {}
            }
        }
        Ok(outputs)
    }

    fn reach(&self, root: TaskIx) -> Reach {
        let mut reach = Reach::default();
        let outputs = self.tasks[root].outputs.len() as u32;
        let mut stack: Vec<Part> = (0..outputs).map(|output| Part { task: root, output }).collect();
        while let Some(part) = stack.pop() {
            match self.resolve(part) {
                Resolved::Pending(part) => {
                    reach.pending.insert(part);
                }
                Resolved::Ready(part, _) => {
                    if reach.parts.insert(part) {
                        stack.extend(
                            self.slot(part).and_then(|slot| slot.nested.as_deref()).into_iter().flatten(),
                        );
                    }
                }
                Resolved::Failed(_) => {} // Reading it gives the error; the rest of the result is good.
            }
        }
        reach
    }

    /// A recorded job's result outlives executors: its end waits, for a while, until the object store has it.
    fn must_wait_for_store(&mut self, ix: JobIx, reach: &Reach) -> bool {
        let job = &self.jobs[ix];
        if !job.recorded || job.end.late {
            return false;
        }
        let on_the_way = |part: &Part| {
            self.may_be_stored(part.task)
                && self.slot(*part).and_then(|slot| slot.stored()).is_some_and(|stored| !stored.durable)
        };
        if !reach.parts.iter().any(on_the_way) {
            return false;
        }
        if job.end.timer.is_none() {
            let timer = self.timers.set(self.now_ms + DURABLE_WAIT_MS, Timer::Durable(ix));
            self.jobs[ix].end.timer = Some(timer);
        }
        true
    }

    pub(crate) fn durable_late(&mut self, ix: JobIx) {
        self.jobs[ix].end.timer = None;
        self.jobs[ix].end.late = true;
        self.check_end(ix);
    }

    /// Ends the job, whatever it is doing: stops what runs, frees all but the result and forgets the rest.
    pub(crate) fn end_job(&mut self, ix: JobIx, result: Result<Vec<Output>, Error>) {
        let Some(root) = self.jobs[ix].root else { return };
        let tasks = self.tasks_of(ix);
        for &task in &tasks {
            self.set_idle(task, cancelled("the job has ended"));
            if let Some(timer) = self.tasks[task].deadline.take() {
                self.timers.cancel(timer);
            }
        }
        let reach = if result.is_ok() { self.reach(root) } else { Reach::default() };
        let kept = reach.parts.iter().filter_map(|&part| {
            let Resolved::Ready(_, output) = self.resolve(part) else { return None };
            Some((self.partition_id(part), output.clone()))
        });
        let kept: Vec<(PartitionId, Output)> = kept.collect();
        let end = self.job_end(ix, root, result, kept);
        for &task in &tasks {
            self.forget(task, &reach.parts);
        }
        let Some(mut job) = self.jobs.remove(ix) else { return };
        self.job_index.remove(&job.id);
        self.ready.remove_job(ix, &mut job);
        self.free_unnamed(&job);
        [job.stall_timer, job.end.timer, job.pace.timer]
            .into_iter()
            .flatten()
            .for_each(|timer| self.timers.cancel(timer));
        self.announce(&job, end);
    }

    fn job_end(
        &self,
        ix: JobIx,
        root: TaskIx,
        result: Result<Vec<Output>, Error>,
        kept: Vec<(PartitionId, Output)>,
    ) -> JobEnd {
        let job = &self.jobs[ix];
        JobEnd {
            job: job.id,
            result,
            usage: job.usage,
            spent: job.spent,
            tasks: job.tasks,
            attempts: job.root_failed_before + self.tasks[root].attempt,
            kept,
            progress: self.progress_of(job),
            graph: if job.recorded { self.graph_of(job, GRAPH_TASKS_MAX) } else { Default::default() },
        }
    }

    fn announce(&mut self, job: &Job, end: JobEnd) {
        if job.recorded {
            let record = Record::Ended {
                job: job.id,
                at_ms: self.now_ms,
                result: end.result.clone(),
                usage: end.usage,
                spent: end.spent,
                tasks: end.tasks,
                follow: false,
            };
            self.command(Command::Record(record));
        }
        self.command(Command::JobEnded(Box::new(end)));
    }

    /// Every task of the job that is remembered, drivers before their children.
    pub(crate) fn tasks_of(&self, ix: JobIx) -> Vec<TaskIx> {
        let job = &self.jobs[ix];
        let mut tasks: Vec<TaskIx> = job.root.into_iter().collect();
        tasks.extend(job.strays.iter().filter(|&&stray| {
            self.tasks.get(stray).is_some_and(|task| task.job == ix && task.parent.is_none())
        }));
        let mut next = 0;
        while let Some(&task) = tasks.get(next) {
            if let Some(driver) = &self.tasks[task].driver {
                tasks.extend(driver.children.iter().flatten());
            }
            next += 1;
        }
        tasks
    }

    /// Removes the task, and frees its outputs except those in `kept`.
    fn forget(&mut self, ix: TaskIx, kept: &BTreeSet<Part>) {
        let may_be_stored = self.may_be_stored(ix);
        let Some(task) = self.tasks.remove(ix) else { return };
        self.task_index.remove(&task.id);
        for output in task.output_numbers() {
            let (stored, may_be_stored) = match task.slot(output).map(|slot| &slot.content) {
                Some(Content::Made(made)) => match made.as_ref() {
                    Output::Stored(stored) => (Some(stored), may_be_stored),
                    _ => continue,
                },
                Some(Content::Gone(gone)) => (gone.away(), true),
                _ => continue,
            };
            if let Some(stored) = stored.filter(|_| !kept.contains(&Part { task: ix, output })) {
                self.free_stored(stored, may_be_stored);
            }
        }
    }
}
