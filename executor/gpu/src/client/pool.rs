//! The workers of an executor: at most so many, each for one session at a time and for one owner as long as it lives.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use fanfold_protocol::{Code, Error, limit};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};
use tokio_util::task::TaskTracker;

use super::{Owner, Settings, account::Account, process::Process, watch::Budgets};
use crate::message::Adapter;

/// The first pause after a worker that did not start; each further one is twice as long.
const BACKOFF_MS: u64 = 100;

/// See the module.
pub(super) struct Pool {
    settings: Settings,
    /// One for each session that may be.
    pub permits: Arc<Semaphore>,
    tracker: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Workers without a session, the one that was used last at the end.
    idle: Vec<Idle>,
    accounts: HashMap<Owner, Weak<Account>>,
    /// What was found when a worker started last.
    adapter: Option<Adapter>,
    /// Starts that failed since one succeeded.
    failures: u32,
    /// When the next may be tried.
    next_start: Option<Instant>,
}

struct Idle {
    account: Arc<Account>,
    process: Process,
}

impl Pool {
    pub fn new(settings: Settings) -> Self {
        let permits = Arc::new(Semaphore::new(settings.workers));
        Self { settings, permits, tracker: TaskTracker::new(), state: Mutex::default() }
    }

    /// The owner's account. It lives as long as somebody has it, which idle workers do.
    pub fn account(&self, owner: &Owner) -> Arc<Account> {
        let mut state = self.state();
        if let Some(account) = state.accounts.get(owner).and_then(Weak::upgrade) {
            return account;
        }
        state.accounts.retain(|_, account| account.strong_count() > 0);
        let account = Arc::new(Account::new(self.settings.memory));
        state.accounts.insert(owner.clone(), Arc::downgrade(&account));
        account
    }

    /// A worker for this owner: its own from before, or a new one.
    pub async fn worker(&self, account: &Arc<Account>) -> Result<Process, Error> {
        while let Some(mut process) = self.take_idle(account) {
            if process.set_idle(false).await.is_ok() && process.ended().is_none() {
                return Ok(process);
            }
        }
        self.make_room();
        self.start().await
    }

    /// Keeps a worker for its owner.
    pub fn keep(&self, account: Arc<Account>, process: Process) {
        // After the end, it ends as well.
        if !self.permits.is_closed() {
            self.state().idle.push(Idle { account, process });
        }
    }

    /// What workers were found to compute on, if one has started.
    pub fn adapter(&self) -> Option<Adapter> {
        self.state().adapter.clone()
    }

    /// Ends all workers that have no session, and waits for the others.
    pub async fn stop(&self) {
        self.permits.close();
        self.state().idle.clear();
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn take_idle(&self, account: &Arc<Account>) -> Option<Process> {
        let mut state = self.state();
        state.idle.retain(|idle| idle.process.ended().is_none());
        let at = state.idle.iter().rposition(|idle| Arc::ptr_eq(&idle.account, account))?;
        Some(state.idle.remove(at).process)
    }

    /// Ends the owner's idle worker that keeps buffers and was idle for longest. Whether there was one.
    pub fn end_keeper(&self, account: &Arc<Account>) -> bool {
        let mut state = self.state();
        let keeps = |idle: &Idle| Arc::ptr_eq(&idle.account, account) && !idle.process.kept.is_empty();
        match state.idle.iter().position(keeps) {
            Some(at) => {
                state.idle.remove(at);
                true
            }
            None => false,
        }
    }

    /// Ends the worker that was idle for longest, where there are as many as there may be with sessions.
    fn make_room(&self) {
        let mut state = self.state();
        let sessions = self.settings.workers.saturating_sub(self.permits.available_permits());
        if state.idle.len() + sessions > self.settings.workers {
            state.idle.remove(0);
        }
    }

    /// Starts a worker; after failures, not before a pause is over.
    async fn start(&self) -> Result<Process, Error> {
        let wait = self.state().next_start;
        if let Some(until) = wait {
            sleep_until(until).await;
        }
        let Settings { command, memory, submission, .. } = &self.settings;
        let budgets = Budgets {
            submission: *submission,
            call: self.settings.call,
            idle: Duration::from_millis(limit::GPU_IDLE_MS),
        };
        let started = Process::start(command, *memory, budgets, &self.tracker).await;
        let mut state = self.state();
        match &started {
            Ok(process) => {
                (state.failures, state.next_start) = (0, None);
                state.adapter = Some(process.adapter.clone());
            }
            // That there is no adapter is known, and not worth a pause.
            Err(error) if error.code == Code::GpuAdapter => {}
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                let pause = BACKOFF_MS.saturating_mul(1 << (state.failures - 1).min(16));
                let pause = Duration::from_millis(pause.min(limit::GPU_BACKOFF_MS_MAX));
                state.next_start = Some(Instant::now() + pause);
                tracing::warn!(%error, ?pause, "a gpu process did not start");
            }
        }
        started
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
