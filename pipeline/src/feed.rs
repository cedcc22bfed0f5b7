//! A task's input: rows of a split, or of several partitions one after the other, in batches.

use std::{collections::VecDeque, ops::Range};

use fanfold::{Partition, Result};

use crate::{
    rows::{Row, Rows},
    schedule::Stop,
    stage::RowIter,
};

/// Rows that are processed together.
pub(crate) struct Batch {
    pub rows: Vec<Row>,
    /// Where it begins: slice and row.
    pub first: (u32, u64),
}

impl Batch {
    pub fn start(&self, skip: usize) -> Stop {
        Stop { slice: self.first.0, row: self.first.1, skip: skip as u64 }
    }
}

/// The rows of a task's input, and where it is in them.
pub(crate) struct Feed {
    current: Option<RowIter>,
    /// Partitions after the current one, and their rows.
    left: VecDeque<(Partition, Range<u64>)>,
    slice: u32,
    row: u64,
}

impl Feed {
    /// The rows of a split, of which `row` is the number of the first.
    pub fn of_split(rows: RowIter, row: u64) -> Self {
        Self { current: Some(rows), left: VecDeque::new(), slice: 0, row }
    }

    /// Rows of each partition.
    pub fn of_partitions(partitions: &[Partition], rows: &[Range<u64>]) -> Self {
        let left = partitions.iter().cloned().zip(rows.iter().cloned()).collect();
        // The first partition is number 0: it is reached by wrapping around.
        Self { current: None, left, slice: u32::MAX, row: 0 }
    }

    /// Whether it is known that there are no more rows, without making one.
    pub fn is_at_end(&self) -> bool {
        let ended = |rows: &RowIter| rows.size_hint().1 == Some(0);
        self.left.is_empty() && self.current.as_ref().is_none_or(ended)
    }

    /// Before the next row.
    pub fn stop(&self, skip: u64) -> Stop {
        match (&self.current, self.left.front()) {
            (Some(rows), Some((_, next))) if rows.size_hint().1 == Some(0) => {
                Stop { slice: self.slice + 1, row: next.start, skip }
            }
            _ => Stop { slice: self.slice, row: self.row, skip },
        }
    }

    /// The next rows, as many if there are; `None` at the end.
    pub fn next(&mut self, count: u64) -> Result<Option<Batch>> {
        let mut batch = Batch { rows: Vec::new(), first: (0, 0) };
        while (batch.rows.len() as u64) < count {
            match self.current.as_mut().and_then(Iterator::next) {
                Some(row) => {
                    if batch.rows.is_empty() {
                        batch.first = (self.slice, self.row);
                    }
                    batch.rows.push(row?);
                    self.row += 1;
                }
                None => {
                    let Some((partition, rows)) = self.left.pop_front() else { break };
                    (self.slice, self.row) = (self.slice.wrapping_add(1), rows.start);
                    self.current = Some(Box::new(Rows::open(&partition, Some(rows))?));
                }
            }
        }
        Ok((!batch.rows.is_empty()).then_some(batch))
    }
}
