//! What follows from a job's end: events for triggers of jobs, events that its result emits, items of its batch that it says failed.
//!
//! That something follows is part of the record of the end (`follow`), and that it is recorded is a record of its own (`Followed`), so
//! there is no moment in between at which it could be lost. What exactly follows is [`crate::triggers`]' to find out.

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, JobId, limit,
    message::{Spent, Usage},
    record::{Accepted, Record},
    trigger::On,
    value::Output,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    Owner,
    consequences::Consequence,
    messages::{Reply, Request, Submission, tell},
    outputs,
    parts::Whole,
    run::Loop,
    state::Job,
};

/// Items of a batch that are made jobs at once: they share writes of the journal.
const AT_ONCE: usize = 64;

/// An ended job, as far as what follows from it goes.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// As it was accepted; with its input where its batch may have failed in part.
    pub accepted: Accepted,
    /// Attempts of its root.
    pub attempts: u32,
    /// Unix time in milliseconds.
    pub ended_at_ms: u64,
    /// How it ended for triggers of jobs; `None`: it was cancelled, or goes on as the two halves of a batch.
    pub outcome: Option<On>,
    /// Its first output, or why it failed.
    pub result: Result<Option<Output>, Error>,
}

impl Loop {
    /// Queues the record of a job's end.
    pub fn push_end(&mut self, job: JobId, mut record: Record) {
        if let Record::Ended { result, follow, .. } = &mut record
            && let Some(ended) = self.state.job(job)
        {
            *follow = self.follows(&ended.accepted, result.as_ref().err(), ended.cancel_asked);
        }
        self.lane.push(record, Some(Consequence::Ended(job)));
    }

    /// Whether something follows from an end. Triggers that come later do not wait for it.
    fn follows(&self, accepted: &Accepted, error: Option<&Error>, cancel_asked: bool) -> bool {
        let says = accepted.fired.as_ref().map(|fired| &fired.says);
        let said = says.is_some_and(|says| says.partial || says.emits.is_some());
        (said && error.is_none())
            || (outcome(accepted, error, cancel_asked).is_some()
                && self.shared.registry.catalog().is_waited_for(&accepted.name))
    }

    /// A job from whose end something follows; `None`: nothing does, or not any more.
    pub fn ending(&self, id: JobId) -> Option<Box<Ending>> {
        let job = self.state.job(id)?;
        let end = job.end.as_deref().filter(|_| job.follow)?;
        let Job { accepted, cancel_asked, .. } = &**job;
        let outcome = outcome(accepted, end.result.as_ref().err(), *cancel_asked);
        Some(Box::new(Ending {
            accepted: accepted.clone(),
            attempts: job.attempts(),
            ended_at_ms: end.at_ms,
            outcome,
            result: end.result.clone().map(|outputs| outputs.first().cloned()),
        }))
    }

    /// What followed is recorded.
    pub fn followed(&mut self, job: JobId, reply: Reply<()>) {
        match self.lane.refusal() {
            Some(error) => tell(reply, Err(error.clone())),
            None => {
                self.lane.push_refusable(Record::Followed { job }, Vec::new(), Consequence::Recorded(reply))
            }
        }
    }

    /// Records a job that is given up at once, as a dead letter, unless its key says that it is recorded already.
    pub fn give_up(&mut self, submission: Submission, error: Error, reply: Reply<()>) {
        let accepted = submission.accepted;
        let known = accepted.idempotency.is_some_and(|(key, _)| self.state.job_of_key(key).is_some());
        if known {
            return tell(reply, Ok(()));
        }
        if let Some(error) = self.lane.refusal() {
            return tell(reply, Err(error.clone()));
        }
        let (job, at_ms) = (accepted.job, self.now_ms);
        let follow = self.follows(&accepted, Some(&error), false);
        let (usage, spent) = (Usage::default(), Spent::default());
        let ended = Record::Ended { job, at_ms, result: Err(error), usage, spent, tasks: 0, follow };
        self.lane.push_refusable(
            Record::Accepted(Box::new(accepted)),
            vec![ended],
            Consequence::GivenUp(job, reply),
        );
    }
}

/// How a job ended for triggers of jobs.
fn outcome(accepted: &Accepted, error: Option<&Error>, cancel_asked: bool) -> Option<On> {
    let many = accepted.fired.as_ref().is_some_and(|fired| fired.events.len() > 1);
    match error {
        None => Some(On::Succeeded),
        Some(error) if cancel_asked && error.code == Code::Cancelled => None,
        Some(_) if many => None,
        Some(_) => Some(On::Failed),
    }
}

impl Owner {
    /// A job from whose end something follows; `None`: nothing does, or not any more.
    ///
    /// # Errors
    /// None of its own.
    pub(crate) async fn ending(&self, job: JobId) -> Result<Option<Box<Ending>>, Error> {
        self.ask(|reply| Request::Ending { job, reply }).await
    }

    /// What followed from a job's end is recorded.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) async fn followed(&self, job: JobId) -> Result<(), Error> {
        self.ask(|reply| Request::Followed { job, reply }).await
    }

    /// The bytes of a job's answer, at most [`limit::INPUT_BYTES_MAX`].
    ///
    /// # Errors
    /// `invalid` / `body-too-large`; `lost`, retryable where it is not in the object store yet.
    pub(crate) async fn answer_bytes(&self, ending: &Ending) -> Result<Bytes, Error> {
        let Ok(output) = &ending.result else { return Ok(Bytes::new()) };
        let (_, body) = outputs::open(&self.shared.store, output.as_ref()).await?;
        crate::body::collect(body, limit::INPUT_BYTES_MAX).await
    }

    /// Makes events of a batch jobs of their own: each a run, or, with a reason, a dead letter. Asked again, they are the same.
    ///
    /// # Errors
    /// Those of [`Owner::accept`]; `lost` where the input cannot be read. Some of many may be made then.
    pub(crate) async fn single_out(
        &self,
        batch: &Accepted,
        items: Vec<(usize, Option<Error>)>,
    ) -> Result<(), Error> {
        if items.is_empty() {
            return Ok(());
        }
        let batch = &self.batch_of(batch).await?;
        let made = items.into_iter().map(|(item, why)| self.single(batch, item, why));
        stream::iter(made).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn single(&self, batch: &Whole<'_>, item: usize, why: Option<Error>) -> Result<(), Error> {
        let mut job = self.part(batch, item..item + 1)?;
        let of = batch.accepted.job.to_string();
        let key = Digest::of_parts(&[b"item", of.as_bytes(), &item.to_be_bytes()]);
        job.idempotency = Some((key, key));
        let submission = Box::new(self.submission(job, true, None).await?);
        match why {
            None => self.ask(|reply| Request::Accept { submission, reply }).await.map(drop),
            Some(error) => self.ask(|reply| Request::GiveUp { submission, error, reply }).await,
        }
    }
}
