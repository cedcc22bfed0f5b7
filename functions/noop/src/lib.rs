//! Submits tasks that do nothing, to measure what a task costs.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How many, and how.
#[derive(Deserialize)]
struct Request {
    /// Tasks to run.
    tasks: usize,
    /// One after the other, each timed, instead of all at once.
    #[serde(default)]
    lone: bool,
    /// So many at a time; none is let go of before the end. 0: all at once.
    #[serde(default)]
    batch: usize,
}

/// What was measured, in microseconds.
#[derive(Serialize)]
struct Report {
    tasks: usize,
    /// From the first submission to the last result.
    total_us: u64,
    /// Of lone tasks: from submission to result.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_us: Option<u64>,
}

/// Needs real clocks: `deterministic = false` in the manifest.
#[fanfold::function(tasks(nothing))]
fn noop(request: Request) -> fanfold::Result<Report> {
    let begin = Instant::now();
    let mut times = match request.lone {
        true => (0..request.tasks).map(|_| lone()).collect::<fanfold::Result<Vec<_>>>()?,
        false => all(request.tasks, request.batch).map(|()| Vec::new())?,
    };
    times.sort_unstable();
    Ok(Report {
        tasks: request.tasks,
        total_us: micros(begin.elapsed()),
        p50_us: percentile(&times, 50),
        p99_us: percentile(&times, 99),
    })
}

#[fanfold::task]
fn nothing() {}

fn all(tasks: usize, batch: usize) -> fanfold::Result<()> {
    let mut held = Vec::new();
    while held.len() < tasks {
        let left = tasks - held.len();
        let count = if batch == 0 { left } else { left.min(batch) };
        let futures = (0..count).map(|_| nothing::submit()).collect::<fanfold::Result<Vec<_>>>()?;
        fanfold::wait_all(&futures)?;
        held.extend(futures);
    }
    Ok(())
}

fn lone() -> fanfold::Result<Duration> {
    let begin = Instant::now();
    nothing::submit()?.get()?;
    Ok(begin.elapsed())
}

fn percentile(sorted: &[Duration], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().map(micros)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
