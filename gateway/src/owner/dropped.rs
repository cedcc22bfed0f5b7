//! What callers leave behind when their futures and bodies are dropped: jobs to cancel, objects to remove.
//!
//! A drop cannot wait for room in a channel, so these go into a list of their own. It is bounded by what it stands
//! for: each entry is a call or an answer that the owner gave out, and it is taken away at the owner's next turn.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use fanfold_protocol::{JobId, value::Stored};
use futures::task::AtomicWaker;

/// What is left to do for a dropped handle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// Nobody waits for this unrecorded job any more.
    Cancel(JobId),
    /// Nobody reads the result of an unrecorded job any more, which consists of these.
    Free(Vec<Stored>),
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    left: Mutex<Vec<Left>>,
    owner: AtomicWaker,
}

impl Dropped {
    fn add(&self, left: Left) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
        self.owner.wake();
    }

    /// Takes what is in the list; pending while it is empty.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Vec<Left>> {
        self.owner.register(cx.waker());
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        if left.is_empty() { Poll::Pending } else { Poll::Ready(left) }
    }
}

/// Adds its entry to the list when it is dropped, unless it was disarmed.
#[derive(Debug)]
pub(super) struct Leftover {
    left: Option<Left>,
    dropped: Arc<Dropped>,
}

impl Leftover {
    pub fn new(dropped: &Arc<Dropped>, left: Left) -> Self {
        Self { left: Some(left), dropped: Arc::clone(dropped) }
    }

    pub fn disarm(mut self) {
        self.left = None;
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.dropped.add(left);
        }
    }
}
