//! Dead letters: recorded jobs that were given up.

use fanfold_protocol::{
    Code, Error, JobId,
    record::Accepted,
    rest::{DeadLetterView, Page},
};

use super::{run::Loop, state::Job, views};

impl Loop {
    /// A page of dead letters, newest first.
    pub fn dead_letters(&self, before: Option<JobId>, limit: usize) -> Page<DeadLetterView> {
        let letters = self.state.letters(before).filter_map(|job| view(job));
        views::page(letters, limit, |letter| letter.id)
    }

    /// A dead letter as it was accepted, and the job that took it up already.
    pub fn dead_letter(&self, id: JobId) -> Result<(Accepted, Option<JobId>), Error> {
        match self.state.job(id) {
            Some(job) if job.is_dead_letter() => {
                Ok((job.accepted.clone(), job.retried_as.or_else(|| self.retrying.get(&id).copied())))
            }
            _ => Err(Error::not_found(Code::DeadLetter, format!("there is no dead letter {id}"))),
        }
    }
}

fn view(job: &Job) -> Option<DeadLetterView> {
    let end = job.end.as_deref().filter(|_| job.is_dead_letter())?;
    Some(DeadLetterView {
        id: job.accepted.job,
        function: job.accepted.name.clone(),
        version: job.accepted.version,
        accepted_at_ms: job.accepted.at_ms,
        failed_at_ms: end.at_ms,
        attempts: job.attempts(),
        error: end.result.as_ref().err().cloned()?,
        retried_as: job.retried_as,
    })
}
