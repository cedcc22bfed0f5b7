//! What triggers need of the owner: events are held, batches taken and split, schedules move on. What is due, and when, is not
//! decided here.

use std::{collections::BTreeMap, sync::Arc};

use fanfold_protocol::{
    Code, Digest, Error, FunctionName, JobId, Kind, limit,
    record::{Fired, HeldEvent, Record},
    rest::JobView,
    trigger::Batch,
};
use fanfold_triggers::batch::{self, Waiting};

use super::{
    Owner,
    consequences::Consequence,
    messages::{Reply, Request, tell},
    run::Loop,
    shared::draining,
    state,
};

/// Bytes of events that go to the journal as one entry.
const HOLD_BYTES_MAX: usize = limit::SEGMENT_BYTES_MAX / 4;
/// Batches of one trigger that are looked at together: their runs are accepted by one write of the journal.
pub(super) const BATCHES_MAX: usize = 16;
/// Ended jobs that are looked at together.
pub(crate) const ENDED_MAX: usize = 256;
/// Jobs looked at for a trigger's last runs.
const SCANNED_MAX: usize = 20_000;

/// What triggers wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Triggers {
    /// Events that are held, by trigger.
    pub waiting: BTreeMap<FunctionName, Waiting>,
    /// Runs that have not ended, by trigger.
    pub unfinished: BTreeMap<FunctionName, Unfinished>,
    /// How far schedules are.
    pub cursors: BTreeMap<FunctionName, Cursor>,
    /// Batches that were given up, to be split.
    pub failed: Vec<JobId>,
    /// Jobs from whose end something follows, the first of them.
    pub ended: Vec<JobId>,
}

/// Runs of a trigger that have not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished {
    /// How many.
    pub runs: usize,
    /// When the oldest was accepted.
    pub since_ms: u64,
}

/// How far a schedule is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The last time that fired or was passed over.
    pub at_ms: u64,
    /// Whether the last run goes on.
    pub running: bool,
}

impl Loop {
    /// Holds events that are new. The caller is told when all are durable.
    pub fn hold(&mut self, mut events: Vec<HeldEvent>, reply: Reply<()>) {
        let refused = self.lane.refusal().cloned().or_else(|| self.stopping.is_some().then(draining));
        if let Some(error) = refused {
            return tell(reply, Err(error));
        }
        // What is on its way to the journal counts as new: its second record changes nothing, and is as durable when it is answered.
        events.retain(|held| !self.state.is_held(held.key) && self.state.job_of_key(held.key).is_none());
        let bytes: usize = events.iter().map(|held| held.event.len()).sum();
        if self.state.triggers().held_bytes() + bytes > limit::HELD_BYTES_MAX {
            let why = "the events that wait for their batches fill the memory for them; send again later";
            return tell(reply, Err(Error::new(Kind::Overloaded, Code::Memory, why)));
        }
        let mut records = events.into_iter().map(|held| Record::Held(Box::new(held)));
        match records.next() {
            None => tell(reply, Ok(())),
            Some(first) => self.lane.push_refusable(first, records.collect(), Consequence::Held(reply)),
        }
    }

    /// What triggers wait for.
    pub fn triggers(&self) -> Triggers {
        let triggers = self.state.triggers();
        let cursor = |cursor: state::Cursor| Cursor {
            at_ms: cursor.at_ms,
            running: cursor.job.is_some_and(|job| self.live.contains_key(&job)),
        };
        let unfinished = self.runs.unfinished().filter_map(|(trigger, runs, oldest)| {
            let since_ms = self.live.get(&oldest)?.accepted_at_ms;
            Some((trigger.clone(), Unfinished { runs, since_ms }))
        });
        Triggers {
            unfinished: unfinished.collect(),
            waiting: triggers.waiting().map(|(trigger, waiting)| (trigger.clone(), waiting)).collect(),
            cursors: triggers.cursors().map(|(trigger, at)| (trigger.clone(), cursor(at))).collect(),
            failed: triggers.failed().collect(),
            ended: triggers.ended().take(ENDED_MAX).collect(),
        }
    }

    /// Records that a schedule's times are passed over.
    pub fn pass(&mut self, trigger: FunctionName, at_ms: u64, reply: Reply<()>) {
        match self.lane.refusal() {
            Some(error) => tell(reply, Err(error.clone())),
            None => {
                let record = Record::Passed { trigger, at_ms, job: None };
                self.lane.push_refusable(record, Vec::new(), Consequence::Recorded(reply));
            }
        }
    }

    /// The last runs that a trigger fired, newest first.
    pub fn fired(&self, trigger: &FunctionName, limit: usize) -> Vec<JobView> {
        let its = |fired: &Fired| fired.trigger == *trigger;
        let jobs = self.state.newest_first(None).take(SCANNED_MAX);
        let jobs = jobs.filter(|job| job.accepted.fired.as_deref().is_some_and(its));
        jobs.filter_map(|job| self.view(job.accepted.job).ok()).take(limit).collect()
    }
}

impl Owner {
    /// Holds events for their batches; durable on return. Those that are known already change nothing.
    ///
    /// # Errors
    /// `overloaded` / `memory` where too much is held; the journal's. Some of many may be held then.
    pub(crate) async fn hold(&self, events: Vec<HeldEvent>) -> Result<(), Error> {
        let mut rest = events.into_iter().peekable();
        while rest.peek().is_some() {
            let mut bytes = 0;
            let mut fits = |held: &HeldEvent| {
                bytes += held.event.len() + 200;
                bytes <= HOLD_BYTES_MAX
            };
            let mut events: Vec<_> = rest.next().into_iter().collect();
            while let Some(held) = rest.next_if(|held| fits(held)) {
                events.push(held);
            }
            self.ask(|reply| Request::Hold { events, reply }).await?;
        }
        Ok(())
    }

    /// What triggers wait for.
    ///
    /// # Errors
    /// None of its own.
    pub(crate) async fn triggers(&self) -> Result<Triggers, Error> {
        self.ask(|reply| Request::Triggers { reply }).await
    }

    /// The oldest events that make a trigger's next batches, of which the last may want for more; they stay held until their runs
    /// are accepted.
    ///
    /// # Errors
    /// None of its own.
    pub(crate) async fn held(
        &self,
        trigger: FunctionName,
        batch: Batch,
    ) -> Result<Vec<Vec<Arc<HeldEvent>>>, Error> {
        self.ask(|reply| Request::Held { trigger, batch, reply }).await
    }

    /// Records that a schedule's times up to `at_ms` are passed over.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) async fn pass(&self, trigger: FunctionName, at_ms: u64) -> Result<(), Error> {
        self.ask(|reply| Request::Pass { trigger, at_ms, reply }).await
    }

    /// The last runs that a trigger fired, newest first, as far as results are kept.
    ///
    /// # Errors
    /// None of its own.
    pub(crate) async fn fired(&self, trigger: FunctionName, limit: usize) -> Result<Vec<JobView>, Error> {
        self.ask(|reply| Request::Fired { trigger, limit, reply }).await
    }

    /// Resolves when something has changed that a trigger may wait for. One caller at a time is told.
    pub(crate) async fn events_changed(&self) {
        self.shared.events.notified().await;
    }

    /// Makes two runs of a batch that was given up, unless they exist already.
    ///
    /// # Errors
    /// Those of [`Owner::accept`]; `lost` where the input cannot be read.
    pub(crate) async fn split_batch(&self, job: JobId) -> Result<(), Error> {
        let (letter, again) = self.ask(|reply| Request::DeadLetter { job, reply }).await?;
        let letter = &letter.accepted;
        let count = letter.fired.as_ref().map_or(0, |fired| fired.events.len());
        let (None, Some(first)) = (again, batch::half(count)) else { return Ok(()) };
        let whole = self.batch_of(letter).await?;
        let mut halves = [self.part(&whole, 0..first)?, self.part(&whole, first..count)?];
        // The first has a key, so that after a crash in between it is found again; the second ends the letter.
        let key = Digest::of_parts(&[b"half", job.to_string().as_bytes()]);
        halves[0].idempotency = Some((key, key));
        for (half, from) in halves.into_iter().zip([None, Some(job)]) {
            let submission = Box::new(self.submission(half, true, from).await?);
            self.ask(|reply| Request::Accept { submission, reply }).await?;
        }
        Ok(())
    }
}

/// The media type of a batch's input.
pub(crate) const BATCH_TYPE: &str = "application/cloudevents-batch+json";
