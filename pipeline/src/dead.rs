//! Rows that were given up: a partition of them with the reasons.

use fanfold::{Error, Partition, Result};
use serde::{Deserialize, Serialize};

use crate::{
    rows::{Row, RowWriter},
    stage::OnError,
};

/// Why a row was given up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// The stage and the step in it.
    pub stage: String,
    /// The step.
    pub step: String,
    /// Where the task began: the split, then the rows at which the tasks of the stages so far began.
    pub key: Vec<u64>,
    /// Which of the task's inputs, and which row of it, the batch begins with.
    pub at: (u32, u64),
    /// What the step said.
    pub error: String,
}

/// A row of a dead-letter partition: the reason as JSON, a line feed, and the row that the step was given.
///
/// # Errors
/// `invalid` if it is none.
pub fn dead_letter(row: &[u8]) -> Result<(Reason, &[u8])> {
    let end = row.iter().position(|&byte| byte == b'\n');
    let end = end.ok_or_else(|| Error::invalid("a dead letter has a line before its row"))?;
    let reason =
        serde_json::from_slice(&row[..end]).map_err(|e| Error::invalid(format!("no dead letter: {e}")))?;
    Ok((reason, &row[end + 1..]))
}

/// The dead letters of one task.
pub(crate) struct Dead {
    on_error: OnError,
    stage: String,
    key: Vec<u64>,
    /// Of the batch that is being processed.
    pending: Vec<Row>,
    out: RowWriter,
}

impl Dead {
    pub fn new(on_error: OnError, stage: String, key: Vec<u64>) -> Result<Self> {
        Ok(Self { on_error, stage, key, pending: Vec::new(), out: RowWriter::for_output(2)? })
    }

    /// Takes the rows on which a step failed, or fails with what it said.
    pub fn take(&mut self, step: &str, at: (u32, u64), rows: &[Row], error: Error) -> Result<()> {
        if self.on_error == OnError::Fail {
            let key = &self.key;
            return Err(
                error.context(format!("step `{step}`, batch at row {} of input {} of {key:?}", at.1, at.0))
            );
        }
        let reason = Reason {
            stage: self.stage.clone(),
            step: step.to_owned(),
            key: self.key.clone(),
            at,
            error: error.message,
        };
        let mut line = serde_json::to_vec(&reason)?;
        line.push(b'\n');
        self.pending.extend(rows.iter().map(|row| [&line, &**row].concat()));
        Ok(())
    }

    /// The batch's rows were made here. A batch that another task makes again has its dead letters there.
    pub fn keep(&mut self) -> Result<()> {
        self.pending.drain(..).try_for_each(|row| self.out.push(&row))
    }

    /// The batch's dead letters were kept by the task that began it.
    pub fn forget(&mut self) {
        self.pending.clear();
    }

    /// Completes the partition; an empty one if the task's rows do not count.
    pub fn finish(self, counts: bool) -> Result<(u64, Partition)> {
        Ok((if counts { self.out.rows() } else { 0 }, self.out.finish()?))
    }
}
