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

    /// Takes out a dead letter before its time; whether it was here.
    pub fn take(&mut self, letter: JobId) -> bool {
        let Kept { jobs, bytes } = &mut self.letters;
        let Some(at) = jobs.iter().position(|(_, job, _)| *job == letter) else { return false };
        let taken = jobs.remove(at);
        *bytes -= taken.map_or(0, |(_, _, bytes)| bytes);
        true
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanfold_protocol::{
        Digest, Error,
        message::Usage,
        record::{Accepted, Input, Record},
        value::Output,
    };

    use super::*;
    use crate::owner::State;

    fn ended(n: u64, result: Result<Vec<Output>, Error>) -> State {
        let job = JobId(uuid::Uuid::from_u128(u128::from(n)));
        let mut state = State::default();
        state.fold(Record::Accepted(Box::new(Accepted {
            job,
            name: "f".parse().unwrap(),
            version: Digest([0; 32]),
            entry: String::new(),
            input: Input::Inline { body: Bytes::new().into(), content_type: String::new() },
            idempotency: None,
            traceparent: None,
            at_ms: n,
            retried_from: None,
            batch: false,
            fired: None,
        })));
        state.fold(Record::Ended {
            job,
            at_ms: n,
            result,
            usage: Usage::default(),
            spent: Default::default(),
            tasks: 1,
            follow: false,
        });
        state
    }

    #[test]
    fn results_go_when_they_are_old_or_too_many() {
        let body = Bytes::from(vec![0; limit::INLINE_BYTES_MAX]);
        let room = limit::RESULTS_KEPT_BYTES_MAX / limit::INLINE_BYTES_MAX;
        let mut retention = Retention::default();
        let states: Vec<_> = (0..room as u64)
            .map(|n| ended(1000 + n, Ok(vec![Output::Inline(body.clone().into())])))
            .chain([ended(1, Err(Error::internal("given up")))])
            .collect();
        retention.extend(states.iter().flat_map(State::jobs).map(AsRef::as_ref));
        assert_eq!(retention.len(), (room + 1, 1));

        let early = retention.due(2000, usize::MAX);
        assert!(!early.is_empty() && early.len() < room / 10, "{} of {room} went early", early.len());
        assert_eq!(early[0].0.as_u128(), 1000, "the oldest first");
        assert!(retention.due(2000, usize::MAX).is_empty());
        let day = limit::RESULT_KEPT_MS + 1000 + room as u64;
        assert_eq!(retention.due(day, 10).len(), 10);
        retention.due(day, usize::MAX);
        assert_eq!(retention.len(), (1, 1), "a dead letter is kept longer");
        let letter = states[room].jobs().next().unwrap().accepted.job;
        assert!(retention.take(letter) && !retention.take(letter));
        assert_eq!((retention.len(), retention.letters.bytes), ((0, 0), 0));
        retention.extend(states[room..].iter().flat_map(State::jobs).map(AsRef::as_ref));
        assert_eq!(retention.due(2 + limit::DEAD_LETTER_KEPT_MS, 10).len(), 1);
    }
}
