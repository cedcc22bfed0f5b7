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
pub mod session;
mod tail;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use fanfold_protocol::{
    AttemptId, Code, Error, JobId, Kind, limit,
    link::{Held, ShardTag},
    message::{Assignment, FromExecutor, Requests, Spent, ToExecutor},
    value::{Output, Stored, StoredKey},
};
use fanfold_store::{Account, Failpoint};
use tokio::{
    runtime::{Handle, Runtime},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{direct::Direct, executor::Shared};
use control::{Answer, Control};
use session::{Channel, Session, owner_gone};

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
    /// The newest session of each shard.
    sessions: Mutex<HashMap<ShardTag, Arc<Channel>>>,
    running: Mutex<HashMap<AttemptId, Running>>,
    attempts: TaskTracker,
    /// What goes on beside attempts: uploads, and telling what attempts write.
    uploads: TaskTracker,
    /// Nothing new is started, and what is assigned is handed back.
    leaving: CancellationToken,
    /// Nothing is done any more.
    draining: CancellationToken,
    /// Nobody waits for what attempts still have to say.
    halted: CancellationToken,
    threads: Handle,
    /// `None` once it is shut down.
    runtime: Mutex<Option<Runtime>>,
}

/// An attempt under way, and whose it is.
struct Running {
    control: Arc<Control>,
    session: Arc<Channel>,
}

impl Worker {
    /// Starts the threads and the cache's uploads.
    ///
    /// # Errors
    /// [`Kind::Platform`] where threads cannot be started.
    pub fn start(shared: Arc<Shared>, direct: Arc<Direct>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(shared.config.slots.max(1) as usize)
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("fanfold-slot")
            .enable_all()
            .build()
            .map_err(|e| Error::internal(format!("the executor's threads do not start: {e}")))?;
        let inner = Inner {
            direct,
            sessions: Mutex::default(),
            running: Mutex::default(),
            attempts: TaskTracker::new(),
            uploads: TaskTracker::new(),
            leaving: CancellationToken::new(),
            draining: CancellationToken::new(),
            halted: CancellationToken::new(),
            threads: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            shared,
        };
        let inner = Arc::new(inner);
        let (cache, halted) = (inner.shared.tasks.cache.clone(), inner.halted.clone());
        let announcer = Arc::downgrade(&inner);
        let uploads = cache.run(move |key| announcer.upgrade().and_then(|inner| inner.owner_of(key)), halted);
        inner.uploads.spawn_on(uploads, &inner.threads);
        inner.uploads.spawn_on(tell_logs(Arc::downgrade(&inner), inner.halted.clone()), &inner.threads);
        Ok(Self(inner))
    }

    /// Begins a session with the owner of a shard; `events` takes what attempts have to say. One that was open with
    /// an earlier owner of the shard hears no more of uploads.
    pub fn attach(&self, shard: ShardTag, events: mpsc::Sender<FromExecutor>) -> Session {
        let channel = Arc::new(Channel::new(events));
        self.0.sessions().insert(shard, channel.clone());
        Session::new(self.clone(), channel)
    }

    /// The partitions of a shard's jobs, or of all, that are here and were made here.
    pub fn held(&self, shard: Option<ShardTag>) -> Vec<Held> {
        self.0.shared.tasks.cache.held(|key| shard.is_none_or(|shard| key.job.shard() == shard))
    }

    /// Starts nothing new, waits until what runs has ended, and uploads what only this executor has.
    ///
    /// # Errors
    /// Of an upload.
    pub async fn drain(&self) -> Result<(), Error> {
        self.0.leaving.cancel();
        self.0.attempts.close();
        self.0.attempts.wait().await;
        self.0.attempts.reopen();
        self.0.shared.tasks.cache.upload_all().await
    }

    fn end_session(&self, ended: &Channel) {
        self.0.sessions().retain(|_, channel| channel.id != ended.id);
        let running = self.0.running();
        for attempt in running.values().filter(|attempt| attempt.session.id == ended.id) {
            attempt.control.stop(owner_gone());
        }
    }

    fn take(&self, session: &Arc<Channel>, message: ToExecutor) -> Result<(), Error> {
        if self.0.draining.is_cancelled() {
            return Err(draining());
        }
        match message {
            ToExecutor::Run(assignment) => self.run(session, *assignment),
            ToExecutor::Stop { attempt, error } => self.tell(attempt, |control| control.stop(error)),
            ToExecutor::Woken { attempt, wait, ready } => {
                self.tell(attempt, |control| control.answer(wait, Answer::Woken(ready)));
            }
            ToExecutor::Next { attempt, wait, result } => {
                self.tell(attempt, |control| control.answer(wait, Answer::Next(result)));
            }
            ToExecutor::MayYield { attempt, below } => self.tell(attempt, |control| control.may_yield(below)),
            ToExecutor::Free(keys) => self.0.shared.tasks.cache.free(&keys),
            ToExecutor::Prefetch(wanted) => self.prefetch(wanted),
            ToExecutor::Peers(peers) => self.0.shared.tasks.cache.peers().update(peers),
        }
        Ok(())
    }

    fn run(&self, session: &Arc<Channel>, assignment: Assignment) {
        let received = Instant::now();
        Failpoint::AttemptReceived.pass();
        let attempt = assignment.attempt;
        let control = Arc::new(Control::default());
        if self.0.leaving.is_cancelled() {
            // It was sent before its owner heard that we leave.
            control.stop(draining());
        }
        let entry = Running { control: control.clone(), session: session.clone() };
        if self.0.running().insert(attempt, entry).is_some() {
            // An attempt's number is used once, so this is the same message again; the first one goes on.
            tracing::error!(?attempt, "an attempt was assigned twice");
            return;
        }
        // While the instance is made. Several inputs are fetched at once, where the guest opens them one by one.
        self.prefetch(inputs(&assignment).cloned().collect());
        let run = attempt::run(self.0.clone(), session.clone(), assignment, control, received);
        self.0.attempts.spawn_on(run, &self.0.threads);
    }

    /// Fetches what will be read.
    fn prefetch(&self, wanted: Vec<Stored>) {
        let env = &self.0.shared.tasks;
        let wanted = env.cache.not_here(wanted);
        let Some(job) = wanted.first().map(|stored| stored.key.job) else { return };
        let (worker, cache) = (Arc::downgrade(&self.0), env.cache.clone());
        let fetch = async move {
            let account = Account::default();
            account.charge(cache.prefetch(wanted)).await;
            if let Some(worker) = worker.upgrade() {
                worker.tell_spent(job, &account).await;
            }
        };
        env.reads.spawn_on(fetch, &self.0.threads);
    }

    /// Tells a running attempt something; what is for another one is late and dropped.
    fn tell(&self, attempt: AttemptId, what: impl FnOnce(&Control)) {
        let control = self.0.running().get(&attempt).map(|attempt| attempt.control.clone());
        if let Some(control) = control {
            what(&control);
        }
    }

    /// Stops what runs, waits until it is gone, and ends the threads.
    pub async fn stop(&self) {
        let inner = &self.0;
        inner.draining.cancel();
        inner.running().values().for_each(|attempt| attempt.control.stop(draining()));
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
    fn running(&self) -> MutexGuard<'_, HashMap<AttemptId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<ShardTag, Arc<Channel>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who wants to know what becomes of a partition.
    fn owner_of(&self, key: StoredKey) -> Option<mpsc::Sender<FromExecutor>> {
        self.sessions().get(&key.job.shard()).map(|channel| channel.events.clone())
    }

    /// Tells the job's owner what was done for it beside its attempts.
    async fn tell_spent(&self, job: JobId, account: &Account) {
        let requests = account.total();
        let owner = self.sessions().get(&job.shard()).map(|channel| channel.events.clone());
        let Some(owner) = owner.filter(|_| requests != Requests::default()) else { return };
        let spent = Spent { requests, ..Spent::default() };
        tokio::select! {
            // An owner that is gone counts no more.
            _ = owner.send(FromExecutor::Spent { job, spent }) => {}
            () = self.halted.cancelled() => {}
        }
    }

    fn runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an attempt's last message.
    async fn finish(&self, session: &Channel, message: FromExecutor) {
        if let FromExecutor::Finished { attempt, .. } = &message {
            self.running().remove(attempt);
        }
        Failpoint::AttemptEnded.pass();
        let sent = session.events.try_send(message);
        Failpoint::ResultQueued.pass();
        let Err(mpsc::error::TrySendError::Full(message)) = sent else { return };
        tokio::select! {
            // An owner that is gone has forgotten the attempt.
            _ = session.events.send(message) => {}
            () = self.halted.cancelled() => {}
        }
    }
}

/// Tells owners what running attempts have written, a few times a second.
async fn tell_logs(worker: Weak<Inner>, halted: CancellationToken) {
    let mut interval = tokio::time::interval(Duration::from_millis(limit::LOG_INTERVAL_MS));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = halted.cancelled() => return,
        }
        let Some(worker) = worker.upgrade() else { return };
        let running: Vec<_> = {
            let running = worker.running();
            running.iter().map(|(id, run)| (*id, run.control.clone(), run.session.clone())).collect()
        };
        for (attempt, control, session) in running {
            control.tail.flush(attempt, &session.events);
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

/// Partitions among the arguments that are brought into memory as a whole where they are from elsewhere.
fn inputs(assignment: &Assignment) -> impl Iterator<Item = &Stored> {
    assignment.args.iter().filter_map(|arg| match &arg.output {
        Some(Output::Stored(stored)) => (stored.meta.bytes <= arg.value.whole_max()).then_some(stored),
        _ => None,
    })
}

fn draining() -> Error {
    Error::new(Kind::Overloaded, Code::Draining, "the executor is stopping")
}

#[cfg(test)]
mod tests;
