//! Captured log lines of one attempt: stdout, stderr and the log host call, as NDJSON, up to a cap.
//!
//! A line is `{"at_us":…,"stream":"stdout"|"stderr"|"log","level":…,"line":…}`: microseconds since the attempt began,
//! `level` only from the log call. A guest that writes more than [`limit::LOG_BYTES_MAX`] is trapped at once.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use fanfold_protocol::{direct::Logs, limit};
use serde::Serialize;
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamError, StreamResult},
};

/// A longer line is cut in several.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Standard output of a function that is not a program.
    Stdout,
    /// Standard error.
    Stderr,
    /// The `log` host call.
    Log,
}

/// Weight of a line of the `log` host call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the usual four")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// The guest wrote more than it may; ends it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("over {} bytes of log lines", limit::LOG_BYTES_MAX)]
pub struct LogOverflow;

#[derive(Serialize)]
struct Line<'a> {
    at_us: u64,
    stream: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<Level>,
    line: &'a str,
}

/// Where the log lines of one attempt go. Clones write to the same place.
#[derive(Clone)]
pub struct LogSink {
    logs: Logs,
    status: Status,
    begun: Instant,
}

/// What an attempt said last of how its job stands, until somebody takes it.
#[derive(Clone, Debug, Default)]
pub struct Status(Arc<Mutex<Option<String>>>);

impl Status {
    /// Says it, in place of what was said before: at most [`limit::STATUS_BYTES_MAX`] bytes of it.
    pub fn say(&self, mut text: String) {
        text.truncate(text.floor_char_boundary(limit::STATUS_BYTES_MAX));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// What was said since the last time.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Default for LogSink {
    fn default() -> Self {
        Self { logs: Logs::default(), status: Status::default(), begun: Instant::now() }
    }
}

impl LogSink {
    /// The lines so far, shared with the attempt that may still write.
    pub fn logs(&self) -> Logs {
        self.logs.clone()
    }

    /// What the attempt says of how its job stands.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// When the attempt began.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Adds a line.
    ///
    /// # Errors
    /// [`LogOverflow`] where it does not fit; it is then left out.
    pub fn line(&self, stream: Source, level: Option<Level>, line: &str) -> Result<(), LogOverflow> {
        let at_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut logs = lock(&self.logs);
        let before = logs.len();
        if before + line.len() <= limit::LOG_BYTES_MAX {
            // Writing plain values to a vector cannot fail.
            let _ = serde_json::to_writer(&mut *logs, &Line { at_us, stream, level, line });
            logs.push(b'\n');
            if logs.len() <= limit::LOG_BYTES_MAX {
                return Ok(());
            }
            logs.truncate(before);
        }
        Err(LogOverflow)
    }

    /// A standard stream whose lines come here. Bytes that are not UTF-8 are replaced.
    pub(super) fn stream(&self, source: Source) -> LogStream {
        LogStream(Arc::new(Splitter { sink: self.clone(), source, rest: Mutex::default() }))
    }
}

/// A standard stream that is captured. All handles of a guest share what is left of the current line.
#[derive(Clone)]
pub(super) struct LogStream(Arc<Splitter>);

struct Splitter {
    sink: LogSink,
    source: Source,
    rest: Mutex<Vec<u8>>,
}

impl Splitter {
    fn write(&self, mut bytes: &[u8]) -> Result<(), LogOverflow> {
        let mut rest = lock(&self.rest);
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, next) = bytes.split_at(end);
            rest.extend_from_slice(line);
            self.emit(&rest)?;
            rest.clear();
            bytes = &next[1..];
        }
        rest.extend_from_slice(bytes);
        while rest.len() > LINE_BYTES_MAX {
            let tail = rest.split_off(LINE_BYTES_MAX);
            self.emit(&rest)?;
            *rest = tail;
        }
        Ok(())
    }

    fn emit(&self, line: &[u8]) -> Result<(), LogOverflow> {
        self.sink.line(self.source, None, &String::from_utf8_lossy(line))
    }
}

impl Drop for Splitter {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut *lock(&self.rest));
        if !rest.is_empty() {
            // The guest has ended: an overflow has nobody left to stop.
            let _ = self.emit(&rest);
        }
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Asked for by WASI 0.3 only, which is not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.write(&bytes).map_err(|overflow| StreamError::Trap(overflow.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(limit::INLINE_BYTES_MAX)
    }
}

/// A panic while the lock was held leaves whole lines behind: the content stays good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
