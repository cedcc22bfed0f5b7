//! Pre-shuffle merge: every `factor` maps, one merge of all their columns; reducers read merge outputs.
//!
//! Source: Riffle (Zhang et al., EuroSys 2018). A reducer then makes M / F large reads instead of M small ones. A merge
//! runs where most of its inputs are, so with the maps' outputs in memory it costs no traffic. Map outputs go as soon
//! as they are merged.

use fanfold::{Durability, Result};

use crate::{
    Layout, Report, Shuffled, Tally, Tasks,
    tasks::{Made, Reducers, at_least_one, submit_maps},
};

/// Runs a shuffle to its end, merging `factor` maps at a time.
///
/// # Errors
/// `invalid` for a factor of 0; what a task failed with; a [`Violation`](crate::Violation) where a stage lost something.
pub fn run<T: Tasks>(
    tasks: &T,
    splits: Vec<T::Split>,
    layout: Layout,
    factor: u32,
) -> Result<Shuffled<T::Reduced>> {
    let factor = at_least_one("the number of maps per merge", factor)? as usize;
    let maps = submit_maps(tasks, 0, splits, layout)?;
    let all = 0..layout.columns();
    let merge = |maps: &[Made]| {
        let inputs = maps.iter().map(|map| map.blocks(all.clone())).collect::<Result<_>>()?;
        Made::submit(tasks.merge(all.clone(), inputs).durability(Durability::None))
    };
    let merges = maps.chunks(factor).map(merge).collect::<Result<Vec<_>>>()?;
    let mut reducers = Reducers::new();
    (0..layout.reducers()).try_for_each(|reducer| reducers.submit(tasks, layout, reducer, 0, &merges))?;
    let counted = |made: Vec<Made>| -> Result<Vec<Tally>> {
        let tallies: Vec<_> = made.into_iter().map(|made| made.tally).collect();
        fanfold::wait_all(&tallies)
    };
    let (maps, merges) = (counted(maps)?, counted(merges)?);
    let (reduced, took) = reducers.finish()?;
    let report = Report::checked("merge", &maps, &merges, &took, Tally::default())?;
    Ok(Shuffled { reduced, report })
}
