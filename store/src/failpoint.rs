//! Places between "accepted" and "committed" where a test can have the process die as by `kill -9`.
//!
//! `FANFOLD_FAILPOINT=NAME[:N]` arms one: the process aborts when that place is reached for the N-th time (the first, unless
//! said). Without it a place costs one relaxed load of a static. They are here because every crate that does I/O knows this
//! one. What they are for is `tests/tests/failpoints.rs`: whatever place a process dies at, what was acknowledged is
//! finished once, with the right result.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use fanfold_protocol::Error;

/// The environment variable.
pub const VARIABLE: &str = "FANFOLD_FAILPOINT";

/// A place, in the order in which an asynchronous invocation reaches them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Failpoint {
    /// Gateway: an invocation is admitted, and nothing of it is recorded.
    AcceptDecided = 1,
    /// Gateway: a segment is about to be created.
    SegmentBegun,
    /// Gateway: a segment is there, and nobody knows.
    SegmentCreated,
    /// Gateway: an acceptance is durable, and its client is not told.
    AcceptDurable,
    /// Gateway: an attempt is about to be sent.
    AttemptChosen,
    /// Executor: an attempt came.
    AttemptReceived,
    /// Executor: a function has returned, and what it made is nowhere else.
    FunctionReturned,
    /// Executor: eager outputs are in the object store.
    OutputsStored,
    /// Executor: the last message of an attempt is about to be sent.
    AttemptEnded,
    /// Executor: it is in the link's queue.
    ResultQueued,
    /// Gateway: it came.
    ResultReceived,
    /// Gateway: a task's commit is decided, and not durable.
    CommitDecided,
    /// Gateway: a job's end is decided, and not durable.
    EndDecided,
    /// Gateway: a job's end is durable, and nobody knows.
    EndDurable,
}

impl Failpoint {
    /// All, each with its name.
    pub const ALL: [(&str, Self); 14] = [
        ("accept-decided", Self::AcceptDecided),
        ("segment-begun", Self::SegmentBegun),
        ("segment-created", Self::SegmentCreated),
        ("accept-durable", Self::AcceptDurable),
        ("attempt-chosen", Self::AttemptChosen),
        ("attempt-received", Self::AttemptReceived),
        ("function-returned", Self::FunctionReturned),
        ("outputs-stored", Self::OutputsStored),
        ("attempt-ended", Self::AttemptEnded),
        ("result-queued", Self::ResultQueued),
        ("result-received", Self::ResultReceived),
        ("commit-decided", Self::CommitDecided),
        ("end-decided", Self::EndDecided),
        ("end-durable", Self::EndDurable),
    ];

    /// This place is reached.
    #[inline]
    pub fn pass(self) {
        if ARMED.load(Relaxed) == self as u8 {
            reached();
        }
    }
}

/// The armed place; 0: none.
static ARMED: AtomicU8 = AtomicU8::new(0);
/// How often it may still be reached before the process dies.
static SPARED: AtomicU32 = AtomicU32::new(0);

#[cold]
fn reached() {
    if SPARED.fetch_update(Relaxed, Relaxed, |spared| spared.checked_sub(1)).is_err() {
        // No destructors, no flush: what a `kill -9` leaves.
        std::process::abort();
    }
}

/// Arms what [`VARIABLE`] names. Called once, before anything is started.
///
/// # Errors
/// `invalid` where it names no place.
pub fn arm() -> Result<(), Error> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let text = text.to_string_lossy();
    let (name, times) = text.split_once(':').unwrap_or((&text, "1"));
    let point = Failpoint::ALL.iter().find(|(known, _)| *known == name).map(|(_, point)| *point);
    let times: Option<u32> = times.parse().ok().filter(|times| *times > 0);
    let (Some(point), Some(times)) = (point, times) else {
        return Err(Error::invalid(format!(
            "`{}` is no failpoint: {VARIABLE} is for tests; unset it",
            text.escape_debug()
        )));
    };
    SPARED.store(times - 1, Relaxed);
    ARMED.store(point as u8, Relaxed);
    Ok(())
}
