//! Conservation: what every stage took and gave, and the error that names the stage where they differ.
//!
//! A shuffle that loses a block still ends, with a plausible answer. So every task counts, the library compares within
//! each task, and the driver compares from stage to stage.

use std::fmt;

use fanfold::Result;
use serde::{Deserialize, Serialize};

/// A stage of a shuffle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Splits to blocks.
    Map,
    /// Blocks of several maps to fewer blocks.
    Merge,
    /// A reducer's blocks to its result.
    Reduce,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Map => "map",
            Self::Merge => "merge",
            Self::Reduce => "reduce",
        })
    }
}

/// What went into a task, or into all tasks of a stage, and what came out.
///
/// A record is whatever the exchange counts, so that folding conserves it: a sorted record, a row, an occurrence of a
/// word (an entry "seen 3 times" is 3 records).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// Records taken.
    pub records_in: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Records given on.
    pub records_out: u64,
    /// Bytes written into blocks (a reducer's result is not counted).
    pub bytes_out: u64,
}

impl Tally {
    /// The sum of several tasks' tallies.
    pub fn sum<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Self {
        tallies.into_iter().fold(Self::default(), |sum, tally| Self {
            records_in: sum.records_in + tally.records_in,
            bytes_in: sum.bytes_in + tally.bytes_in,
            records_out: sum.records_out + tally.records_out,
            bytes_out: sum.bytes_out + tally.bytes_out,
        })
    }

    /// Checks that `stage`, with this tally, took all that the stage before it gave.
    ///
    /// # Errors
    /// [`Violation`] otherwise.
    pub fn follows(&self, stage: Stage, before: &Tally) -> Result<()> {
        check(stage, "bytes sent to it", before.bytes_out, self.bytes_in)?;
        check(stage, "records sent to it", before.records_out, self.records_in)
    }
}

/// Something was lost, or came twice. Not retryable: the code that did it would do it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Where.
    pub stage: Stage,
    /// What was counted.
    pub of: &'static str,
    /// How many there should be.
    pub expected: u64,
    /// How many there are.
    pub found: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, of, expected, found } = self;
        let verb = if found < expected { "lost some of" } else { "counted twice some of" };
        write!(f, "the {stage} stage {verb} the {of}: {found} instead of {expected}")
    }
}

impl std::error::Error for Violation {}

pub(crate) fn check(stage: Stage, of: &'static str, expected: u64, found: u64) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Violation { stage, of, expected, found }.into()) }
}
