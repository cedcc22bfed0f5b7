//! What must hold at the end of a job and of a run.

use std::collections::BTreeSet;

use fanfold_protocol::{Code, value::Output};
use fanfold_scheduler::JobEnd;

use super::{
    making,
    owner::Fate,
    program::{self, Future},
    run::{Run, key_of},
};

impl Run {
    pub(super) fn announce(&mut self, n: usize) {
        let job = &mut self.owner.jobs[n];
        let fate = std::mem::replace(&mut job.fate, Fate::Vanished);
        let Fate::Ended(end) = fate else {
            job.fate = fate;
            return;
        };
        let expected = job.expected.clone();
        let cancelled =
            job.cancelled && end.result.as_ref().is_err_and(|error| error.code == Code::Cancelled);
        job.fate = Fate::Announced(end.clone());
        let frees = std::mem::take(&mut job.frees);
        for free in frees {
            self.obey(free);
        }
        if cancelled {
            self.world.note("a job was cancelled");
        } else if !self.plan.random_tasks {
            self.check_result(n, &end, &expected);
        }
    }

    pub(super) fn check_result(&mut self, n: usize, end: &JobEnd, expected: &Result<Vec<Future>, Code>) {
        let fails = match expected {
            Ok(futures) => futures.iter().any(|future| future.is_err()),
            Err(_) => true,
        };
        let wrong = match (&end.result, expected) {
            (Err(error), _) => (!fails || !program::is_own_error(error.code)).then(|| format!("{error:?}")),
            (Ok(_), Err(code)) => Some(format!("success, not {code:?}")),
            (Ok(outputs), Ok(futures)) => {
                let pairs = outputs.iter().zip(futures);
                let differs = pairs.filter_map(|(output, future)| self.differs(end, output, future)).next();
                (outputs.len() != futures.len()).then(|| "a wrong number of outputs".to_owned()).or(differs)
            }
        };
        if let Some(wrong) = wrong {
            self.world.violation(format!("job{n} gave {wrong}"));
        }
    }

    /// How an output of a job that ended differs from what the oracle says.
    pub(super) fn differs(&self, end: &JobEnd, output: &Output, expected: &Future) -> Option<String> {
        let Ok(known) = expected.as_ref() else { return Some("a value instead of an error".to_owned()) };
        let (value, refs) = match output {
            Output::Inline(payload) => (making::inline_value(payload), &payload.refs),
            Output::Stored(stored) => {
                let cached = stored.at.and_then(|at| self.world.nodes.get(&at)?.cache.get(&stored.key));
                match cached.or_else(|| self.world.store.get(&stored.key)) {
                    Some(data) => (data.value, &stored.refs),
                    // It may have been lost after the job ended, if it was in one place only.
                    None if self.rotted.contains(&stored.key) || !stored.durable => return None,
                    None => return Some(format!("{:?}, which is nowhere", stored.key)),
                }
            }
            Output::Alias(value) => return Some(format!("an unresolved alias {value:?}")),
        };
        if value != known.value || refs.len() != known.names.len() {
            return Some(format!("{value}, not {}", known.value));
        }
        let mut named = refs.iter().zip(&known.names);
        named.find_map(|(id, name)| match end.kept.iter().find(|(kept, _)| kept == id) {
            Some((_, output)) => self.differs(end, output, name),
            // Kept under the name of what it is an alias of, or failed.
            None => None,
        })
    }

    pub(super) fn check_at_the_end(&mut self) {
        for (n, job) in self.owner.jobs.iter().enumerate() {
            if !matches!(job.fate, Fate::Announced(_) | Fate::Vanished) {
                self.world.violations.push(format!("job{n} never ended: {:?}", job.fate));
            }
        }
        match &self.owner.scheduler {
            Some(scheduler) if scheduler.is_empty() => {}
            Some(_) => self.world.violations.push("the scheduler still remembers something".to_owned()),
            None => self.world.violations.push("the gateway never came back".to_owned()),
        }
        self.check_freed();
        self.check_runs();
    }

    /// Whatever the last owner was told of and no result consists of was freed.
    pub(super) fn check_freed(&mut self) {
        let mut kept = BTreeSet::new();
        for job in &self.owner.jobs {
            if let Fate::Announced(end) = &job.fate {
                kept.extend(end.kept.iter().filter_map(|(_, output)| key_of(output)));
            }
        }
        let cached = self.world.nodes.values().flat_map(|node| node.cache.keys());
        let stored = self.world.store.keys().filter(|key| !self.world.unswept.contains(*key));
        let left = cached.chain(stored);
        let mut garbage = left.filter(|key| self.told.contains(*key) && !kept.contains(*key));
        if let Some(key) = garbage.next() {
            let name = self.owner.names.get(&key.partition.task).cloned().unwrap_or_default();
            let what = format!("output {} of {name}, {key:?}, was never freed", key.partition.output);
            self.world.violations.push(what);
        }
    }

    /// Where nothing was lost and nothing replayed, no task ran more often than its own failures explain.
    pub(super) fn check_runs(&mut self) {
        if !self.world.nothing_lost || self.replayed || self.plan.random_tasks {
            return;
        }
        self.world.note("a run lost nothing");
        for (task, runs) in &self.runs {
            let failures = self.own_failures.get(task).copied().unwrap_or_default();
            if *runs > failures + 1 {
                let name = self.owner.names.get(task).cloned().unwrap_or_default();
                self.world.violations.push(format!("{name} ran {runs} times with {failures} failures"));
            }
        }
    }
}
