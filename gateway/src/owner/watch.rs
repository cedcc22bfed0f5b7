//! Live views of jobs that somebody watches. A job that nobody watches costs nothing here; a watched one is looked at
//! ten times a second at most, and only the newest view is kept for a slow watcher.

use std::collections::HashMap;

use fanfold_protocol::{Error, JobId, limit, rest::JobView};
use tokio::sync::watch;

use super::{
    messages::{Reply, tell},
    run::Loop,
};

#[derive(Default)]
pub(super) struct Watched {
    jobs: HashMap<JobId, watch::Sender<JobView>>,
    due_ms: u64,
}

impl Watched {
    /// When the views are next looked at; never while nobody watches.
    pub fn due_ms(&self) -> Option<u64> {
        (!self.jobs.is_empty()).then_some(self.due_ms)
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms().is_some_and(|due| due <= now_ms)
    }
}

impl Loop {
    /// Watches a job. The receiver has its present view; it closes after the view of its end.
    pub fn watch(&mut self, job: JobId, reply: Reply<watch::Receiver<JobView>>) {
        if let Some(sender) = self.watched.jobs.get(&job) {
            tell(reply, Ok(sender.subscribe()));
            return;
        }
        let view = match self.view(job) {
            Ok(view) => view,
            Err(error) => return tell(reply, Err(error)),
        };
        let ended = view.state.ended();
        let (sender, receiver) = watch::channel(view);
        if !ended {
            self.watched.jobs.insert(job, sender);
            self.watched.due_ms = self.now_ms + limit::WATCH_INTERVAL_MS;
        }
        tell(reply, Ok(receiver));
    }

    /// Brings all views up to date and forgets those that nobody looks at any more.
    pub fn update_watched(&mut self) {
        let mut jobs = std::mem::take(&mut self.watched.jobs);
        jobs.retain(|job, sender| sender.receiver_count() > 0 && self.update(*job, sender).is_ok());
        self.watched.jobs = jobs;
        self.watched.due_ms = self.now_ms + limit::WATCH_INTERVAL_MS;
    }

    /// Shows the end of a job to those who watch it.
    pub fn end_watch(&mut self, job: JobId) {
        if let Some(sender) = self.watched.jobs.remove(&job) {
            // A job that is unknown by now has no view to show; closing says so.
            let _ = self.update(job, &sender);
        }
    }

    fn update(&self, job: JobId, sender: &watch::Sender<JobView>) -> Result<(), Error> {
        let view = self.view(job)?;
        sender.send_if_modified(|shown| {
            let changed = *shown != view;
            *shown = view;
            changed
        });
        Ok(())
    }
}
