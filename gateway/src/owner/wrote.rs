//! Objects that tasks wrote, on their way to be events.
//!
//! They wait in memory only: an object that is not told of is found by the listing of the trigger that waits for it, so what is lost
//! with this process, or dropped where nobody keeps up, comes late and not never.

use std::sync::{Mutex, PoisonError};

use fanfold_protocol::{AttemptId, rest::ObjectView};

use super::{Owner, live::Running, run::Loop};

/// Objects that wait to be taken; further ones are left to listings.
const WROTE_MAX: usize = 10_000;

/// An object that a task wrote.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub object: ObjectView,
    /// How many runs led to it.
    pub hops: u32,
}

/// Those that nobody has taken yet.
#[derive(Default)]
pub(super) struct Wrote(Mutex<Vec<Written>>);

impl Loop {
    /// A task wrote an object.
    pub fn wrote(&mut self, attempt: AttemptId, object: &ObjectView) {
        if self.shared.registry.catalog().triggers().is_empty() {
            return;
        }
        let Some(Running { job, .. }) = self.running.get(&attempt) else { return };
        let fired = self.state.job(*job).and_then(|job| job.accepted.fired.as_deref());
        let written = Written { object: object.clone(), hops: fired.map_or(0, |fired| fired.hops) };
        let mut wrote = self.shared.wrote.0.lock().unwrap_or_else(PoisonError::into_inner);
        if wrote.len() < WROTE_MAX {
            wrote.push(written);
        }
        drop(wrote);
        self.shared.events.notify_one();
    }
}

impl Owner {
    /// Takes the objects that tasks wrote since the last time.
    pub(crate) fn take_wrote(&self) -> Vec<Written> {
        std::mem::take(&mut *self.shared.wrote.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
