//! Hands a partition from task to task, to measure what that takes.

use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use fanfold::{Future, Outputs, Partition, Placement, Reader, Result, Writer};
use serde::{Deserialize, Serialize};

/// How often, how much, and between whom.
#[derive(Deserialize)]
struct Request {
    /// Tasks in the chain after the first.
    steps: usize,
    /// Bytes of the partition.
    bytes: usize,
    /// Ids of the executors that take turns; none: wherever the platform likes.
    #[serde(default)]
    executors: Vec<u64>,
}

/// What was measured. A hand-over begins when a task starts to write its output and ends when the next one has read it.
#[derive(Serialize)]
struct Report {
    p50_us: u64,
    p99_us: u64,
    /// From the first submission to the end of the last task.
    total_us: u64,
}

/// Needs real clocks: `deterministic = false` in the manifest. Executors on different machines need clocks that agree.
#[fanfold::function(tasks(first, step))]
fn pass(request: Request) -> Result<Report> {
    let begin = now_us();
    let place = |step: usize| match request.executors.as_slice() {
        [] => Placement::Local,
        executors => Placement::OnExecutorStrict(executors[step % executors.len()]),
    };
    let mut data = first::call(request.bytes).placement(place(0)).submit()?;
    let mut times: Vec<Future<u64>> = Vec::with_capacity(request.steps);
    for number in 1..=request.steps {
        // Of the one before, only its reader holds on to it.
        let (next, time) = step::call(&data).placement(place(number)).submit()?;
        data = next;
        times.push(time);
    }
    let mut times = fanfold::wait_all(&times)?;
    let total_us = now_us() - begin;
    // The first ones load code and open connections.
    times.drain(..times.len() / 10);
    times.sort_unstable();
    Ok(Report { p50_us: percentile(&times, 50), p99_us: percentile(&times, 99), total_us })
}

#[fanfold::task]
fn first(bytes: usize) -> Result<Partition> {
    write(vec![7; bytes])
}

/// Reads all of its input and writes as much.
#[fanfold::task]
fn step(input: Reader) -> Result<Outputs<(Partition, u64)>> {
    let data = input.bytes()?;
    let stamp = data.last_chunk().map_or(0, |stamp| u64::from_le_bytes(*stamp));
    let took = now_us().saturating_sub(stamp);
    Ok(Outputs((write(data)?, took)))
}

/// Writes the data with the time at its end.
fn write(mut data: Vec<u8>) -> Result<Partition> {
    let mut writer = Writer::new()?;
    if let Some(stamp) = data.last_chunk_mut() {
        *stamp = now_us().to_le_bytes();
    }
    writer.write_all(&data)?;
    writer.finish()
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}
