//! From the way a guest ended to the error its caller sees.

use std::{borrow::Cow, fmt::Write as _, sync::PoisonError};

use fanfold_protocol::{Code, Error, Kind, direct::Logs, limit};
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::{Guest, LogOverflow};

/// Names of functions on the stack that a trap's message shows.
const FRAMES_SHOWN: usize = 4;
/// Lines of stderr that a failure's message shows.
const LINES_SHOWN: usize = 3;

/// What `error`, which ended `guest`, means to the caller. A host call may have ended it with a [`Error`] of its own.
pub fn classify(error: &wasmtime::Error, guest: &Guest) -> Error {
    if let Some(own) = error.downcast_ref::<Error>() {
        return own.clone();
    }
    if error.is::<LogOverflow>() {
        let message =
            format!("the function was stopped: it wrote over {} bytes of log lines", limit::LOG_BYTES_MAX);
        return Error::new(Kind::Limit, Code::LogOverflow, message);
    }
    if let Some(I32Exit(status)) = error.downcast_ref::<I32Exit>() {
        return exited(*status, &guest.logs.logs());
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Error::new(Kind::Overloaded, Code::Memory, format!("no room for another instance: {error}"));
    }
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::StackOverflow) {
        let message = format!("the function's stack is full: it recurses too deeply{}", frames(error));
        return Error::new(Kind::Limit, Code::StackOverflow, message);
    }
    if let Some(wanted) = guest.limits.denied() {
        return out_of_memory(wanted, guest.limits.max());
    }
    let mut message = match trap {
        Some(trap) => format!("the function stopped with a {trap}"),
        None => format!("the function was stopped: {}", error.root_cause()),
    };
    message.push_str(&frames(error));
    last_words(&mut message, &guest.logs.logs());
    Error::new(Kind::Guest, Code::Trap, cut(message))
}

/// The error of a program that ended with `status`.
fn exited(status: i32, logs: &Logs) -> Error {
    let mut message = format!("the program ended with exit status {status}");
    last_words(&mut message, logs);
    Error::new(Kind::Guest, Code::ExitStatus, cut(message))
}

fn out_of_memory(wanted: u64, max: u64) -> Error {
    let message = format!(
        "the function ran out of memory: it wanted {wanted} bytes and may have {max}; raise `resources.memory`"
    );
    Error::new(Kind::Limit, Code::OutOfMemory, message)
}

fn frames(error: &wasmtime::Error) -> String {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let mut names: Vec<&str> = trace.frames().iter().filter_map(|frame| frame.func_name()).collect();
    names.dedup();
    names.truncate(FRAMES_SHOWN);
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}

/// Adds the last lines of stderr, where a panic or an error message usually is.
pub fn last_words(message: &mut String, logs: &Logs) {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        stream: Cow<'a, str>,
        #[serde(borrow)]
        line: Cow<'a, str>,
    }
    let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
    let lines =
        logs.rsplit(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Line<'_>>(line).ok());
    let mut last: Vec<Line<'_>> = lines.filter(|line| line.stream == "stderr").take(LINES_SHOWN).collect();
    last.reverse();
    for (index, Line { line, .. }) in last.iter().enumerate() {
        let before = if index == 0 { "; on stderr: " } else { " | " };
        // Writing to a string cannot fail.
        let _ = write!(message, "{before}{}", line.trim());
    }
}

fn cut(mut message: String) -> String {
    if message.len() > limit::ERROR_MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(limit::ERROR_MESSAGE_BYTES_MAX));
    }
    message
}
