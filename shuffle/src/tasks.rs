//! A shuffle's tasks as the strategies see them, what all strategies share, and what they report.

use std::ops::Range;

use fanfold::{Call, Durability, Error, Future, Outputs, Partition, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Layout, Output,
    tally::{Stage, Tally, check},
};

/// How to call the tasks of a shuffle: calls of the driver's own component, whose bodies are [`map`](crate::map),
/// [`merge`](crate::merge) and [`reduce`](crate::reduce), with whatever wishes the driver has for them.
///
/// What a task needs beside these arguments (a specification, boundaries) the implementation adds: small values
/// inline, larger ones stored once with [`fanfold::put`].
pub trait Tasks {
    /// A share of the input.
    type Split: Clone;
    /// What a reducer returns.
    type Reduced: Serialize + DeserializeOwned + 'static;

    /// A call of the map task for split number `mapper`, into blocks for columns `0..columns`.
    fn map(&self, mapper: u32, split: Self::Split, columns: u32) -> Call<Output>;

    /// A call of the merge task: `columns` of each of `inputs`.
    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output>;

    /// A call of the reduce task for reducer number `reducer`: `columns` of each of `inputs`.
    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Self::Reduced, Tally)>>;
}

/// The output of a map or merge task that may not exist yet.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub partition: Future<Partition>,
    pub tally: Future<Tally>,
}

impl Made {
    pub fn submit(call: Call<Output>) -> Result<Self> {
        let (partition, tally) = call.submit()?;
        Ok(Self { partition, tally })
    }

    /// The blocks at `range` within this output.
    pub fn blocks(&self, range: Range<u32>) -> Result<Partition> {
        self.partition.as_partition().blocks(range)
    }
}

/// Submits the map of every split.
pub(crate) fn submit_maps<T: Tasks>(
    tasks: &T,
    first: u32,
    splits: impl IntoIterator<Item = T::Split>,
    layout: Layout,
) -> Result<Vec<Made>> {
    // One that is lost is made again: keeping all of them in the store would be as many writes as the result is.
    let map = |(n, split)| Made::submit(tasks.map(n, split, layout.columns()).durability(Durability::None));
    (first..).zip(splits).map(map).collect()
}

/// Reducers that were submitted.
#[derive(Debug)]
pub(crate) struct Reducers<R> {
    reduced: Vec<Future<R>>,
    tallies: Vec<Future<Tally>>,
}

impl<R: Serialize + DeserializeOwned + 'static> Reducers<R> {
    pub fn new() -> Self {
        Self { reduced: Vec::new(), tallies: Vec::new() }
    }

    /// Submits reducer `reducer` over inputs whose first block is that of column `base`.
    pub fn submit<T: Tasks<Reduced = R>>(
        &mut self,
        tasks: &T,
        layout: Layout,
        reducer: u32,
        base: u32,
        inputs: &[Made],
    ) -> Result<()> {
        let columns = layout.of_reducer(reducer);
        let place = columns.start - base..columns.end - base;
        let blocks = inputs.iter().map(|input| input.blocks(place.clone())).collect::<Result<_>>()?;
        let (reduced, tally) = tasks.reduce(reducer, columns, blocks).submit()?;
        self.reduced.push(reduced);
        self.tallies.push(tally);
        Ok(())
    }

    /// Waits for all of them; what they returned, and what each took.
    pub fn finish(self) -> Result<(Vec<R>, Vec<Tally>)> {
        let tallies = self.tallies()?;
        Ok((fanfold::wait_all(&self.reduced)?, tallies))
    }

    /// What they return, in the order of submission.
    pub fn futures(&self) -> &[Future<R>] {
        &self.reduced
    }

    /// Waits for all of them; what each took.
    pub fn tallies(&self) -> Result<Vec<Tally>> {
        fanfold::wait_all(&self.tallies)
    }
}

/// A finished shuffle.
#[derive(Debug)]
pub struct Shuffled<R> {
    /// What the reducers returned, in order.
    pub reduced: Vec<R>,
    /// What happened.
    pub report: Report,
}

/// What happened in a shuffle, checked stage by stage.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The strategy that ran.
    pub strategy: String,
    /// Map tasks.
    pub maps: u32,
    /// Merge tasks.
    pub merges: u32,
    /// Reduce tasks.
    pub reduces: u32,
    /// What the maps took and gave, together.
    pub mapped: Tally,
    /// What the merges took and gave, together.
    pub merged: Tally,
    /// What the reducers took and gave, together.
    pub reduced: Tally,
    /// Bytes of the largest reducer's input.
    pub reducer_bytes_max: u64,
    /// Bytes of the median reducer's input.
    pub reducer_bytes_median: u64,
}

impl Report {
    /// Checks the stages against each other, given what each task counted. `merges` took all that `maps` gave, unless
    /// there are none; with `again`, bytes that merges took from merges.
    ///
    /// # Errors
    /// A [`Violation`](crate::Violation) that names the stage.
    pub(crate) fn checked(
        strategy: &str,
        maps: &[Tally],
        merges: &[Tally],
        reduces: &[Tally],
        again: Tally,
    ) -> Result<Self> {
        let (mapped, merged, reduced) = (Tally::sum(maps), Tally::sum(merges), Tally::sum(reduces));
        if merges.is_empty() {
            reduced.follows(Stage::Reduce, &mapped)?;
        } else {
            merged.follows(Stage::Merge, &Tally::sum([&mapped, &again]))?;
            let left = |all: u64, again: u64| all.saturating_sub(again);
            let last = Tally {
                records_out: left(merged.records_out, again.records_out),
                bytes_out: left(merged.bytes_out, again.bytes_out),
                ..merged
            };
            reduced.follows(Stage::Reduce, &last)?;
        }
        // Whatever the way, the records at its end are those that came in.
        check(Stage::Reduce, "records of the input", mapped.records_in, reduced.records_out)?;
        let mut sizes: Vec<u64> = reduces.iter().map(|tally| tally.bytes_in).collect();
        sizes.sort_unstable();
        Ok(Self {
            strategy: strategy.into(),
            maps: maps.len() as u32,
            merges: merges.len() as u32,
            reduces: reduces.len() as u32,
            mapped,
            merged,
            reduced,
            reducer_bytes_max: sizes.last().copied().unwrap_or(0),
            reducer_bytes_median: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
        })
    }
}

/// Waits for tallies.
pub(crate) fn tallies(made: &[Made]) -> Result<Vec<Tally>> {
    let tallies: Vec<_> = made.iter().map(|made| made.tally.clone()).collect();
    fanfold::wait_all(&tallies)
}

/// Refuses a factor of 0, which would never end.
pub(crate) fn at_least_one(what: &str, n: u32) -> Result<u32> {
    if n > 0 { Ok(n) } else { Err(Error::invalid(format!("{what} must be at least 1"))) }
}
