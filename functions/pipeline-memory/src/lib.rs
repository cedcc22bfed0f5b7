//! The memory benchmark of streaming batch processing: how near to its bound a pipeline of a processor stage, another one
//! and an accelerator stage is, given a limit of memory. `{"mode": "full", "limit_bytes": 800000000}`.
//!
//! Work takes time and no processor, so that the scheduling is measured and not the machine; the bytes are real. Source: the
//! memory microbenchmark of Luan et al., "The Streaming Batch Model", 2025, with times and sizes a tenth of theirs. It needs
//! executors with 8 slots and the custom resource `accelerator = 4` (`fanfold up --slots 8 --resource accelerator=4`), or
//! with as many gpus where the request says so.
//!
//! A function cannot measure how long it takes; the report has the bound, in seconds, that the caller divides by.

use std::{iter, time::Duration};

use fanfold::{Call, Error, Inputs, Partition, Result};
use fanfold_pipeline::{
    self as pipeline, Mode, Needs, Output, Pipeline, Report, RowIter, Rows, Settings, Tasks, Work,
};
use serde::{Deserialize, Serialize};

/// Rows that are processed together, and that a partition holds.
const BATCH_ROWS: u64 = 100;
/// Slots that a task on the processor takes: less than one, so that the driver and the accelerators' tasks fit beside them.
const CPU_MILLIS: u32 = 980;
/// Slots that a task on an accelerator takes.
const FEEDING_MILLIS: u32 = 10;
/// Slots left for the driver and its tallies.
const DRIVER_MILLIS: u32 = 50;
/// Pieces of the output that are counted together.
const PIECES: usize = 50;

/// What to measure. Times are in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// How tasks are chosen.
    pub mode: Mode,
    /// Bytes of partitions at any time.
    pub limit_bytes: u64,
    /// Splits.
    pub loads: u32,
    /// Rows of a split.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// How long a load takes.
    pub load_ms: u64,
    /// How long the transform of a hundred rows takes.
    pub transform_ms: u64,
    /// How long the inference on a hundred rows takes.
    pub infer_ms: u64,
    /// Slots of all executors.
    pub slots: u32,
    /// Accelerators of all executors.
    pub accelerators: u32,
    /// Accelerators are gpus, not the custom resource.
    pub gpu: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            mode: Mode::Full,
            limit_bytes: 800_000_000,
            loads: 160,
            rows: 500,
            row_bytes: 100_000,
            load_ms: 500,
            transform_ms: 50,
            infer_ms: 50,
            slots: 8,
            accelerators: 4,
            gpu: false,
        }
    }
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds that it takes at least: what the scarcer of slots and accelerators needs.
    pub bound_seconds: f64,
    /// Rows that came out.
    pub rows: u64,
    /// Whether each row came out once.
    pub complete: bool,
    /// What the library says.
    pub report: Report,
}

/// Runs the pipeline.
///
/// # Errors
/// `invalid` for a request that cannot be; those of the pipeline.
#[fanfold::function(tasks(stage, tally))]
pub fn memory(request: Request) -> Result<Measured> {
    if request.rows == 0 || request.row_bytes < 8 || request.slots == 0 || request.accelerators == 0 {
        return Err(Error::invalid("needs rows of at least 8 bytes, slots and accelerators"));
    }
    let splits: Vec<u32> = (0..request.loads).collect();
    let (mut waiting, mut tallies) = (Vec::new(), Vec::new());
    let report =
        pipeline::run(&Calls(&request), &request.pipeline(), &splits, &request.settings(), |piece| {
            waiting.push(piece.partition);
            if waiting.len() == PIECES {
                tallies.push(tally::call(waiting.drain(..)).cpu_millis(FEEDING_MILLIS).submit()?);
            }
            Ok(())
        })?;
    tallies.push(tally::call(waiting).cpu_millis(FEEDING_MILLIS).submit()?);
    let seen = fanfold::wait_all(&tallies)?.into_iter().fold(Seen::default(), Seen::and);
    let ids = (0..request.loads).flat_map(|split| (0..request.rows).map(move |row| id(split, row)));
    let complete = seen == ids.fold(Seen::default(), Seen::with);
    Ok(Measured { bound_seconds: request.bound_seconds(), rows: seen.rows, complete, report })
}

/// Which rows are in some pieces of the output.
#[fanfold::task]
fn tally(pieces: Inputs<Partition>) -> Result<Seen> {
    let mut seen = Seen::default();
    for piece in pieces {
        for row in Rows::open(&piece, None)? {
            let id = <[u8; 8]>::try_from(row?).map_err(|_| Error::guest("a label has eight bytes"))?;
            seen = seen.with(u64::from_le_bytes(id));
        }
    }
    Ok(seen)
}

/// One task of any stage.
#[fanfold::task]
fn stage(request: Request, work: Work<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    request.pipeline().run(&work, &inputs)
}

struct Calls<'a>(&'a Request);

impl Tasks for Calls<'_> {
    type Split = u32;

    fn stage(&self, work: Work<u32>, inputs: Vec<Partition>) -> Call<Output> {
        stage::call(self.0, work, inputs)
    }
}

impl Request {
    fn pipeline(&self) -> Pipeline<u32> {
        let accelerator = match self.gpu {
            true => Needs::cpu(FEEDING_MILLIS).gpu(1),
            false => Needs::cpu(FEEDING_MILLIS).custom("accelerator", 1),
        };
        let (load, transform, infer) = (self.clone(), self.transform_ms, self.infer_ms);
        Pipeline::read(Needs::cpu(CPU_MILLIS), move |&split: &u32, row| Ok(load.rows(split, row)))
            // Other needs than the load's, if only by a thousandth: the benchmark has them in tasks of their own.
            .needs(Needs::cpu(CPU_MILLIS - 1))
            .map_batches(
                "transform",
                BATCH_ROWS,
                || Ok(()),
                move |(), rows| {
                    nap(transform, rows.len() as u64, BATCH_ROWS);
                    Ok(rows.to_vec())
                },
            )
            .needs(accelerator)
            .map_batches(
                "infer",
                BATCH_ROWS,
                || Ok(()),
                move |(), rows| {
                    nap(infer, rows.len() as u64, BATCH_ROWS);
                    Ok(rows.iter().map(|row| row[..8].to_vec()).collect())
                },
            )
    }

    /// The rows of a split: its number and theirs, and then the same byte again and again. Each hundred take their share of
    /// the load's time.
    fn rows(&self, split: u32, from: u64) -> RowIter {
        let Self { rows, row_bytes, load_ms, .. } = *self;
        let mut at = from;
        let next = move || {
            if at >= rows {
                return None;
            }
            if at == from || at.is_multiple_of(BATCH_ROWS) {
                nap(load_ms, BATCH_ROWS - at % BATCH_ROWS, rows);
            }
            let mut row = vec![at as u8; row_bytes as usize];
            row[..8].copy_from_slice(&id(split, at).to_le_bytes());
            at += 1;
            Some(Ok(row))
        };
        Box::new(Known { rows: iter::from_fn(next), left: rows.saturating_sub(from) as usize })
    }

    fn settings(&self) -> Settings {
        let cpu_millis = (self.slots * 1000).saturating_sub(DRIVER_MILLIS);
        let capacity = match self.gpu {
            true => Needs::cpu(cpu_millis).gpu(self.accelerators),
            false => Needs::cpu(cpu_millis).custom("accelerator", self.accelerators),
        };
        // What a batch takes as a partition: bytes, and four for each row's length.
        let target_bytes = BATCH_ROWS * (self.row_bytes + 4);
        Settings { mode: self.mode, target_bytes, ..Settings::new(self.limit_bytes, capacity) }
    }

    fn bound_seconds(&self) -> f64 {
        let batches = self.rows as f64 / BATCH_ROWS as f64;
        let cpu = (self.load_ms as f64 + batches * self.transform_ms as f64) / f64::from(self.slots);
        let accelerator = batches * self.infer_ms as f64 / f64::from(self.accelerators);
        f64::from(self.loads) * cpu.max(accelerator) / 1000.0
    }
}

/// An iterator that knows how much is left, so that nobody has to ask for more to find its end.
struct Known<I> {
    rows: I,
    left: usize,
}

impl<I: Iterator> Iterator for Known<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.rows.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// A row's identity.
fn id(split: u32, row: u64) -> u64 {
    u64::from(split) << 32 | row
}

/// Which rows were seen: equal for the same rows in any order, and other if one is missing or there twice.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    rows: u64,
    sum: u64,
    squares: u64,
}

impl Seen {
    fn with(self, id: u64) -> Self {
        self.and(Self { rows: 1, sum: id, squares: id.wrapping_mul(id) })
    }

    fn and(self, other: Self) -> Self {
        let squares = self.squares.wrapping_add(other.squares);
        Self { rows: self.rows + other.rows, sum: self.sum.wrapping_add(other.sum), squares }
    }
}

/// What `share` of `of` takes if all takes so many milliseconds.
fn nap(millis: u64, share: u64, of: u64) {
    #[allow(clippy::disallowed_methods, reason = "the benchmark's work is time")]
    std::thread::sleep(Duration::from_micros(millis * 1000 * share / of));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_comes_out_once_in_every_mode_and_a_lost_one_shows() {
        for mode in [Mode::Full, Mode::Staged, Mode::Static, Mode::NoRepartition, Mode::NoAdaptive] {
            let times = Request { load_ms: 0, transform_ms: 0, infer_ms: 0, ..Request::default() };
            let request =
                Request { mode, limit_bytes: 300_000, loads: 7, rows: 250, row_bytes: 100, ..times };
            let measured = memory(request).unwrap();
            assert!(measured.complete && measured.rows == 1750, "{mode:?}: {measured:?}");
            assert!(measured.report.peak_bytes <= 300_000);
        }
        let rows = |ids: &[u64]| ids.iter().fold(Seen::default(), |seen, id| seen.with(*id));
        assert_eq!(rows(&[1, 2, 3]), rows(&[3, 1, 2]));
        assert_ne!(rows(&[1, 2, 3]), rows(&[2, 2, 2]));
    }

    #[test]
    fn the_bound_is_what_the_scarcer_resource_needs() {
        assert_eq!(Request::default().bound_seconds(), 15.0);
        assert_eq!(Request { infer_ms: 150, ..Request::default() }.bound_seconds(), 30.0);
    }
}
