//! The simple strategy: every map at once, each reducer as soon as the last map has committed.
//!
//! Right while all maps' outputs fit into the cluster's memory and disks, and M × R block reads are few enough (some
//! millions). A reducer's arguments are M block references, so R × M of them pass through the driver.

use fanfold::{Call, Error, Future, Inputs, Partition, Result};

use crate::{Columns, Exchange};

/// The body of the map task.
///
/// # Errors
/// As [`Exchange::map`].
pub fn map<X: Exchange>(exchange: &X, split: X::Split, columns: u32) -> Result<Partition> {
    let mut columns = Columns::new(columns)?;
    exchange.map(split, &mut columns)?;
    columns.write()
}

/// The body of the reduce task; `blocks` are its column's, one of each map.
///
/// # Errors
/// As [`Exchange::reduce`].
pub fn reduce<X: Exchange>(exchange: &X, column: u32, blocks: Inputs<Partition>) -> Result<X::Reduced> {
    exchange.reduce(column, blocks.into_iter().map(|block| block.open()?.bytes()))
}

/// Submits a shuffle and returns the reduced columns' futures, in order. `map` and `reduce` make the calls of the two
/// tasks, with whatever wishes the driver has for them.
///
/// # Errors
/// `invalid` for no columns at all (it would lose the input), and those of submitting. Failed tasks show in the futures.
///
/// ```
/// use fanfold::{Inputs, Partition, Result};
/// use fanfold_shuffle::{Columns, Exchange, simple};
///
/// /// Counts numbers by their last digit.
/// struct Digits;
///
/// impl Exchange for Digits {
///     type Split = Vec<u32>;
///     type Reduced = Vec<(u8, usize)>;
///
///     fn map(&self, numbers: Vec<u32>, columns: &mut Columns) -> Result<()> {
///         for n in numbers {
///             let digit = (n % 10) as u8;
///             columns.of_key(&[digit]).push(digit);
///         }
///         Ok(())
///     }
///
///     fn reduce(&self, _: u32, blocks: impl Iterator<Item = Result<Vec<u8>>>) -> Result<Self::Reduced> {
///         let digits: Vec<u8> = blocks.collect::<Result<Vec<_>>>()?.concat();
///         let count = |digit| (digit, digits.iter().filter(|d| **d == digit).count());
///         Ok((0..10).map(count).filter(|(_, n)| *n > 0).collect())
///     }
/// }
///
/// #[fanfold::task]
/// fn map(numbers: Vec<u32>, columns: u32) -> Result<Partition> {
///     simple::map(&Digits, numbers, columns)
/// }
///
/// #[fanfold::task]
/// fn reduce(column: u32, blocks: Inputs<Partition>) -> Result<Vec<(u8, usize)>> {
///     simple::reduce(&Digits, column, blocks)
/// }
///
/// # fn main() -> Result<()> {
/// let splits = [vec![1, 21, 5], vec![15, 25, 7]];
/// let columns = simple::submit(splits, 3, map::call, reduce::call)?;
/// let mut counts = fanfold::wait_all(&columns)?.concat();
/// counts.sort();
/// assert_eq!(counts, [(1, 2), (5, 3), (7, 1)]);
/// # Ok(())
/// # }
/// ```
pub fn submit<S, R>(
    splits: impl IntoIterator<Item = S>,
    columns: u32,
    map: impl Fn(S, u32) -> Call<Partition>,
    reduce: impl Fn(u32, Vec<Partition>) -> Call<R>,
) -> Result<Vec<Future<R>>>
where
    R: fanfold::Returns<Handle = Future<R>>,
{
    if columns == 0 {
        return Err(Error::invalid("a shuffle needs at least one column"));
    }
    let maps = splits.into_iter().map(|split| map(split, columns).submit()).collect::<Result<Vec<_>>>()?;
    let column = |number| {
        let blocks = maps.iter().map(|map| map.as_partition().block(number)).collect::<Result<Vec<_>>>()?;
        reduce(number, blocks).submit()
    };
    (0..columns).map(column).collect()
}
