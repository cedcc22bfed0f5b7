//! The direct lane: how a gateway runs a synchronous call on an executor without the scheduler.
//!
//! A trait because there are two ways to reach an executor: in the same process, and over the network.

use std::{future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

use crate::{
    Digest, Error,
    function::{ComponentInfo, FunctionVersion},
};

/// A streamed body. Its errors are final: the stream ends with them.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// What a direct call answers.
#[derive(Debug)]
pub struct Reply {
    /// Status, headers and body. The body may still be produced by the function.
    pub response: http::Response<Body>,
    /// How long the steps before the response took.
    pub timing: Timing,
    /// What the function wrote to stdout, stderr and the log until now (NDJSON lines, possibly still growing).
    pub logs: Logs,
}

/// A direct call that failed before its response's head.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// What the function wrote until then; as of [`Reply`], but nobody writes to it any more.
    pub logs: Logs,
}

impl From<Error> for Failed {
    /// A call that failed before its function could log anything.
    fn from(error: Error) -> Self {
        Self { error, logs: Logs::default() }
    }
}

/// Captured log lines of one invocation, as NDJSON; shared with the instance that still writes them.
pub type Logs = Arc<std::sync::Mutex<Vec<u8>>>;

/// Steps of one call, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// Whether the compiled code had to be loaded first.
    pub cold: bool,
    /// Loading (and, where no compiled copy was there, compiling).
    pub compile_us: u64,
    /// Making the instance.
    pub instantiate_us: u64,
    /// From the function's first instruction to its response head.
    pub run_us: u64,
}

/// A boxed future of the direct lane. Dropping it stops the function.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A call under way. Dropping it stops the function.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failed>> + Send + 'a>>;

/// An executor, as the gateway's direct lane sees it.
pub trait DirectLane: Send + Sync + 'static {
    /// Checks a component that is in the store and makes its compiled code.
    ///
    /// # Errors
    /// [`crate::Kind::Invalid`] with what is wrong with it (for unknown imports: each of them), `limit` / `compile`
    /// where compiling took too long or too much memory.
    fn prepare(&self, component: Digest) -> Running<'_, ComponentInfo>;

    /// Runs an HTTP function. The request's URI is what the function shall see.
    fn http(&self, function: Arc<FunctionVersion>, request: http::Request<Body>) -> Calling<'_>;

    /// Runs a program or a task function with the request body as its input. For a program, query parameters
    /// `arg` (repeatable) are its arguments, in order. Never called for a function that submits.
    fn call(&self, function: Arc<FunctionVersion>, request: http::Request<Body>) -> Calling<'_>;
}
