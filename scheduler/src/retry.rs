//! What happens after an attempt failed: the one table.
//!
//! | error | what follows |
//! |---|---|
//! | `draining`: the executor did not begin it | at once on another one, not counted |
//! | the executor left | at once again; counted only beyond [`LOSSES_FREE`] losses. Final for a task that is neither deterministic nor allowed a second attempt |
//! | `platform`/cancelled, `limit`/deadline, `guest`/non-deterministic, `invalid`, `not-found`, `conflict` | final: the same request would fail the same way |
//! | `limit`/out-of-memory, memory below its ceiling | at once again with twice the memory, not counted |
//! | `lost`, `platform`, or any error marked retryable | again after the backoff, up to `attempts` |
//! | other `guest` and `limit` (trap, exit status, returned error, timeout, stack, logs, ...) | the root of a recorded job: again after the backoff, up to `attempts`; every other task: final |
//! | anything else | final |
//!
//! The backoff is `backoff_ms`, doubled for each failure after the first, at most [`BACKOFF_MS_MAX`].

use fanfold_protocol::{Code, Error, Kind};

/// Attempts that may be lost with their executors before losses count as failures: a cluster of spot machines loses
/// some, a task that kills its executor must stop.
pub(crate) const LOSSES_FREE: u32 = 10;
/// Longest pause between two attempts: a dependency that comes back is noticed within minutes.
pub(crate) const BACKOFF_MS_MAX: u64 = 5 * 60_000;

/// What the table needs to know of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    /// Attempts allowed in all.
    pub attempts: u32,
    pub backoff_ms: u64,
    pub deterministic: bool,
    /// Whether it is the root of a recorded job.
    pub recorded_root: bool,
    /// Memory of the attempt that failed, and the ceiling.
    pub memory: u64,
    pub memory_max: u64,
    /// Failures that counted, before this one.
    pub failures: u32,
    /// Losses, before this one.
    pub losses: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The task failed.
    Final,
    /// Again after so many milliseconds; the failure counts.
    After(u64),
    /// Again at once with this much memory; the failure does not count.
    WithMemory(u64),
    /// Again at once; counted as a loss.
    Lost,
    /// Again at once; nothing was tried.
    Elsewhere,
}

/// What follows the failure of an attempt with `error`.
pub(crate) fn decide(error: &Error, task: &History) -> Verdict {
    match (error.kind, error.code) {
        (_, Code::Draining) => Verdict::Elsewhere,
        (Kind::Platform, Code::Cancelled)
        | (Kind::Limit, Code::Deadline)
        | (Kind::Guest, Code::NonDeterministic)
        | (Kind::Invalid | Kind::NotFound | Kind::Conflict, _) => Verdict::Final,
        (Kind::Limit, Code::OutOfMemory) if task.memory < task.memory_max => {
            Verdict::WithMemory(task.memory.saturating_mul(2).clamp(1, task.memory_max))
        }
        (Kind::Lost | Kind::Platform, _) => again(task),
        _ if error.retryable => again(task),
        (Kind::Guest | Kind::Limit, _) if task.recorded_root => again(task),
        _ => Verdict::Final,
    }
}

/// What follows the loss of an attempt with its executor.
pub(crate) fn decide_lost(task: &History) -> Verdict {
    if !task.deterministic && task.attempts <= 1 {
        return Verdict::Final;
    }
    if task.losses < LOSSES_FREE { Verdict::Lost } else { again(task) }
}

fn again(task: &History) -> Verdict {
    if task.failures + 1 >= task.attempts {
        return Verdict::Final;
    }
    let doubled = task.backoff_ms.saturating_mul(1 << task.failures.min(32));
    Verdict::After(doubled.min(BACKOFF_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let child = History {
            attempts: 3,
            backoff_ms: 1000,
            deterministic: true,
            recorded_root: false,
            memory: 100,
            memory_max: 300,
            failures: 0,
            losses: 0,
        };
        let root = History { recorded_root: true, ..child };
        let trap = Error::new(Kind::Guest, Code::Trap, "trap");
        let oom = Error::new(Kind::Limit, Code::OutOfMemory, "memory");
        let storage = Error::new(Kind::Platform, Code::Storage, "storage");
        let cases = [
            (&trap, child, Verdict::Final),
            (&trap, root, Verdict::After(1000)),
            (&trap, History { failures: 1, ..root }, Verdict::After(2000)),
            (&trap, History { failures: 2, ..root }, Verdict::Final),
            (&trap.clone().retryable(true), child, Verdict::After(1000)),
            (&oom, child, Verdict::WithMemory(200)),
            (&oom, History { memory: 200, ..child }, Verdict::WithMemory(300)),
            (&oom, History { memory: 300, ..child }, Verdict::Final),
            (&oom, History { memory: 300, ..root }, Verdict::After(1000)),
            (&storage, child, Verdict::After(1000)),
            (&storage, History { attempts: 99, failures: 60, ..child }, Verdict::After(BACKOFF_MS_MAX)),
            (&Error::new(Kind::Platform, Code::Cancelled, "cancelled"), root, Verdict::Final),
            (&Error::invalid("bad").retryable(true), root, Verdict::Final),
            (&Error::new(Kind::Conflict, Code::ErrorReturned, "taken").retryable(true), root, Verdict::Final),
            (&Error::new(Kind::Guest, Code::NonDeterministic, "differs"), root, Verdict::Final),
            (&Error::new(Kind::Limit, Code::Timeout, "slow"), root, Verdict::After(1000)),
            (
                &Error::new(Kind::Overloaded, Code::Draining, "stopping"),
                History { attempts: 1, deterministic: false, ..child },
                Verdict::Elsewhere,
            ),
        ];
        for (error, task, verdict) in cases {
            assert_eq!(decide(error, &task), verdict, "{error:?} of {task:?}");
        }
        assert_eq!(decide_lost(&child), Verdict::Lost);
        assert_eq!(decide_lost(&History { losses: LOSSES_FREE, ..child }), Verdict::After(1000));
        assert_eq!(decide_lost(&History { attempts: 1, deterministic: false, ..child }), Verdict::Final);
    }
}
