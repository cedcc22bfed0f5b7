//! When a commit goes into the log: after the commits of all that its outputs name.
//!
//! A task may return futures of tasks that still run. Were its commit in the log without theirs, a restart could find
//! it finished, not run it again, and never learn of the calls it had made: what it named would be unknown. So the
//! record waits; a restart before it is written runs the task again, and that makes the calls again.

use fanfold_protocol::{
    AttemptId,
    message::Usage,
    record::{Committed, Record},
    value::Output,
};

use crate::{
    Scheduler,
    job::Withheld,
    slab::TaskIx,
    task::{Outcome, Part},
};

impl Scheduler {
    /// Logs the commit of `ix`, which is about to be committed with `outputs`; now, or as soon as may be.
    pub(crate) fn log_commit(&mut self, ix: TaskIx, attempt: AttemptId, outputs: &[Output], usage: &Usage) {
        let task = &self.tasks[ix];
        if !self.jobs[task.job].recorded || task.flags.silent {
            return;
        }
        let Some(spec) = &task.spec else { return };
        let fingerprint = spec.fingerprint();
        let parent = task.parent.map(|parent| self.tasks[parent].id);
        self.tasks[ix].fingerprint = Some(Box::new(fingerprint));
        let unlogged = self.unlogged_names(ix, outputs);
        let job = self.job_of(ix);
        let (id, outputs, usage) = (job.id, outputs.to_vec(), *usage);
        let record = Box::new(Committed { job: id, attempt, parent, fingerprint, outputs, usage });
        if unlogged.is_empty() {
            return self.log(ix, |_| Record::Committed(record));
        }
        let missing = unlogged.len() as u32;
        for &named in &unlogged {
            job.awaited_in_log.entry(named).or_default().push(ix);
        }
        job.withheld.insert(ix, Withheld { missing, record });
    }

    /// The tasks that the outputs of `ix` name and whose end is not in the log.
    fn unlogged_names(&mut self, ix: TaskIx, outputs: &[Output]) -> Vec<TaskIx> {
        let job = self.tasks[ix].job;
        let mut named: Vec<TaskIx> = Vec::new();
        for id in outputs.iter().flat_map(names) {
            named.extend(self.part(job, id).map(|part| part.task));
        }
        for output in self.tasks[ix].output_numbers() {
            let nested = self.slot(Part { task: ix, output }).and_then(|slot| slot.nested.as_deref());
            named.extend(nested.into_iter().flatten().map(|part| part.task));
        }
        named.sort_unstable();
        named.dedup();
        let job = &self.jobs[job];
        named.retain(|&task| task != ix && (self.tasks[task].is_open() || job.withheld.contains_key(&task)));
        named
    }

    /// The end of `ix` is in the log, or will never be: what waited for it goes into the log too.
    pub(crate) fn logged(&mut self, ix: TaskIx) {
        let job = self.tasks[ix].job;
        let mut done = vec![ix];
        while let Some(ix) = done.pop() {
            if self.jobs[job].withheld.contains_key(&ix) {
                continue;
            }
            for waiting in self.jobs[job].awaited_in_log.remove(&ix).unwrap_or_default() {
                let Some(withheld) = self.jobs[job].withheld.get_mut(&waiting) else { continue };
                withheld.missing -= 1;
                if withheld.missing == 0
                    && let Some(withheld) = self.jobs[job].withheld.remove(&waiting)
                {
                    self.command(crate::Command::Record(Record::Committed(withheld.record)));
                    done.push(waiting);
                }
            }
        }
    }

    /// The task is settled for the first and last time.
    pub(crate) fn settle_outcome(&mut self, ix: TaskIx, outcome: Outcome) {
        let now_ms = self.now_ms;
        let task = &mut self.tasks[ix];
        let failed = matches!(outcome, Outcome::Failed(_));
        task.outcome = outcome;
        task.trace.settled_ms = now_ms;
        let stage = task.stage;
        if let Some(timer) = task.deadline.take() {
            self.timers.cancel(timer);
        }
        let job = self.job_of(ix);
        job.open -= 1;
        if let Some(counts) = job.stage_mut(stage) {
            counts.finished += 1;
            counts.failed += u64::from(failed);
            counts.finished_at_ms = Some(now_ms);
        }
        if !job.awaited_in_log.is_empty() {
            self.logged(ix);
        }
    }
}

fn names(output: &Output) -> Vec<fanfold_protocol::PartitionId> {
    match output {
        Output::Inline(payload) => payload.refs.clone(),
        Output::Stored(stored) => stored.refs.clone(),
        Output::Alias(value) => value.refers().collect(),
    }
}
