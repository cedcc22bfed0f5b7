//! The scheduled lane: runs the attempts an owner assigns, on threads of its own.
//!
//! It owns those threads and the running attempts. It promises exactly one `Finished` per attempt that it was told to
//! run, also when the attempt was stopped, panicked on the host's side or never began, and no message of an attempt
//! after it. It does not decide what runs when: an owner sends no more than was offered.
//!
//! A message is handled on the sender's thread: starting an attempt is one entry in a map and one new async task, so
//! there is no queue between an owner and the threads that could grow.

mod attempt;
pub mod control;
mod foreign;
pub mod meter;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fanfold_protocol::{
    AttemptId, Code, Error, Kind,
    message::{FromExecutor, ToExecutor},
};
use tokio::{
    runtime::{Handle, Runtime},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{direct::Direct, executor::Shared};
use control::{Answer, Control};

/// Threads for file operations: enough to keep a disk busy.
const BLOCKING_THREADS_MAX: usize = 32;
/// How long stopped attempts may take to say so.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A handle to the lane; cheap to clone.
#[derive(Clone)]
pub struct Worker(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// Runs HTTP functions and programs, which know nothing of tasks.
    direct: Arc<Direct>,
    events: mpsc::Sender<FromExecutor>,
    running: Mutex<HashMap<AttemptId, Arc<Control>>>,
    attempts: TaskTracker,
    uploads: TaskTracker,
    /// Nothing new is started.
    draining: CancellationToken,
    /// Nobody waits for what attempts still have to say.
    halted: CancellationToken,
    threads: Handle,
    /// `None` once it is shut down.
    runtime: Mutex<Option<Runtime>>,
}

impl Worker {
    /// Starts the threads and the cache's uploads. `events` takes what attempts have to say.
    ///
    /// # Errors
    /// [`Kind::Platform`] where threads cannot be started.
    pub fn start(
        shared: Arc<Shared>,
        direct: Arc<Direct>,
        events: mpsc::Sender<FromExecutor>,
    ) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(shared.config.slots.max(1) as usize)
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("fanfold-slot")
            .enable_all()
            .build()
            .map_err(|e| Error::internal(format!("the executor's threads do not start: {e}")))?;
        let inner = Inner {
            direct,
            running: Mutex::default(),
            attempts: TaskTracker::new(),
            uploads: TaskTracker::new(),
            draining: CancellationToken::new(),
            halted: CancellationToken::new(),
            threads: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            shared,
            events,
        };
        let uploads = inner.shared.tasks.cache.clone().run(inner.events.clone(), inner.halted.clone());
        inner.uploads.spawn_on(uploads, &inner.threads);
        Ok(Self(Arc::new(inner)))
    }

    /// Handles a message. Does not wait.
    ///
    /// # Errors
    /// [`Code::Draining`] after [`Worker::stop`].
    pub fn send(&self, message: ToExecutor) -> Result<(), Error> {
        if self.0.draining.is_cancelled() {
            return Err(draining());
        }
        match message {
            ToExecutor::Run(assignment) => self.run(*assignment),
            ToExecutor::Stop { attempt, error } => self.tell(attempt, |control| control.stop(error)),
            ToExecutor::Woken { attempt, wait, ready } => {
                self.tell(attempt, |control| control.answer(wait, Answer::Woken(ready)));
            }
            ToExecutor::Next { attempt, wait, result } => {
                self.tell(attempt, |control| control.answer(wait, Answer::Next(result)));
            }
            ToExecutor::MayYield { attempt, below } => self.tell(attempt, |control| control.may_yield(below)),
            ToExecutor::Free(keys) => self.0.shared.tasks.cache.free(&keys),
        }
        Ok(())
    }

    fn run(&self, assignment: fanfold_protocol::message::Assignment) {
        let received = Instant::now();
        let attempt = assignment.attempt;
        let control = Arc::new(Control::default());
        if self.0.running().insert(attempt, control.clone()).is_some() {
            // An attempt's number is used once, so this is the same message again; the first one goes on.
            tracing::error!(?attempt, "an attempt was assigned twice");
            return;
        }
        let run = attempt::run(self.0.clone(), assignment, control, received);
        self.0.attempts.spawn_on(run, &self.0.threads);
    }

    /// Tells a running attempt something; what is for another one is late and dropped.
    fn tell(&self, attempt: AttemptId, what: impl FnOnce(&Control)) {
        let control = self.0.running().get(&attempt).cloned();
        if let Some(control) = control {
            what(&control);
        }
    }

    /// Stops what runs, waits until it is gone, and ends the threads.
    pub async fn stop(&self) {
        let inner = &self.0;
        inner.draining.cancel();
        let running: Vec<Arc<Control>> = inner.running().values().cloned().collect();
        running.iter().for_each(|control| control.stop(draining()));
        inner.attempts.close();
        // An attempt that is stopped still says so, as long as somebody listens.
        let _ = tokio::time::timeout(STOP_PATIENCE, inner.attempts.wait()).await;
        inner.halted.cancel();
        inner.attempts.wait().await;
        inner.uploads.close();
        inner.uploads.wait().await;
        if let Some(runtime) = inner.runtime().take() {
            runtime.shutdown_background();
        }
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<Control>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an attempt's last message.
    async fn finish(&self, message: FromExecutor) {
        if let FromExecutor::Finished { attempt, .. } = &message {
            self.running().remove(attempt);
        }
        let Err(mpsc::error::TrySendError::Full(message)) = self.events.try_send(message) else { return };
        tokio::select! {
            // An owner that is gone has forgotten the attempt.
            _ = self.events.send(message) => {}
            () = self.halted.cancelled() => {}
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The last handle may go on an async thread, where waiting for threads is not allowed.
        if let Some(runtime) = self.runtime().take() {
            runtime.shutdown_background();
        }
    }
}

fn draining() -> Error {
    Error::new(Kind::Overloaded, Code::Draining, "the executor is stopping")
}

#[cfg(test)]
mod tests;
