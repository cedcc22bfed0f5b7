//! The direct lane: synchronous calls, each on a fresh instance, on the caller's own async task.
//!
//! Nothing is queued and nothing is recorded. A call that is done when its guest is first polled to the end (most are)
//! spawns nothing; only a response that streams on after its head gets a task of its own, which the body holds.
//! Dropping the call, or the body, stops the guest.

pub(crate) mod http;

mod body;
mod call;
mod pipe;
mod program;
mod room;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind,
    direct::{Body, Logs, Reply, Timing},
    function::FunctionVersion,
    limit,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    executor::Shared,
    load::{Loaded, Program},
    sandbox::LogSink,
    task,
};

use room::{Permit, Room};

/// The lane's own state.
pub struct Direct {
    shared: Arc<Shared>,
    /// `None` where the caller has charged the memory already.
    room: Option<Room>,
    /// Guests whose response streams.
    streaming: TaskTracker,
    stopping: CancellationToken,
}

impl Direct {
    /// The lane of calls that come from outside, with memory of its own.
    pub fn new(shared: Arc<Shared>) -> Self {
        let room = Room::new(shared.config.memory);
        Self { room: Some(room), ..Self::charged(shared) }
    }

    /// A lane for calls whose memory a scheduler has charged.
    pub fn charged(shared: Arc<Shared>) -> Self {
        Self { shared, room: None, streaming: TaskTracker::new(), stopping: CancellationToken::new() }
    }

    /// Stops guests whose response still streams, and waits for their end. Calls that have no response yet belong to
    /// their callers, which drop them.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.streaming.close();
        self.streaming.wait().await;
    }

    /// The component to instantiate, and how long it took to have it.
    async fn load(&self, function: &FunctionVersion) -> Result<(Arc<Loaded>, Timing), Error> {
        if let Some(loaded) = self.shared.loader.ready(function.component) {
            return Ok((loaded, Timing::default()));
        }
        let begun = Instant::now();
        let loaded = self.shared.loader.get(function.component).await?;
        Ok((loaded, Timing { cold: true, compile_us: micros(begun), ..Timing::default() }))
    }

    /// Memory for an instance of `function`.
    async fn room(&self, function: &FunctionVersion) -> Result<Option<Permit>, Error> {
        match &self.room {
            Some(room) => room.take(function.manifest.resources.memory).await.map(Some),
            None => Ok(None),
        }
    }
}

/// See [`fanfold_protocol::direct::DirectLane::call`]. `logs` has the log lines also of a call that fails.
pub(crate) async fn call(
    direct: &Arc<Direct>,
    function: Arc<FunctionVersion>,
    request: ::http::Request<Body>,
    logs: LogSink,
) -> Result<Reply, Error> {
    let (loaded, timing) = direct.load(&function).await?;
    match &loaded.program {
        Program::Cli(_) => program::run(direct, function, loaded, timing, request, logs).await,
        Program::Task(_) => run_task(direct, function, loaded, timing, request, logs).await,
        Program::Http(_) => Err(Error::invalid(format!(
            "`{}` is an HTTP function: send requests to /function/{0}/",
            function.name
        ))),
    }
}

/// A task function as a plain call: the request's body is its one argument, its one output the response.
async fn run_task(
    direct: &Arc<Direct>,
    function: Arc<FunctionVersion>,
    loaded: Arc<Loaded>,
    mut timing: Timing,
    request: ::http::Request<Body>,
    logs: LogSink,
) -> Result<Reply, Error> {
    let input = input(request.into_body(), function.manifest.timeout).await?;
    // Only now: a client that is slow to send holds no room.
    let _permit = direct.room(&function).await?;
    let call = task::DirectCall { function, loaded, input, logs: logs.clone() };
    let ran = task::run_direct(&direct.shared, call).await?;
    timing.instantiate_us = ran.instantiate_us;
    timing.run_us = ran.run_us;
    Ok(reply(ran.output, timing, logs.logs()))
}

/// A task's argument, in memory; one that came in one piece is not copied.
async fn input(body: Body, timeout_ms: u64) -> Result<Bytes, Error> {
    const MAX: usize = limit::INPUT_BYTES_MAX as usize;
    let collected = timeout(Duration::from_millis(timeout_ms), Limited::new(body, MAX).collect()).await;
    let late = |_| Error::invalid(format!("the request's body did not arrive within {timeout_ms} ms"));
    let collected = collected.map_err(late)?.map_err(|error| match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) if error.is::<LengthLimitError>() => too_large(limit::INPUT_BYTES_MAX),
        Err(error) => Error::invalid(format!("the request's body cannot be read: {error}")),
    })?;
    Ok(collected.to_bytes())
}

/// A reply that is `output` and nothing else.
fn reply(output: Bytes, timing: Timing, logs: Logs) -> Reply {
    let mut response =
        ::http::Response::new(Full::new(output).map_err(|never| match never {}).boxed_unsync());
    let octets = ::http::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(::http::header::CONTENT_TYPE, octets);
    Reply { response, timing, logs }
}

fn too_large(max: u64) -> Error {
    let message =
        format!("the request's body has over {max} bytes; put it in as an object, or raise `body_max`");
    Error::new(Kind::Invalid, Code::BodyTooLarge, message)
}

fn output_too_large(max: u64) -> Error {
    let message =
        format!("the function's response has over {max} bytes; write an object, or raise `body_max`");
    Error::new(Kind::Limit, Code::OutputTooLarge, message)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
