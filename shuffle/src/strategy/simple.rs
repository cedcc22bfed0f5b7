//! The simple strategy: every map at once, each reducer as soon as the last map has committed.
//!
//! Right while all maps' outputs fit into the cluster's memory and disks, and M × R block reads are few enough (some
//! millions). A reducer's arguments are M block references, so R × M of them pass through the driver.

use fanfold::Result;

use crate::{
    Layout, Report, Shuffled, Tally, Tasks,
    tasks::{Reducers, submit_maps},
};

/// Runs a shuffle to its end.
///
/// # Errors
/// What a task failed with; a [`Violation`](crate::Violation) where a stage lost something.
///
/// ```
/// use std::{io::Read, ops::Range};
/// use fanfold::{Call, Inputs, Outputs, Partition, Result};
/// use fanfold_shuffle::{
///     Blocks, Buffers, Column, Columns, Exchange, Layout, Output, Tally, Tasks, strategy::simple,
/// };
///
/// /// Counts numbers by their last digit. A block is a bag of digits, a byte each.
/// struct Digits;
///
/// impl Exchange for Digits {
///     type Split = Vec<u32>;
///     type Reduced = Vec<(u8, usize)>;
///
///     fn map(&self, numbers: Vec<u32>, out: &mut Blocks) -> Result<()> {
///         let mut buffers = Buffers::of(out);
///         for n in &numbers {
///             let digit = (n % 10) as u8;
///             buffers.of_key(&[digit], out.columns().end)?.push(digit);
///         }
///         out.took(numbers.len() as u64);
///         out.gave(numbers.len() as u64);
///         buffers.write(out)
///     }
///
///     fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()> {
///         column.concatenate(1, out)
///     }
///
///     fn reduce(&self, _: u32, columns: &mut Columns) -> Result<Vec<(u8, usize)>> {
///         let mut digits = Vec::new();
///         while let Some(column) = columns.next() {
///             for mut stream in column.streams {
///                 digits.extend(stream.rest()?);
///             }
///         }
///         columns.took(digits.len() as u64);
///         columns.gave(digits.len() as u64);
///         let count = |digit| (digit, digits.iter().filter(|d| **d == digit).count());
///         Ok((0..10).map(count).filter(|(_, n)| *n > 0).collect())
///     }
/// }
///
/// #[fanfold::task]
/// fn map(numbers: Vec<u32>, columns: u32) -> Result<Output> {
///     fanfold_shuffle::map(&Digits, numbers, columns)
/// }
///
/// #[fanfold::task]
/// fn merge(columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
///     fanfold_shuffle::merge(&Digits, columns, &inputs)
/// }
///
/// #[fanfold::task]
/// fn reduce(
///     reducer: u32,
///     columns: Range<u32>,
///     inputs: Inputs<Partition>,
/// ) -> Result<Outputs<(Vec<(u8, usize)>, Tally)>> {
///     fanfold_shuffle::reduce(&Digits, reducer, columns, &inputs)
/// }
///
/// struct Count;
///
/// impl Tasks for Count {
///     type Split = Vec<u32>;
///     type Reduced = Vec<(u8, usize)>;
///
///     fn map(&self, _: u32, split: Vec<u32>, columns: u32) -> Call<Output> {
///         map::call(split, columns)
///     }
///     fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
///         merge::call(columns, inputs)
///     }
///     fn reduce(
///         &self,
///         reducer: u32,
///         columns: Range<u32>,
///         inputs: Vec<Partition>,
///     ) -> Call<Outputs<(Vec<(u8, usize)>, Tally)>> {
///         reduce::call(reducer, columns, inputs)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let splits = vec![vec![1, 21, 5], vec![15, 25, 7]];
/// let shuffled = simple::run(&Count, splits, Layout::new(3)?)?;
/// let mut counts = shuffled.reduced.concat();
/// counts.sort();
/// assert_eq!(counts, [(1, 2), (5, 3), (7, 1)]);
/// assert_eq!(shuffled.report.reduced.records_out, 6);
/// # Ok(())
/// # }
/// ```
pub fn run<T: Tasks>(tasks: &T, splits: Vec<T::Split>, layout: Layout) -> Result<Shuffled<T::Reduced>> {
    let maps = submit_maps(tasks, 0, splits, layout)?;
    let mut reducers = Reducers::new();
    (0..layout.reducers()).try_for_each(|reducer| reducers.submit(tasks, layout, reducer, 0, &maps))?;
    // From here on the reducers' arguments keep the map outputs: each goes as soon as all reducers have read it.
    let counted: Vec<_> = maps.into_iter().map(|map| map.tally).collect();
    let counted = fanfold::wait_all(&counted)?;
    let (reduced, took) = reducers.finish()?;
    let report = Report::checked("simple", &counted, &[], &took, Tally::default())?;
    Ok(Shuffled { reduced, report })
}
