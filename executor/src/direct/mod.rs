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

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind,
    direct::{Body, Logs, Reply, Timing},
    function::FunctionVersion,
    limit,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
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
    room: Room,
    /// Guests whose response streams.
    streaming: TaskTracker,
    stopping: CancellationToken,
}

impl Direct {
    /// A lane with nothing running.
    pub fn new(shared: Arc<Shared>) -> Self {
        let room = Room::new(shared.config.memory);
        Self { shared, room, streaming: TaskTracker::new(), stopping: CancellationToken::new() }
    }

    /// Stops guests whose response still streams, and waits for their end. Calls that have no response yet belong to
    /// their callers, which drop them.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.streaming.close();
        self.streaming.wait().await;
    }

    /// What every call begins with: memory, and a component to instantiate.
    async fn begin(&self, function: &FunctionVersion) -> Result<Begun, Error> {
        let permit = self.room.take(function.manifest.resources.memory).await?;
        let mut timing = Timing::default();
        let loaded = match self.shared.loader.ready(function.component) {
            Some(loaded) => loaded,
            None => {
                let begun = Instant::now();
                let loaded = self.shared.loader.get(function.component).await?;
                timing.cold = true;
                timing.compile_us = micros(begun);
                loaded
            }
        };
        Ok(Begun { loaded, permit, timing })
    }
}

struct Begun {
    loaded: Arc<Loaded>,
    permit: Permit,
    timing: Timing,
}

/// See [`fanfold_protocol::direct::DirectLane::call`].
pub(crate) async fn call(
    direct: &Arc<Direct>,
    function: Arc<FunctionVersion>,
    request: ::http::Request<Body>,
) -> Result<Reply, Error> {
    let begun = direct.begin(&function).await?;
    match &begun.loaded.program {
        Program::Cli(_) => program::run(direct, function, begun, request).await,
        Program::Task(_) => run_task(direct, function, begun, request).await,
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
    begun: Begun,
    request: ::http::Request<Body>,
) -> Result<Reply, Error> {
    let Begun { loaded, permit, mut timing } = begun;
    let input = collect(request.into_body(), limit::INPUT_BYTES_MAX).await?;
    let logs = LogSink::default();
    let call = task::DirectCall { function, loaded, input, logs: logs.clone() };
    let task::DirectOutput { output, instantiate_us, run_us } =
        task::run_direct(&direct.shared, call).await?;
    drop(permit);
    timing.instantiate_us = instantiate_us;
    timing.run_us = run_us;
    Ok(reply(output, timing, logs.logs()))
}

/// A whole body in memory; one that came in one piece is not copied.
async fn collect(body: Body, max: u64) -> Result<Bytes, Error> {
    let limited = Limited::new(body, usize::try_from(max).unwrap_or(usize::MAX));
    let collected = limited.collect().await.map_err(|error| match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) if error.is::<LengthLimitError>() => too_large(max),
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
