//! Running a task's handler in a sandbox: for the worker, and directly for calls that need no job.

use std::{sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::{
    AttemptId, Code, Error, JobId, Kind, TaskId,
    call::Durability,
    function::FunctionVersion,
    limit,
    value::{Output, Payload, Value},
};
use wasmtime::Store;

use super::{
    bindings::{TaskPre, fanfold::function::log, fanfold::function::types},
    convert,
    host::{HasTask, Identity, TaskHost, stale},
    reader::Reader,
};
use crate::{
    executor::Shared,
    load::{Loaded, Program},
    sandbox::{self, Guest, LogSink, SandboxSpec, Source, Time},
    worker::{control::Control, meter::meter},
};

impl HasTask for Guest {
    fn task(&mut self) -> Option<&mut TaskHost> {
        self.task.as_mut()
    }

    fn log(&mut self, level: log::Level, line: &str) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Debug => sandbox::Level::Debug,
            log::Level::Info => sandbox::Level::Info,
            log::Level::Warn => sandbox::Level::Warn,
            log::Level::Error => sandbox::Level::Error,
        };
        Ok(self.logs.line(Source::Log, Some(level), line)?)
    }

    fn stands(&mut self, text: String) {
        self.logs.status().say(text);
    }
}

/// When the job of a task was accepted, in Unix milliseconds: its id says.
pub fn accepted_ms(job: JobId) -> u64 {
    job.0.get_timestamp().map_or(0, |at| {
        let (seconds, nanos) = at.to_unix();
        seconds * 1000 + u64::from(nanos) / 1_000_000
    })
}

/// Opens a sandbox for a task.
pub fn open(shared: &Shared, host: TaskHost, memory: u64, logs: LogSink) -> Store<Guest> {
    let function = host.identity.function.clone();
    let time = Time::of(&function, accepted_ms(host.identity.job), host.identity.attempt.task);
    let mut store = sandbox::open(
        &shared.engine,
        SandboxSpec {
            function: &function,
            memory,
            time,
            args: &[],
            stdin: None,
            stdout: None,
            logs,
            allow_private_egress: shared.config.allow_private_egress,
            task: Some(host),
            turns: None,
        },
    );
    // A driver holds a handle per task that it waits for.
    store.set_max_component_handles(limit::FUTURES_HELD_MAX + limit::READERS_MAX);
    store
}

/// Makes the instance and calls its handler; `started` is called in between.
///
/// # Errors
/// Why the guest ended without returning, or the error that it returned.
pub async fn handle(
    pre: &TaskPre<Guest>,
    store: &mut Store<Guest>,
    args: Vec<Value>,
    started: impl FnOnce(),
) -> Result<Vec<types::Value>, Error> {
    let args: Vec<types::Value> = args.into_iter().map(Into::into).collect();
    let entry = store.data_mut().task.as_ref().map(|task| task.identity.entry.clone()).unwrap_or_default();
    let run = async {
        let task = pre.instantiate_async(&mut *store).await?;
        started();
        task.fanfold_function_handler().call_handle(&mut *store, &entry, &args).await
    };
    match run.await {
        Ok(returned) => returned.map_err(|error| match &store.data().task {
            Some(task) => task.returned(error),
            None => convert::returned(error),
        }),
        Err(ended) => Err(sandbox::classify(&ended, store.data())),
    }
}

/// As [`handle`], up to the task's outputs.
///
/// # Errors
/// As [`handle`], and for values that may not be returned.
pub async fn outputs(
    pre: &TaskPre<Guest>,
    store: &mut Store<Guest>,
    args: Vec<Value>,
    started: impl FnOnce(),
) -> Result<Vec<Output>, Error> {
    let values = handle(pre, store, args, started).await?;
    store.data_mut().task.as_mut().ok_or_else(stale)?.conclude(values).await
}

/// A call of a task function that belongs to no job.
pub struct DirectCall {
    /// What to run.
    pub function: Arc<FunctionVersion>,
    /// Its code.
    pub loaded: Arc<Loaded>,
    /// Its one argument.
    pub input: Bytes,
    /// Where its log lines go.
    pub logs: LogSink,
}

/// What a direct call answers. Times are microseconds.
#[derive(Debug)]
pub struct DirectOutput {
    /// Its one output.
    pub output: Bytes,
    /// Making the instance.
    pub instantiate_us: u64,
    /// From the first instruction to the last.
    pub run_us: u64,
}

/// Runs a task function that does not submit: a root task with one argument and one output, known to nobody.
///
/// # Errors
/// As [`handle`]; [`Code::OutputTooLarge`] for more than the manifest's `body_max`.
pub async fn run_direct(shared: &Shared, call: DirectCall) -> Result<DirectOutput, Error> {
    let DirectCall { function, loaded, input, logs } = call;
    let Program::Task(pre) = &loaded.program else { return Err(Error::internal("not a task function")) };
    let (job, _) = sandbox::fresh_job();
    let (memory, body_max) = (function.manifest.resources.memory, function.manifest.body_max);
    let timeout = std::time::Duration::from_millis(function.manifest.timeout);
    let identity = Identity {
        attempt: AttemptId { task: TaskId::root(job), epoch: 0, number: 1 },
        job,
        function,
        entry: String::new(),
        outputs: 1,
        generator: false,
        durability: Durability::None,
        // Whoever asks for one is a job.
        gpu: 0,
    };
    let host = TaskHost::new(shared.tasks.clone(), identity, None, &[]);
    let begun = Instant::now();
    let mut store = open(shared, host, memory, logs);
    let mut instantiate_us = 0;
    let run = async {
        let args = vec![Value::Inline(Payload::from(input))];
        let values = handle(pre, &mut store, args, || instantiate_us = micros(begun)).await?;
        let ended = micros(begun);
        let task = store.data_mut().task.as_mut().ok_or_else(stale)?;
        Ok((task.whole(values, body_max).await?, ended))
    };
    let control = Control::default();
    let (output, ended) = meter(run, &control, timeout).await.result??;
    Ok(DirectOutput { output, instantiate_us, run_us: ended.saturating_sub(instantiate_us) })
}

impl TaskHost {
    /// The bytes of the one value that a direct call returned.
    async fn whole(&mut self, values: Vec<types::Value>, max: u64) -> Result<Bytes, Error> {
        let output = match <[types::Value; 1]>::try_from(values) {
            // Any length: it is answered at once and stored nowhere.
            Ok([types::Value::Inline(payload)]) => return fitting(Bytes::from(payload.bytes), max),
            Ok(values) => self.conclude(values.into()).await?.pop(),
            Err(values) => self.conclude(values).await?.pop(),
        };
        let reader = match output.ok_or_else(stale)? {
            Output::Inline(payload) => return fitting(payload.bytes, max),
            Output::Stored(stored) => self.open_own(&stored).await?,
            Output::Alias(value) => self.open_value(*value).await?,
        };
        self.read_all(reader, max).await
    }

    async fn read_all(&mut self, mut reader: Box<Reader>, max: u64) -> Result<Bytes, Error> {
        let size = reader.size();
        if size > max {
            return Err(too_large(size, max));
        }
        if let Some([only]) = reader.chunks().as_deref() {
            return Ok(only.clone());
        }
        let mut whole = BytesMut::with_capacity(size as usize);
        while (whole.len() as u64) < size {
            let step = limit::HOST_CALL_BYTES_MAX as u32;
            let (back, part) = self.read_from(reader, whole.len() as u64, step).await;
            whole.extend_from_slice(&part?);
            reader = back;
        }
        Ok(whole.freeze())
    }
}

fn fitting(bytes: Bytes, max: u64) -> Result<Bytes, Error> {
    if bytes.len() as u64 > max { Err(too_large(bytes.len() as u64, max)) } else { Ok(bytes) }
}

fn too_large(bytes: u64, max: u64) -> Error {
    let message = format!(
        "the function's response has {bytes} bytes and may have {max}: write an object, or raise `body_max`"
    );
    Error::new(Kind::Limit, Code::OutputTooLarge, message)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
