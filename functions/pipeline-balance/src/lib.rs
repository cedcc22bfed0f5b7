//! What it is worth to keep all resources of a pipeline busy at the same time: `{"mode": "full"}` against `{"mode": "staged"}`.
//!
//! The shape of batch inference over objects: pictures come from the store over so many connections, are decoded on
//! processors, and go in batches through a model that each task on an accelerator loads first. Connections, slots and
//! accelerators have equally much to do, 12 s each; nothing else does the work of another. One stage at a time therefore takes
//! three times as long as all at once, and the tails of its waves; with one resource less (`"fetch_ms": 0`: the objects are
//! there) twice.
//!
//! Work takes time and no processor, as in `pipeline-memory`. It needs executors with 4 slots and the custom resources
//! `connection = 8` and `accelerator = 2` (`fanfold up --slots 4 --resource connection=8 --resource accelerator=2`).

use std::{iter, time::Duration};

use fanfold::{Call, Error, Inputs, Partition, Result};
use fanfold_pipeline::{
    self as pipeline, Mode, Needs, Output, Pipeline, Report, RowIter, Settings, Tasks, Work,
};
use serde::{Deserialize, Serialize};

/// Rows that go through the model together, and that a partition holds.
const BATCH_ROWS: u64 = 100;
/// Slots that a task which decodes takes: less than one, so that the driver and what waits for others fit beside them.
const DECODING_MILLIS: u32 = 980;
/// Slots that a task takes which waits for the store or an accelerator: ten of them fit beside the others.
const WAITING_MILLIS: u32 = 1;
/// Slots left for the driver.
const DRIVER_MILLIS: u32 = 50;

/// What to measure. Times are in milliseconds, of a hundred rows unless it says otherwise.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// How tasks are chosen.
    pub mode: Mode,
    /// Bytes of partitions at any time: a quarter of all there are.
    pub limit_bytes: u64,
    /// Objects.
    pub objects: u32,
    /// Rows of an object.
    pub rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// How long fetching takes.
    pub fetch_ms: u64,
    /// How long decoding takes.
    pub decode_ms: u64,
    /// How long loading the model takes, once a task.
    pub model_ms: u64,
    /// How long inference takes.
    pub infer_ms: u64,
    /// Connections to the store.
    pub connections: u32,
    /// Slots of all executors.
    pub slots: u32,
    /// Accelerators of all executors.
    pub accelerators: u32,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            mode: Mode::Full,
            limit_bytes: 60_000_000,
            objects: 120,
            rows: 200,
            row_bytes: 10_000,
            fetch_ms: 400,
            decode_ms: 200,
            model_ms: 25,
            infer_ms: 100,
            connections: 8,
            slots: 4,
            accelerators: 2,
        }
    }
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds that it takes at least: what the scarcest resource needs, without loading models.
    pub bound_seconds: f64,
    /// Seconds that it takes at least one stage after the other.
    pub sum_seconds: f64,
    /// Whether as many rows came out as there are.
    pub complete: bool,
    /// What the library says.
    pub report: Report,
}

/// Runs the pipeline.
///
/// # Errors
/// `invalid` for a request that cannot be; those of the pipeline.
#[fanfold::function(tasks(stage))]
pub fn balance(request: Request) -> Result<Measured> {
    let Request { rows, connections, slots, accelerators, .. } = request;
    if rows == 0 || connections == 0 || slots == 0 || accelerators == 0 {
        return Err(Error::invalid("needs rows, connections, slots and accelerators"));
    }
    let splits: Vec<u32> = (0..request.objects).collect();
    let (calls, stages) = (Calls(&request), request.pipeline());
    let report = pipeline::run(&calls, &stages, &splits, &request.settings(), |_| Ok(()))?;
    let complete = report.rows == u64::from(request.objects) * rows;
    let seconds = request.seconds();
    let bound_seconds = seconds.into_iter().fold(0.0, f64::max);
    Ok(Measured { bound_seconds, sum_seconds: seconds.iter().sum(), complete, report })
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
        let fetch = self.clone();
        let Self { decode_ms, model_ms, infer_ms, .. } = *self;
        let waiting = || Needs::cpu(WAITING_MILLIS);
        Pipeline::read(waiting().custom("connection", 1), move |_: &u32, row| Ok(fetch.rows(row)))
            .needs(Needs::cpu(DECODING_MILLIS))
            // A hundred at a time, because a nap is rounded up to milliseconds.
            .map_batches(
                "decode",
                BATCH_ROWS,
                || Ok(()),
                move |(), rows| {
                    nap(decode_ms, rows.len() as u64);
                    Ok(rows.to_vec())
                },
            )
            .needs(waiting().custom("accelerator", 1))
            .map_batches(
                "infer",
                BATCH_ROWS,
                move || {
                    nap(model_ms, BATCH_ROWS);
                    Ok(())
                },
                move |(), rows| {
                    nap(infer_ms, rows.len() as u64);
                    Ok(rows.iter().map(|row| row[..1].to_vec()).collect())
                },
            )
    }

    /// The rows of an object, from one on. Each hundred take their time when the first of them is wanted.
    fn rows(&self, from: u64) -> RowIter {
        let Self { rows, row_bytes, fetch_ms, .. } = *self;
        let mut at = from;
        let next = move || {
            if at >= rows {
                return None;
            }
            if at == from || at.is_multiple_of(BATCH_ROWS) {
                nap(fetch_ms, (BATCH_ROWS - at % BATCH_ROWS).min(rows - at));
            }
            at += 1;
            Some(Ok(vec![at as u8; row_bytes as usize]))
        };
        Box::new(Known { rows: iter::from_fn(next), left: rows.saturating_sub(from) as usize })
    }

    fn settings(&self) -> Settings {
        let cpu_millis = (self.slots * 1000).saturating_sub(DRIVER_MILLIS);
        let capacity = Needs::cpu(cpu_millis)
            .custom("connection", self.connections)
            .custom("accelerator", self.accelerators);
        // What a batch takes as a partition: bytes, and four for each row's length.
        let target_bytes = BATCH_ROWS * (self.row_bytes + 4);
        Settings { mode: self.mode, target_bytes, ..Settings::new(self.limit_bytes, capacity) }
    }

    /// What connections, slots and accelerators have to do.
    fn seconds(&self) -> [f64; 3] {
        let batches = f64::from(self.objects) * self.rows as f64 / BATCH_ROWS as f64;
        let each = [
            (self.fetch_ms, self.connections),
            (self.decode_ms, self.slots),
            (self.infer_ms, self.accelerators),
        ];
        each.map(|(millis, count)| batches * millis as f64 / f64::from(count) / 1000.0)
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

/// What so many rows take, if a hundred take so many milliseconds.
fn nap(millis: u64, rows: u64) {
    #[allow(clippy::disallowed_methods, reason = "the benchmark's work is time")]
    std::thread::sleep(Duration::from_micros(millis * 1000 * rows / BATCH_ROWS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_come_out_and_no_resource_has_more_to_do_than_another() {
        let request = Request::default();
        assert_eq!(request.seconds(), [12.0; 3]);
        for mode in [Mode::Full, Mode::Staged] {
            let times = Request { fetch_ms: 0, decode_ms: 0, model_ms: 0, infer_ms: 0, ..Request::default() };
            let request = Request { mode, limit_bytes: 300_000, objects: 7, row_bytes: 100, ..times };
            let measured = balance(request).unwrap();
            assert!(measured.complete, "{mode:?}: {measured:?}");
        }
        assert!(balance(Request { accelerators: 0, ..request }).is_err());
    }
}
