//! How jobs are shown: a live one from the scheduler's counts, an ended one from its durable end.

use fanfold_protocol::{
    Code, Error, JobId,
    rest::{JobView, Page, Progress, State},
};

use super::{
    live::{Live, Stage},
    run::Loop,
    state::{End, Job},
};

/// Jobs looked at for one page; a listing of few among many goes on with the next page.
const SCANNED_MAX: usize = 10_000;
/// Jobs in one page, whatever was asked for.
const PAGE_MAX: usize = 1000;

impl Loop {
    /// A job as it is now.
    pub fn view(&self, id: JobId) -> Result<JobView, Error> {
        let ended = self.state.job(id).filter(|job| job.end.is_some());
        match (ended, self.live.get(&id)) {
            (Some(job), _) => Ok(self.ended_view(job)),
            (None, Some(live)) => Ok(self.live_view(id, live)),
            (None, None) => Err(no_job(id)),
        }
    }

    /// A page of jobs, newest first. `batch`: only those accepted as batch jobs or of functions that call others.
    pub fn list(&self, before: Option<JobId>, limit: usize, batch: bool) -> Page<JobView> {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut page = Page { items: Vec::new(), next: None };
        let mut last = before;
        for (looked_at, job) in self.state.newest_first(before).enumerate() {
            if page.items.len() == limit || looked_at == SCANNED_MAX {
                page.next = last.map(|last| last.to_string());
                break;
            }
            let id = job.accepted.job;
            last = Some(id);
            if (!batch || job.accepted.batch || self.is_driver(job))
                && let Ok(view) = self.view(id)
            {
                page.items.push(view);
            }
        }
        page
    }

    fn is_driver(&self, job: &Job) -> bool {
        let version = self.shared.registry.version(&job.accepted.version);
        version.is_some_and(|version| version.info.submits)
    }

    pub fn live_view(&self, id: JobId, live: &Live) -> JobView {
        let scheduler = &self.scheduler;
        let (attempts, state) = match live.stage {
            Stage::Waiting | Stage::Fetching => (live.attempts, State::Queued),
            Stage::Started => {
                (scheduler.root_attempts(id).unwrap_or(0), scheduler.state(id).unwrap_or(State::Queued))
            }
            Stage::Ending => (live.attempts, State::Running),
        };
        let waiting_for = match live.stage {
            Stage::Waiting => self.waits_for_place(live),
            Stage::Fetching => String::from("waits for its input to be read from the store"),
            Stage::Started => scheduler.waiting_reason(id).unwrap_or_default(),
            Stage::Ending => String::from("waits for the journal to have its end"),
        };
        JobView {
            id,
            function: live.function.name.clone(),
            version: live.function.version,
            state,
            accepted_at_ms: live.accepted_at_ms,
            ended_at_ms: None,
            attempts,
            progress: scheduler.progress(id).unwrap_or_else(|| self.last_progress(id)),
            output_bytes: None,
            error: live.error.clone(),
            usage: scheduler.usage(id).copied().unwrap_or_default(),
            spent: scheduler.spent_on(id).copied().unwrap_or_default(),
            waiting_for,
            status: live.status.clone(),
            log_bytes: Some(live.log.len() as u64),
        }
    }

    /// How far a job is that the scheduler does not have, or not any more.
    fn last_progress(&self, id: JobId) -> Progress {
        let past = self.history.progress(id).cloned();
        past.unwrap_or(Progress { tasks: 1, ..Progress::default() })
    }

    fn waits_for_place(&self, live: &Live) -> String {
        match self.lane.refusal() {
            Some(error) => format!("waits for the journal: {error}"),
            None => format!(
                "waits for a place: {} of `{}` run at once",
                live.function.manifest.concurrency.max, live.function.name
            ),
        }
    }

    fn ended_view(&self, job: &Job) -> JobView {
        let accepted = &job.accepted;
        let none = End::default();
        let end = job.end.as_deref().unwrap_or(&none);
        let remembered = self.history.progress(accepted.job).cloned();
        let progress = remembered.unwrap_or_else(|| Progress {
            tasks: end.tasks,
            finished: end.tasks,
            retries: u64::from(job.attempts().saturating_sub(1)),
            bytes_read: end.usage.bytes_read,
            bytes_written: end.usage.bytes_written,
            ..Progress::default()
        });
        JobView {
            id: accepted.job,
            function: accepted.name.clone(),
            version: accepted.version,
            state: job.state(),
            accepted_at_ms: accepted.at_ms,
            ended_at_ms: Some(end.at_ms),
            attempts: job.attempts(),
            progress,
            output_bytes: end
                .result
                .as_ref()
                .ok()
                .map(|outputs| outputs.iter().map(|output| output.bytes()).sum()),
            error: end.result.as_ref().err().cloned(),
            usage: end.usage,
            spent: end.spent,
            waiting_for: String::new(),
            status: None,
            log_bytes: None,
        }
    }
}

/// The first page of `items`, of which `id` tells where the next begins.
pub(super) fn page<T>(mut items: impl Iterator<Item = T>, limit: usize, id: impl Fn(&T) -> JobId) -> Page<T> {
    let page: Vec<T> = items.by_ref().take(limit.clamp(1, PAGE_MAX)).collect();
    let more = items.next().is_some();
    let next = page.last().filter(|_| more).map(|last| id(last).to_string());
    Page { items: page, next }
}

/// There is no such job, or not any more.
pub(super) fn no_job(job: JobId) -> Error {
    let why = format!("there is no invocation or job {job}; results are kept for 24 hours");
    Error::not_found(Code::Invocation, why)
}
