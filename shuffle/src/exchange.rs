//! What a shuffle computes, apart from how it is submitted; and the bodies of the three tasks that compute it.

use std::ops::Range;

use fanfold::{Inputs, Outputs, Partition, Result};

use crate::{
    Blocks, Column, Columns, Output,
    tally::{Stage, Tally},
};

/// A map from splits of the input to columns, a merge of the blocks of one column, and a fold of columns.
///
/// All three are pure and deterministic: the platform runs them again where data was lost, and compares. Each streams:
/// blocks are written one after the other and read chunk by chunk, so neither side need fit into memory (a map whose
/// records come in any order collects its own blocks first, in [`Buffers`](crate::Buffers)).
///
/// Each also counts records in and out ([`Tally`]); the library counts bytes.
pub trait Exchange {
    /// A share of the input.
    type Split;
    /// What becomes of a reducer's columns.
    type Reduced;

    /// Whether maps write and merges pass on as many bytes as they read, which is then checked: so it is where records
    /// are only moved.
    const WHOLE: bool = false;

    /// Splits one input into blocks, one a column.
    ///
    /// # Errors
    /// Its own, and those of reading the input.
    fn map(&self, split: Self::Split, out: &mut Blocks) -> Result<()>;

    /// Merges the blocks of one column into one block of the same format. Merging again what was merged must be right,
    /// in any grouping.
    ///
    /// # Errors
    /// Its own, and those of reading the blocks (pass them on).
    fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()>;

    /// Folds the columns of one reducer, in order. All of them must be read to their ends.
    ///
    /// # Errors
    /// As [`Exchange::merge`].
    fn reduce(&self, reducer: u32, columns: &mut Columns) -> Result<Self::Reduced>;
}

/// The body of the map task: `columns` as the strategy passes it to [`Tasks::map`](crate::Tasks::map).
///
/// # Errors
/// As [`Exchange::map`]; a [`Violation`](crate::Violation) where what was taken was not given on.
pub fn map<X: Exchange>(exchange: &X, split: X::Split, columns: u32) -> Result<Output> {
    let mut out = Blocks::new(Stage::Map, 0..columns)?;
    exchange.map(split, &mut out)?;
    out.finish(X::WHOLE)
}

/// The body of the merge task: `columns` of each of `inputs` into one partition of as many blocks.
///
/// # Errors
/// As [`Exchange::merge`]; a [`Violation`](crate::Violation) where what was taken was not given on.
pub fn merge<X: Exchange>(exchange: &X, columns: Range<u32>, inputs: &Inputs<Partition>) -> Result<Output> {
    let mut out = Blocks::new(Stage::Merge, columns.clone())?;
    let mut columns = Columns::open(columns, inputs)?;
    while let Some(column) = columns.next() {
        exchange.merge(column, &mut out)?;
    }
    out.read(columns.finish(Stage::Merge)?.bytes_in);
    out.finish(X::WHOLE)
}

/// The body of the reduce task: `columns` of each of `inputs` into one result.
///
/// # Errors
/// As [`Exchange::reduce`]; a [`Violation`](crate::Violation) where something was not read.
pub fn reduce<X: Exchange>(
    exchange: &X,
    reducer: u32,
    columns: Range<u32>,
    inputs: &Inputs<Partition>,
) -> Result<Outputs<(X::Reduced, Tally)>> {
    let mut columns = Columns::open(columns, inputs)?;
    let reduced = exchange.reduce(reducer, &mut columns)?;
    Ok(Outputs((reduced, columns.finish(Stage::Reduce)?)))
}
