//! Push-based shuffle: maps and merges in rounds, two rounds at a time; map outputs are kept.
//!
//! Source: Magnet (Shen et al., VLDB 2020), as a library in Exoshuffle (Luan et al., SIGCOMM 2023). The reducers are dealt
//! into groups; each round, one merge per group takes that group's columns of all the round's maps, while the maps of
//! the next round compute. A reducer reads one block run per round instead of one per map. Map outputs stay until the end,
//! so a lost merge output costs a merge, and no map runs twice.

use fanfold::{Durability, Result};

use crate::{
    Layout, Report, Shuffled, Tally, Tasks,
    strategy::groups::Groups,
    tasks::{Made, Reducers, at_least_one, tallies},
};

/// The shape of a push-based shuffle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounds {
    /// Maps per round: as many as compute at once, times two.
    pub maps: u32,
    /// Groups of reducers: about as many as there are executors' slots. More than reducers are as many as reducers.
    pub groups: u32,
    /// When map outputs go to the object store: `Lazy` or `Eager`.
    pub durability: Durability,
}

/// Runs a shuffle to its end.
///
/// # Errors
/// `invalid` for rounds of nothing; what a task failed with; a [`Violation`](crate::Violation) where a stage lost
/// something.
pub fn run<T: Tasks>(
    tasks: &T,
    splits: Vec<T::Split>,
    layout: Layout,
    rounds: Rounds,
) -> Result<Shuffled<T::Reduced>> {
    let per_round = at_least_one("the number of maps per round", rounds.maps)? as usize;
    let mut groups = Groups::new(layout, rounds.groups)?;
    let (mut maps, mut before): (Vec<Made>, Vec<Made>) = (Vec::new(), Vec::new());
    for splits in splits.chunks(per_round) {
        let first = maps.len();
        for (n, split) in (first as u32..).zip(splits) {
            let call = tasks.map(n, split.clone(), layout.columns());
            maps.push(Made::submit(call.durability(rounds.durability))?);
        }
        let merges = groups.merge_all(tasks, &maps[first..])?;
        // Two rounds in flight: the next one starts once the merges before these have ended.
        wait_for(&before)?;
        before = merges;
    }
    let mut reducers = Reducers::new();
    groups.reduce(tasks, &mut reducers)?;
    let merges = tallies(&groups.into_merges())?;
    let (reduced, took) = reducers.finish()?;
    let report = Report::checked("push", &tallies(&maps)?, &merges, &took, Tally::default())?;
    Ok(Shuffled { reduced, report })
}

fn wait_for(made: &[Made]) -> Result<()> {
    tallies(made).map(drop)
}
