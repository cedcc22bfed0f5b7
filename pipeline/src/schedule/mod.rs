//! Which task of a pipeline runs next, on what, and with how much memory: decisions without I/O and without a clock.
//!
//! [`Engine`] is told what ended and says what to start; the driver (`crate::run`) turns that into calls, the tests into a
//! simulation in virtual time. Time is not an input, because a driver has none: its clocks are virtual, so that it can be
//! replayed. Rates are measured against each other instead (`rate`).
//!
//! Three promises: bytes held never exceed the limit (`memory`); work that can be done at all is done, however large one row
//! is (`choose`); every row of every split goes through every stage once.

mod choose;
mod engine;
mod look;
mod memory;
mod progress;
mod queue;
mod rate;
mod source;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use engine::{Engine, Totals};
pub use look::{Look, Why};
pub use progress::Stuck;
pub use rate::{Measured, concurrency};

/// How a pipeline is scheduled. All run on the same engine, and give the same rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Everything below.
    #[default]
    Full,
    /// One stage at a time: as many splits as fit into memory, then the next stage on all that they made.
    Staged,
    /// Each stage has a fixed, equal share of the slots and of the memory.
    Static,
    /// A task makes one partition, however large. How large is found out by trying, so this mode alone may end up with a
    /// memory in which nothing fits any more.
    NoRepartition,
    /// Stages do not look at rates nor at each other: each starts whatever has a slot and room in the stage's equal share
    /// of the memory, the first stages first.
    NoAdaptive,
}

/// What the engine knows of a stage. Stage 0 reads the splits.
#[derive(Clone, Debug)]
pub struct Shape {
    /// For messages.
    pub name: String,
    /// What a task of it occupies, in the order of [`Limits::capacity`].
    pub needs: Vec<u32>,
    /// Rows that are processed together: inputs are cut at multiples of it where they can be. At least 1. What becomes of
    /// several rows is never split.
    pub batch: u64,
    /// Its tasks load something before their first row, so they are given much input at once.
    pub stateful: bool,
    /// It passes on this many rows of what it makes, and then the pipeline ends.
    pub rows_max: Option<u64>,
    /// It writes its output elsewhere: its tasks make no partitions.
    pub sink: bool,
}

/// What a pipeline may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How to schedule.
    pub mode: Mode,
    /// Bytes of partitions, made or being made, at any time.
    pub memory_bytes: u64,
    /// Bytes of a partition: what a task makes before it hands it on.
    pub target_bytes: u64,
    /// Amounts of each resource.
    pub capacity: Vec<u32>,
    /// Pieces are never joined, so that what a task makes follows from its split alone: for order and checkpoints.
    pub keyed: bool,
    /// Rows leave the last stage in the order of the splits.
    pub ordered: bool,
}

/// Rows of a partition that wait for a stage, or leave the last one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The partition.
    pub hold: u64,
    /// Where it comes from: the split, then the row at which the task of each stage so far began. Sorts as rows do.
    pub key: Vec<u64>,
    /// Rows of the partition.
    pub rows: Range<u64>,
    /// Outputs of its first batch that were made already.
    pub skip: u64,
    /// Bytes of those rows, about.
    pub bytes: u64,
}

impl Slice {
    /// How many rows.
    pub fn row_count(&self) -> u64 {
        self.rows.end - self.rows.start
    }
}

/// What a task is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A split, from a row of it, without the first `skip` rows that this one becomes.
    Split {
        /// Its number.
        split: u32,
        /// The first row.
        row: u64,
        /// Outputs of that row that were made already.
        skip: u64,
    },
    /// Rows of partitions, in this order.
    Slices(Vec<Slice>),
}

/// A task to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Counted from 0.
    pub id: u64,
    /// Its stage.
    pub stage: usize,
    /// What it is given.
    pub input: Input,
    /// Bytes it may make. It stops before the row that would exceed them.
    pub grant: u64,
    /// It must not stop: what does not fit, it only counts.
    pub whole: bool,
    /// The key of what it makes.
    pub key: Vec<u64>,
}

/// Where a task stopped: before the batch that begins at `row`, or within it after `skip` outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Which of its slices; 0 for a split.
    pub slice: u32,
    /// Row of the partition or of the split.
    pub row: u64,
    /// Outputs of that batch that were made.
    pub skip: u64,
}

/// How a task ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Where it stopped; `None` at the end of its input.
    pub stop: Option<Stop>,
    /// Rows of its output.
    pub rows: u64,
    /// Bytes of its output, at most its grant.
    pub bytes: u64,
    /// It made nothing because this many bytes did not fit its grant; 0 otherwise.
    pub wants: u64,
}
