//! Dead letters: recorded jobs that were given up.

use std::sync::Arc;

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, JobId, Kind,
    record::{Accepted, Input},
    rest::{DeadLetterDetail, DeadLetterView, FailedAttemptView, Page},
};

use super::{
    Owner,
    messages::{Reply, Request, tell},
    run::Loop,
    state::Job,
    views,
};

impl Loop {
    /// A page of dead letters, newest first.
    pub fn dead_letters(&self, before: Option<JobId>, limit: usize) -> Page<DeadLetterView> {
        let letters = self.state.letters(before).filter_map(|job| view(job));
        views::page(letters, limit, |letter| letter.id)
    }

    /// A dead letter, and the job that took it up already.
    pub fn dead_letter(&self, id: JobId) -> Result<(Arc<Job>, Option<JobId>), Error> {
        match self.state.job(id) {
            Some(job) if job.is_dead_letter() => {
                Ok((Arc::clone(job), job.retried_as.or_else(|| self.retrying.get(&id).copied())))
            }
            _ => Err(unknown(id)),
        }
    }

    /// Removes a dead letter before its time. The caller is told when that is durable.
    pub fn remove_letter(&mut self, id: JobId, reply: Reply<()>) {
        let job = match self.dead_letter(id) {
            Ok((job, _)) => job,
            Err(error) => return tell(reply, Err(error)),
        };
        if let Some(error) = self.lane.refusal() {
            return tell(reply, Err(error.clone()));
        }
        if job.follow || job.is_to_be_split() || self.retrying.contains_key(&id) {
            let why = format!("what follows from the end of {id} is not recorded yet: ask again");
            return tell(reply, Err(Error::new(Kind::Conflict, Code::NotFinished, why).retryable(true)));
        }
        if !self.retention.take(id) {
            return tell(reply, Err(unknown(id))); // It is being removed.
        }
        self.housekeeping.removers.insert(id, reply);
        self.forget(id);
    }
}

impl Owner {
    /// A dead letter with its attempts.
    ///
    /// # Errors
    /// `not-found` / `dead-letter`.
    pub async fn dead_letter(&self, job: JobId) -> Result<DeadLetterDetail, Error> {
        let (job, _) = self.ask(|reply| Request::DeadLetter { job, reply }).await?;
        detail(&job).ok_or_else(|| unknown(job.accepted.job))
    }

    /// The input of a dead letter and its media type.
    ///
    /// # Errors
    /// `not-found` / `dead-letter`; `lost` where it cannot be read.
    pub async fn dead_letter_input(&self, job: JobId) -> Result<(Bytes, String), Error> {
        let (letter, _) = self.ask(|reply| Request::DeadLetter { job, reply }).await?;
        self.input_of(&letter.accepted).await
    }

    /// The input of a job that was accepted, as long as it is kept, and its media type.
    ///
    /// # Errors
    /// `lost` where it cannot be read.
    pub(super) async fn input_of(&self, accepted: &Accepted) -> Result<(Bytes, String), Error> {
        match &accepted.input {
            Input::Inline { body, content_type } => Ok((body.bytes.clone(), content_type.clone())),
            Input::Stored { content_type, .. } => {
                Ok((self.shared.store.input(accepted.job).await?, content_type.clone()))
            }
        }
    }

    /// Removes a dead letter before its time; durable on return.
    ///
    /// # Errors
    /// `not-found` / `dead-letter`; `conflict` / `not-finished`, retryable, while a part of it is about to be tried again; what
    /// kept its data from being removed.
    pub async fn remove_dead_letter(&self, job: JobId) -> Result<(), Error> {
        self.ask(|reply| Request::RemoveLetter { job, reply }).await
    }
}

fn unknown(id: JobId) -> Error {
    Error::not_found(Code::DeadLetter, format!("there is no dead letter {id}"))
}

fn view(job: &Job) -> Option<DeadLetterView> {
    let end = job.end.as_deref().filter(|_| job.is_dead_letter())?;
    Some(DeadLetterView {
        id: job.accepted.job,
        function: job.accepted.name.clone(),
        version: job.accepted.version,
        trigger: job.accepted.fired.as_ref().map(|fired| fired.trigger.clone()),
        accepted_at_ms: job.accepted.at_ms,
        failed_at_ms: end.at_ms,
        attempts: job.attempts(),
        error: end.result.as_ref().err().cloned()?,
        retried_as: job.retried_as,
    })
}

fn detail(job: &Job) -> Option<DeadLetterDetail> {
    let Accepted { entry, input, .. } = &job.accepted;
    let (input_bytes, content_type) = match input {
        Input::Inline { body, content_type } => (body.bytes.len() as u64, content_type),
        Input::Stored { bytes, content_type } => (*bytes, content_type),
    };
    let failed = job
        .failed_attempts
        .iter()
        .map(|failed| FailedAttemptView { at_ms: failed.at_ms, error: failed.error.clone() });
    Some(DeadLetterDetail {
        letter: view(job)?,
        entry: entry.clone(),
        failed_attempts: failed.collect(),
        input_bytes,
        content_type: content_type.clone(),
    })
}
