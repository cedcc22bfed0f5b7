//! Online aggregation: rounds of maps folded into a state per reducer, with a partial result after each round.
//!
//! Source: the streaming shuffle of Exoshuffle (Luan et al., SIGCOMM 2023), after online aggregation (Hellerstein et al.,
//! SIGMOD 1997). After round *i*, `state[r] = merge(state[r], blocks of the round for r)`, and the reduction of the
//! states is what the whole would give if the input ended here. The state is a merge output like any other, so every
//! exchange can be streamed; it pays where folding makes states much smaller than the input.

use fanfold::{Durability, Result};

use crate::{
    Layout, Report, Shuffled, Tally, Tasks,
    tasks::{Made, Reducers, at_least_one, submit_maps, tallies},
};

/// How many maps each round has: `first`, then twice as many as before, up to `most`. A short first round gives a first
/// result soon; long later ones fold the states seldom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounds {
    /// Maps of the first round.
    pub first: u32,
    /// Maps of a round at most.
    pub most: u32,
}

/// A partial result.
#[derive(Debug)]
pub struct Partial<R> {
    /// The round it follows, counted from 1.
    pub round: u32,
    /// Maps that are in it.
    pub maps: u32,
    /// Maps in all.
    pub of_maps: u32,
    /// What the reducers returned, in order.
    pub reduced: Vec<R>,
}

/// Runs a shuffle to its end; `seen` gets a partial result after every round but the last.
///
/// The splits should be in random order: a partial result is an estimate as far as what was read is a sample.
///
/// # Errors
/// `invalid` for rounds of nothing; what a task or `seen` failed with; a [`Violation`](crate::Violation) where a stage lost
/// something.
pub fn run<T: Tasks>(
    tasks: &T,
    splits: Vec<T::Split>,
    layout: Layout,
    rounds: Rounds,
    mut seen: impl FnMut(Partial<T::Reduced>) -> Result<()>,
) -> Result<Shuffled<T::Reduced>> {
    let of_maps = splits.len() as u32;
    let mut rounds = Batches::new(splits, rounds)?;
    let mut states = States::new(layout);
    let mut maps = Vec::new();
    let mut next = rounds.submit(tasks, layout)?;
    let mut round = 0;
    loop {
        let now = next;
        states.fold(tasks, &now)?;
        let reducers = states.reduce(tasks)?;
        // The next round's maps compute while this one's result is waited for and shown.
        next = rounds.submit(tasks, layout)?;
        maps.extend(tallies(&now)?);
        let (reduced, took) = reducers.finish()?;
        round += 1;
        if next.is_empty() {
            let (merges, again) = states.finish()?;
            let report = Report::checked("streaming", &maps, &merges, &took, again)?;
            return Ok(Shuffled { reduced, report });
        }
        seen(Partial { round, maps: maps.len() as u32, of_maps, reduced })?;
    }
}

/// The splits, round by round.
struct Batches<S> {
    splits: std::vec::IntoIter<S>,
    submitted: u32,
    size: u32,
    most: u32,
}

impl<S> Batches<S> {
    fn new(splits: Vec<S>, rounds: Rounds) -> Result<Self> {
        let size = at_least_one("the number of maps in the first round", rounds.first)?;
        Ok(Self { splits: splits.into_iter(), submitted: 0, size, most: rounds.most.max(size) })
    }

    /// Submits the maps of the next round; none after the last.
    fn submit<T: Tasks<Split = S>>(&mut self, tasks: &T, layout: Layout) -> Result<Vec<Made>> {
        let splits: Vec<S> = self.splits.by_ref().take(self.size as usize).collect();
        let maps = submit_maps(tasks, self.submitted, splits, layout)?;
        self.submitted += maps.len() as u32;
        self.size = self.size.saturating_mul(2).min(self.most);
        Ok(maps)
    }
}

/// The state of every reducer.
struct States {
    layout: Layout,
    now: Vec<Made>,
    /// Tallies of all folds, those of `now` aside.
    folded: Vec<Tally>,
    /// What later folds took from earlier ones.
    again: Tally,
}

impl States {
    fn new(layout: Layout) -> Self {
        Self { layout, now: Vec::new(), folded: Vec::new(), again: Tally::default() }
    }

    /// Folds a round's maps in. The states before it are freed once that is done.
    fn fold<T: Tasks>(&mut self, tasks: &T, maps: &[Made]) -> Result<()> {
        let before = std::mem::take(&mut self.now);
        let counted = tallies(&before)?;
        self.again = Tally::sum(counted.iter().chain([&self.again]));
        self.folded.extend(counted);
        for reducer in 0..self.layout.reducers() {
            let columns = self.layout.of_reducer(reducer);
            let state = before.get(reducer as usize).map(|state| state.blocks(0..columns.len() as u32));
            let blocks = maps.iter().map(|map| map.blocks(columns.clone()));
            let inputs = state.into_iter().chain(blocks).collect::<Result<_>>()?;
            self.now.push(Made::submit(tasks.merge(columns, inputs).durability(Durability::None))?);
        }
        Ok(())
    }

    /// Submits the reduction of the present states.
    fn reduce<T: Tasks>(&self, tasks: &T) -> Result<Reducers<T::Reduced>> {
        let mut reducers = Reducers::new();
        for (reducer, state) in (0..).zip(&self.now) {
            let base = self.layout.of_reducer(reducer).start;
            reducers.submit(tasks, self.layout, reducer, base, std::slice::from_ref(state))?;
        }
        Ok(reducers)
    }

    /// Tallies of all folds, and what they took from each other.
    fn finish(mut self) -> Result<(Vec<Tally>, Tally)> {
        self.folded.extend(tallies(&self.now)?);
        Ok((self.folded, self.again))
    }
}
