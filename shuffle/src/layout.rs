//! How keys become columns, and columns become reducers. Pure arithmetic that every task of a job repeats.
//!
//! A *column* is the finest share of the key space: every map output and merge output has one block per column. A
//! *reducer* folds a run of neighbouring columns, and a *group* is a run of neighbouring reducers whose columns one merge
//! takes. An exchange that needs no finer share has as many columns as reducers.

use std::ops::Range;

use fanfold::{Error, Result};
use serde::{Deserialize, Serialize};

/// Columns at most: each costs 16 bytes in the index of every map's output, and that index is read as a whole.
pub const COLUMNS_MAX: u32 = 1 << 16;

/// The shape of a shuffle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    columns: u32,
    reducers: u32,
}

impl Layout {
    /// One column per reducer.
    ///
    /// # Errors
    /// As [`Layout::with_columns`].
    pub fn new(reducers: u32) -> Result<Self> {
        Self::with_columns(reducers, reducers)
    }

    /// `columns` columns, spread over `reducers` reducers as evenly as whole numbers allow.
    ///
    /// # Errors
    /// `invalid` for no reducers, fewer columns than reducers, or more than [`COLUMNS_MAX`].
    pub fn with_columns(columns: u32, reducers: u32) -> Result<Self> {
        if reducers == 0 {
            return Err(Error::invalid("a shuffle needs at least one reducer"));
        }
        if columns < reducers || columns > COLUMNS_MAX {
            return Err(Error::invalid(format!(
                "{columns} columns for {reducers} reducers: there are at least as many columns as reducers, and at most {COLUMNS_MAX}"
            )));
        }
        Ok(Self { columns, reducers })
    }

    /// Columns in all.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// Reducers in all.
    pub fn reducers(&self) -> u32 {
        self.reducers
    }

    /// The columns of reducer `reducer`: never empty.
    pub fn of_reducer(&self, reducer: u32) -> Range<u32> {
        share(self.columns, self.reducers, reducer)
    }

    /// The reducers of group `group` of `groups`; empty for some where there are more groups than reducers.
    pub fn of_group(&self, group: u32, groups: u32) -> Range<u32> {
        share(self.reducers, groups, group)
    }

    /// The columns of the reducers in `reducers`.
    pub fn columns_of(&self, reducers: &Range<u32>) -> Range<u32> {
        share(self.columns, self.reducers, reducers.start).start
            ..share(self.columns, self.reducers, reducers.end).start
    }
}

/// Part number `part` of `of` equal parts of `0..whole`; the end for `part == of`.
fn share(whole: u32, of: u32, part: u32) -> Range<u32> {
    let at = |part: u32| (u64::from(whole) * u64::from(part.min(of)) / u64::from(of.max(1))) as u32;
    at(part)..at(part.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reducers_and_groups_tile_the_columns() {
        for (columns, reducers, groups) in
            [(1, 1, 1), (7, 3, 2), (512, 32, 5), (10, 10, 12), (65_536, 1_000, 4)]
        {
            let layout = Layout::with_columns(columns, reducers).unwrap();
            let mut next = 0;
            for reducer in 0..reducers {
                let range = layout.of_reducer(reducer);
                assert!(range.start == next && !range.is_empty(), "{layout:?} {reducer}");
                next = range.end;
            }
            assert_eq!(next, columns);
            let mut next = (0, 0);
            for group in 0..groups {
                let of = layout.of_group(group, groups);
                let range = layout.columns_of(&of);
                assert_eq!((of.start, range.start), next);
                next = (of.end, range.end);
            }
            assert_eq!(next, (reducers, columns));
        }
        for (columns, reducers) in [(1, 0), (0, 0), (2, 3), (COLUMNS_MAX + 1, 3)] {
            assert!(Layout::with_columns(columns, reducers).is_err());
        }
    }
}
