//! What a pipeline may use, and what is said of it afterwards.

use std::ops::Range;

use fanfold::{Error, Partition, Result};
use serde::{Deserialize, Serialize};

use crate::{
    rows::Rows,
    schedule::{Mode, Totals},
    stage::{Needs, Pipeline},
};

/// What a pipeline may use, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How tasks are chosen.
    pub mode: Mode,
    /// Bytes of partitions at any time, those included that running tasks are making. Memory of the tasks' instances is
    /// not: stages ask for that.
    pub memory_bytes: u64,
    /// Bytes of a partition. Larger ones cost less, smaller ones are spread more evenly; at most a quarter of the memory,
    /// divided by the stages.
    pub target_bytes: u64,
    /// What executors have, together. Tasks beyond it would only wait.
    pub capacity: Needs,
    /// Rows leave in the order of the splits. What comes too early is held back, in at most half of the memory.
    pub ordered: bool,
    /// Before the names of objects that say which splits are done. Only for pipelines that write.
    pub checkpoint: Option<String>,
}

impl Settings {
    /// Mode `full`, partitions of 128 MB, no order, no checkpoints.
    pub fn new(memory_bytes: u64, capacity: Needs) -> Self {
        let (mode, target_bytes) = (Mode::Full, 128_000_000);
        Self { mode, memory_bytes, target_bytes, capacity, ordered: false, checkpoint: None }
    }

    /// # Errors
    /// `invalid` for what cannot be.
    pub(crate) fn check<S>(&self, pipeline: &Pipeline<S>) -> Result<()> {
        let wrong = match &self.checkpoint {
            Some(_) if pipeline.objects.is_none() => "checkpoints are for pipelines that write objects",
            Some(_) if self.mode == Mode::NoRepartition => "without repartition there are no checkpoints",
            _ if self.memory_bytes == 0 || self.target_bytes == 0 => {
                "a pipeline needs memory and a target size"
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(wrong))
    }
}

/// What happened in a pipeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// How tasks were chosen.
    pub mode: Mode,
    /// Splits that were processed, those that an earlier job had done excepted.
    pub splits: u64,
    /// Splits that were done before.
    pub resumed: u64,
    /// Rows that left the last stage.
    pub rows: u64,
    /// Rows that were given up, and where they are.
    pub skipped: u64,
    /// Partitions of rows that were given up: [`crate::dead_letter`].
    pub dead: Vec<Partition>,
    /// The most bytes there were at any time, granted ones included.
    pub peak_bytes: u64,
    /// Each stage's name, and what it did.
    pub stages: Vec<(String, Totals)>,
}

/// Rows that leave a pipeline.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The partition. Once nobody keeps it, it is freed; as long as somebody does, it no longer counts against the limit.
    pub partition: Partition,
    /// Which rows of it.
    pub rows: Range<u64>,
}

impl Piece {
    /// Reads them.
    ///
    /// # Errors
    /// As [`Rows::open`].
    pub fn open(&self) -> Result<Rows> {
        Rows::open(&self.partition, Some(self.rows.clone()))
    }
}
