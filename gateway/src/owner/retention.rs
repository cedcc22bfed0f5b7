//! How long ended jobs are kept: results for a day, dead letters for two weeks, each kind within a bound on memory.
//!
//! Beyond the bound the oldest go early, with a warning: a gateway that ends more jobs than it can remember must not
//! die of it.

use std::collections::VecDeque;

use fanfold_protocol::{JobId, limit};

use super::state::Job;

#[derive(Default)]
pub(super) struct Retention {
    results: Kept,
    letters: Kept,
}

#[derive(Default)]
struct Kept {
    /// By the time of their end, oldest first.
    jobs: VecDeque<(u64, JobId, usize)>,
    bytes: usize,
}

impl Retention {
    /// Remembers jobs that have ended. Faster for many at once, in any order, than one by one.
    pub fn extend<'a>(&mut self, ended: impl Iterator<Item = &'a Job>) {
        for job in ended {
            self.add(job);
        }
        self.results.jobs.make_contiguous().sort_unstable();
        self.letters.jobs.make_contiguous().sort_unstable();
    }

    /// Remembers a job that ended just now.
    pub fn add(&mut self, job: &Job) {
        let Some(end) = job.end.as_deref() else { return };
        let kept = if job.is_dead_letter() { &mut self.letters } else { &mut self.results };
        let bytes = job.kept_bytes();
        kept.jobs.push_back((end.at_ms, job.accepted.job, bytes));
        kept.bytes += bytes;
    }

    /// Jobs kept, dead letters included; and dead letters alone.
    pub fn len(&self) -> (usize, usize) {
        (self.results.jobs.len() + self.letters.jobs.len(), self.letters.jobs.len())
    }

    /// Takes out at most `max` jobs whose time is over or for which there is no room.
    pub fn due(&mut self, now_ms: u64, max: usize) -> Vec<JobId> {
        let mut due = Vec::new();
        self.results.due(now_ms.saturating_sub(limit::RESULT_KEPT_MS), max, &mut due);
        self.letters.due(now_ms.saturating_sub(limit::DEAD_LETTER_KEPT_MS), max, &mut due);
        due
    }
}

impl Kept {
    fn due(&mut self, before_ms: u64, max: usize, due: &mut Vec<JobId>) {
        while due.len() < max
            && let Some((ended_at_ms, job, bytes)) = self.jobs.front().copied()
        {
            let early = ended_at_ms >= before_ms;
            if early && self.bytes <= limit::RESULTS_KEPT_BYTES_MAX {
                return;
            }
            if early {
                tracing::warn!(%job, kept_bytes = self.bytes, "a result is forgotten early: there are too many");
            }
            self.jobs.pop_front();
            self.bytes -= bytes;
            due.push(job);
        }
    }
}
