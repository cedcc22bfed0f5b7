//! One attempt, from its assignment to its last message.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use fanfold_protocol::{
    AttemptId, Error,
    function::FunctionVersion,
    message::{Assignment, FromExecutor, Spent, Usage},
    value::Output,
};
use fanfold_store::Account;
use futures::FutureExt as _;

use super::{Inner, control::Control, foreign, meter::meter, session::Channel};
use crate::{
    load::{Loaded, Program},
    sandbox::LogSink,
    task::{self, Identity, Owner, TaskHost},
};

/// An attempt under way.
pub(super) struct Attempt {
    pub(super) worker: Arc<Inner>,
    /// Whose it is.
    session: Arc<Channel>,
    pub(super) control: Arc<Control>,
    pub(super) usage: Usage,
    received: Instant,
    /// When the function's first instruction ran.
    started: Option<Instant>,
}

/// Runs an attempt to its end. Never panics, and always sends its `Finished`.
pub(super) async fn run(
    worker: Arc<Inner>,
    session: Arc<Channel>,
    assignment: Assignment,
    control: Arc<Control>,
    received: Instant,
) {
    let id = assignment.attempt;
    let usage = Usage::default();
    let mut attempt =
        Attempt { worker: worker.clone(), session: session.clone(), control, usage, received, started: None };
    // What a panic leaves half-done is the attempt's own, and goes with it.
    let (account, memory) = (Account::default(), assignment.memory);
    let ran = AssertUnwindSafe(account.charge(attempt.run(assignment))).catch_unwind().await;
    let result = ran.unwrap_or_else(|panic| Err(panicked(id, panic.as_ref())));
    if let Some(started) = attempt.started {
        attempt.usage.run_us = micros(started.elapsed());
    }
    let logs = attempt.control.tail.end();
    let memory_mib_us = micros(received.elapsed()).saturating_mul(memory >> 20);
    let spent = Spent { memory_mib_us, requests: account.total() };
    let usage = attempt.usage;
    worker.finish(&session, FromExecutor::Finished { attempt: id, result, usage, spent, logs }).await;
}

impl Attempt {
    async fn run(&mut self, assignment: Assignment) -> Result<Vec<Output>, Error> {
        let function = self.worker.shared.store.version(assignment.version).await?;
        let loaded = self.load(&function).await?;
        match &loaded.program {
            Program::Task(_) => self.task(function, &loaded, assignment).await,
            // Boxed, so that the future of a task stays small.
            Program::Http(_) | Program::Cli(_) => Box::pin(foreign::run(self, function, assignment)).await,
        }
    }

    async fn load(&mut self, function: &FunctionVersion) -> Result<Arc<Loaded>, Error> {
        let loader = &self.worker.shared.loader;
        if let Some(loaded) = loader.ready(function.component) {
            return Ok(loaded);
        }
        self.usage.cold = true;
        // Not on the attempt's time, yet it can be stopped.
        meter(loader.get(function.component), &self.control, Duration::MAX).await.result?
    }

    async fn task(
        &mut self,
        function: Arc<FunctionVersion>,
        loaded: &Loaded,
        assignment: Assignment,
    ) -> Result<Vec<Output>, Error> {
        let Program::Task(pre) = &loaded.program else { return Err(Error::internal("not a task function")) };
        let Assignment {
            attempt,
            job,
            entry,
            args,
            outputs,
            generator,
            memory,
            gpu,
            timeout_ms,
            durability,
            ..
        } = assignment;
        let shared = &self.worker.shared;
        let identity = Identity { attempt, job, function, entry, outputs, generator, durability, gpu };
        let owner = Owner::new(attempt, self.session.events.clone(), self.control.clone());
        let host = TaskHost::new(shared.tasks.clone(), identity, Some(owner), &args);
        let logs = LogSink::default();
        self.control.tail.begin(&logs);
        let mut store = task::open(shared, host, memory, logs);
        let args = args.into_iter().map(|arg| arg.value).collect();
        let started = &mut self.started;
        let run = task::outputs(pre, &mut store, args, || *started = Some(Instant::now()));
        let timeout = Duration::from_millis(timeout_ms);
        let metered = meter(run, &self.control, timeout).await;
        self.note_start();
        self.usage.cpu_us = micros(metered.busy);
        self.usage.memory_peak = store.data().limits.peak();
        if let Some(task) = &store.data().task {
            (self.usage.bytes_read, self.usage.bytes_written) = task.transferred();
        }
        if metered.result.is_ok()
            && let Some(task) = &mut store.data_mut().task
        {
            // What it left running there is its time as well. A session that is not closed goes with its process.
            meter(task.close_gpu(), &self.control, timeout).await;
        }
        metered.result?
    }

    /// The function's first instruction runs, unless that was noted before.
    pub(super) fn start(&mut self) {
        self.started.get_or_insert_with(Instant::now);
        self.note_start();
    }

    fn note_start(&mut self) {
        let started = self.started.unwrap_or_else(Instant::now);
        self.usage.start_us = micros(started.saturating_duration_since(self.received));
    }
}

fn panicked(id: AttemptId, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown cause");
    tracing::error!(attempt = ?id, panic = text, "a host call panicked");
    Error::internal(format!("the executor failed while it ran this attempt: {text}"))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
