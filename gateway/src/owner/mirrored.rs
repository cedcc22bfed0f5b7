//! What others are told of recorded jobs, so that they can answer while this owner is away: see [`crate::Mirror`].
//!
//! Best effort, and nothing waits for it. Changes gather for a moment and go out together; of a job that changes often
//! only the last view is told. Without a mirror none of this does anything.

use std::collections::HashSet;

use fanfold_protocol::{JobId, TaskId, limit, value::Output};
use fanfold_store::{Mirror, mirror::Change};

use super::run::Loop;
use crate::mirror::{OUTPUT, VIEW, output_told};

#[derive(Default)]
pub(super) struct Mirrored {
    mirror: Option<Mirror>,
    /// Jobs whose view has changed.
    changed: HashSet<JobId>,
    changes: Vec<Change>,
    due_ms: Option<u64>,
}

impl Mirrored {
    pub fn new(mirror: Option<Mirror>) -> Self {
        Self { mirror, ..Self::default() }
    }

    /// When what has changed is told; never while nothing has.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms.is_some_and(|due| due <= now_ms)
    }

    /// Whether a further change may be told. Beyond the bound changes are left out: it is a mirror, no record.
    fn takes(&mut self, now_ms: u64) -> bool {
        let room = self.changes.len() + self.changed.len() < limit::MIRROR_CHANGES_MAX;
        if self.mirror.is_some() && room {
            self.due_ms.get_or_insert(now_ms + limit::MIRROR_INTERVAL_MS);
            return true;
        }
        false
    }
}

impl Loop {
    /// The view of a recorded job has changed.
    pub fn mirror_job(&mut self, job: JobId) {
        if self.mirrored.takes(self.now_ms) {
            self.mirrored.changed.insert(job);
        }
    }

    /// A task of a recorded job has committed.
    pub fn mirror_task(&mut self, job: JobId, task: TaskId) {
        if self.mirrored.takes(self.now_ms)
            && let Some(view) = self.scheduler.task(task)
        {
            let value = view.encode().into();
            self.mirrored.changes.push(Change::Task { job, task, value });
            self.mirrored.changed.insert(job);
        }
    }

    /// A recorded job has ended: its graph is in the store.
    pub fn mirror_end(&mut self, job: JobId) {
        if self.mirrored.takes(self.now_ms) {
            self.mirrored.changes.push(Change::NoTasks(job));
            self.mirrored.changed.insert(job);
        }
    }

    /// A job is forgotten.
    pub fn mirror_gone(&mut self, job: JobId) {
        if self.mirrored.takes(self.now_ms) {
            self.mirrored.changed.remove(&job);
            self.mirrored.changes.push(Change::Gone(job));
        }
    }

    /// Tells what has changed.
    pub fn tell_mirror(&mut self) {
        self.mirrored.due_ms = None;
        let mut changes = std::mem::take(&mut self.mirrored.changes);
        for job in std::mem::take(&mut self.mirrored.changed) {
            self.add_view(job, &mut changes);
        }
        let told = self.mirrored.mirror.as_ref().is_none_or(|mirror| mirror.tell(changes));
        if !told {
            tracing::debug!("the mirror is slow; some changes are not told");
        }
    }

    fn add_view(&self, job: JobId, changes: &mut Vec<Change>) {
        let Ok(view) = self.view(job) else { return };
        let output = self.state.job(job).and_then(|job| job.end.as_deref()?.result.as_ref().ok()?.first());
        if let Some(output) = output.filter(|output| !matches!(output, Output::Alias(_))) {
            changes.push(Change::Field { job, field: OUTPUT, value: output_told(output) });
        }
        // A view is plain data: it can always be written as JSON.
        if let Ok(json) = serde_json::to_vec(&view) {
            changes.push(Change::Field { job, field: VIEW, value: json.into() });
        }
    }
}
