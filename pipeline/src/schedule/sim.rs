//! A pipeline in virtual time: tasks that take as long as their rows, and the engine that is told when they end.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Engine, Input, Launch, Limits, Outcome, Shape, Slice, Stop, Stuck};

/// What a stage does with rows, as far as time and memory go.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub shape: Shape,
    /// Microseconds a row of input; of the source: a row that it makes.
    pub row_us: u64,
    /// Microseconds before the first row.
    pub start_us: u64,
    /// Bytes of each row that is made.
    pub row_bytes: fn(split: u64, row: u64) -> u64,
    /// Rows made of each row of input.
    pub fan: u64,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Ran {
    pub seconds: f64,
    pub peak_bytes: u64,
    pub tasks: u64,
    /// Rows that left the last stage, by key and row, in the order in which they left.
    pub left: Vec<Slice>,
    pub done_splits: Vec<u32>,
}

/// Runs `splits` splits of `rows` rows to the end.
pub(super) fn run(works: &[Work], limits: Limits, splits: u32, rows: u64) -> Result<Ran, Stuck> {
    let shapes = works.iter().map(|work| work.shape.clone()).collect();
    let memory = limits.memory_bytes;
    let mut engine = Engine::new(shapes, limits, 0..splits);
    let mut now = 0;
    let mut ends = BinaryHeap::new();
    let mut ran = Ran { seconds: 0.0, peak_bytes: 0, tasks: 0, left: Vec::new(), done_splits: Vec::new() };
    loop {
        while let Some(launch) = engine.launch() {
            let (us, outcome) = task(&works[launch.stage], &launch, rows);
            assert!(outcome.bytes <= launch.grant, "{launch:?} {outcome:?}");
            ends.push(Reverse((now + us, launch.id, Done(outcome))));
        }
        if let Some(stuck) = engine.stuck() {
            return Err(stuck);
        }
        let Some(Reverse((at, id, Done(outcome)))) = ends.pop() else { break };
        now = at;
        engine.done(id, &outcome);
        while let Some(slice) = engine.take_out() {
            engine.release(&slice);
            ran.left.push(slice);
        }
        ran.done_splits.extend(engine.take_done_splits());
        assert!(engine.peak_bytes() <= memory);
    }
    assert!(engine.is_finished());
    (ran.seconds, ran.peak_bytes, ran.tasks) = (now as f64 / 1e6, engine.peak_bytes(), engine.launched());
    Ok(ran)
}

/// An outcome in a heap, where only time and id matter.
struct Done(Outcome);
impl PartialEq for Done {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Done {}
impl PartialOrd for Done {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Done {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// What a task does with its input, row by row, until its grant is used up; and how long it takes.
fn task(work: &Work, launch: &Launch, split_rows: u64) -> (u64, Outcome) {
    let (slices, skip) = match &launch.input {
        Input::Split { split, row, skip } => (vec![(u64::from(*split), *row..split_rows)], *skip),
        Input::Slices(slices) => {
            let skip = slices.first().map_or(0, |slice| slice.skip);
            (slices.iter().map(|slice| (slice.key[0], slice.rows.clone())).collect(), skip)
        }
    };
    let (mut us, mut outcome, mut skip) = (work.start_us, Outcome::default(), skip);
    let mut total = 0;
    let rows: Vec<(usize, u64, u64)> = slices
        .into_iter()
        .enumerate()
        .flat_map(|(n, (split, rows))| rows.map(move |row| (n, split, row)))
        .collect();
    let stops = !launch.whole && !work.shape.sink;
    for batch in rows.chunks(work.shape.batch as usize) {
        us += work.row_us * batch.len() as u64;
        let made: Vec<u64> = batch
            .iter()
            .flat_map(|&(_, split, row)| (0..work.fan).map(move |_| (work.row_bytes)(split, row)))
            .collect();
        let (slice, row) = (batch[0].0 as u32, batch[0].2);
        let bytes: u64 = made[skip as usize..].iter().sum();
        if stops && total + bytes > launch.grant && outcome.rows > 0 {
            return (us, Outcome { stop: Some(Stop { slice, row, skip }), ..outcome });
        }
        if stops && bytes > launch.grant && batch.len() > 1 {
            return (us, Outcome { wants: bytes, ..Outcome::default() });
        }
        for (n, bytes) in made.iter().enumerate().skip(skip as usize) {
            total += bytes;
            if stops && total > launch.grant {
                let wants = if outcome.rows == 0 { *bytes } else { 0 };
                let stop = Stop { slice, row, skip: n as u64 };
                return (us, Outcome { stop: (wants == 0).then_some(stop), wants, ..outcome });
            }
            outcome.rows += 1;
            outcome.bytes = if stops { total } else { 0 };
        }
        skip = 0;
    }
    if launch.whole && total > launch.grant {
        return (us, Outcome { wants: total, ..Outcome::default() });
    }
    if launch.whole {
        outcome.bytes = total;
    }
    (us, outcome)
}
