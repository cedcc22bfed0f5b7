//! What becomes true when a record is durable, and what is answered when it cannot be made so.

use fanfold_protocol::{Code, Digest, Error, JobId, Kind, rest::JobView};
use fanfold_scheduler::Event;
use fanfold_store::Failpoint;

use super::{
    lane::Entry,
    live::{Accepting, Live, Stage, Waiter},
    messages::{Reply, tell},
    run::Loop,
};

/// Carried out once its record is durable and folded.
pub(super) enum Consequence {
    /// The job may run, and its caller is told.
    Accepted(JobId),
    /// The job is stopped, and the caller is told.
    Cancelled(JobId, Reply<JobView>),
    /// The job's end is announced.
    Ended(JobId),
    /// A job was accepted and given up at once: its end is announced, and the caller is told.
    GivenUp(JobId, Reply<()>),
    /// The outputs of a memoised call answer equal ones.
    Memoised(Digest),
    /// They do no longer.
    Unmemoised(Digest),
    /// Events wait for their batches.
    Held(Reply<()>),
    /// The records are there: an answer to remember, or somebody else's.
    Recorded(Reply<()>),
}

impl Loop {
    /// Folds what is durable now and carries out what follows from it.
    pub fn durable(&mut self, entries: Vec<Entry<Consequence>>) {
        for entry in entries {
            self.state.fold(entry.record);
            entry.more.into_iter().for_each(|record| self.state.fold(record));
            match entry.consequence {
                None => {}
                Some(Consequence::Accepted(job)) => {
                    Failpoint::AcceptDurable.pass();
                    self.accepted(job);
                }
                Some(Consequence::Cancelled(job, reply)) => self.cancel_is_durable(job, reply),
                Some(Consequence::Ended(job)) => {
                    Failpoint::EndDurable.pass();
                    self.announce(job);
                }
                Some(Consequence::GivenUp(job, reply)) => {
                    self.announce(job);
                    tell(reply, Ok(()));
                }
                Some(Consequence::Memoised(key)) => self.memo_is_durable(key),
                Some(Consequence::Unmemoised(key)) => self.memo_is_gone(key),
                Some(Consequence::Held(reply)) => {
                    self.shared.events.notify_one();
                    tell(reply, Ok(()));
                }
                Some(Consequence::Recorded(reply)) => tell(reply, Ok(())),
            }
        }
    }

    /// Tells the callers of records that could not be written.
    pub fn refused(&mut self, error: &Error, entries: Vec<Entry<Consequence>>) {
        tracing::warn!(%error, held = self.lane.len(), "the journal cannot be written; nothing is acknowledged until it can");
        for entry in entries {
            match entry.consequence {
                Some(Consequence::Accepted(job)) => self.accept_failed(job, error),
                Some(Consequence::Cancelled(_, reply)) => tell(reply, Err(error.clone())),
                Some(
                    Consequence::Held(reply) | Consequence::Recorded(reply) | Consequence::GivenUp(_, reply),
                ) => tell(reply, Err(error.clone())),
                // The rest is never refused.
                Some(Consequence::Ended(_) | Consequence::Memoised(_) | Consequence::Unmemoised(_))
                | None => {}
            }
        }
    }

    fn accepted(&mut self, id: JobId) {
        let Some(Accepting { function, input_bytes, waiters, .. }) = self.accepting.remove(&id) else {
            return;
        };
        let Some(job) = self.state.job(id).cloned() else { return };
        if let Some((key, _)) = job.accepted.idempotency {
            self.accepting_keys.remove(&key);
        }
        if let Some(dead) = job.accepted.retried_from {
            self.retrying.remove(&dead);
        }
        let mut live = Live::new(function, &job.accepted, true);
        live.input_bytes = input_bytes;
        self.totals.accepted += 1;
        for waiter in waiters {
            match waiter {
                Waiter::Id(reply) => tell(reply, Ok(id)),
                Waiter::Answer(reply) => live.waiters.push(reply),
            }
        }
        self.line_up(id, live);
    }

    fn accept_failed(&mut self, id: JobId, error: &Error) {
        let Some(accepting) = self.accepting.remove(&id) else { return };
        self.accepting_keys.retain(|_, (_, job)| *job != id);
        self.retrying.retain(|_, again| *again != id);
        self.input_bytes -= accepting.input_bytes;
        // Otherwise it is not known whether the journal has the job, whose input must be there then.
        if error.code == Code::DiskFull && accepting.stored_input {
            self.work.remove(id, false);
        }
        for waiter in accepting.waiters {
            waiter.refuse(error.clone());
        }
    }

    fn cancel_is_durable(&mut self, job: JobId, reply: Reply<JobView>) {
        let error = cancelled();
        match self.live.get(&job).map(|live| &live.stage) {
            Some(Stage::Waiting | Stage::Fetching) => self.end_unstarted(job, error),
            Some(Stage::Started) => self.step(Event::Cancel { job, error }),
            Some(Stage::Ending) | None => {}
        }
        tell(reply, self.view(job));
    }
}

/// The result of a job that somebody asked to cancel.
pub(super) fn cancelled() -> Error {
    Error::new(Kind::Platform, Code::Cancelled, "the job was cancelled on request").retryable(false)
}
