//! Shuffles as a library: every map makes something for every reducer.
//!
//! *What to compute* is an [`Exchange`]: a map from a split of the input to columns, and a fold of one column. *How to
//! submit it* is a strategy; there is one, [`simple`]. Both are ordinary code over the `fanfold` crate: the platform
//! knows tasks, partitions and blocks, and nothing of shuffles.
//!
//! ```text
//!            column 0  column 1  column 2
//! map 0  ──▶ [ block ][ block ][ block ]    one partition
//! map 1  ──▶ [ block ][ block ][ block ]    one partition
//!               │        │        │
//!               ▼        ▼        ▼
//!            reduce 0 reduce 1 reduce 2
//! ```
//!
//! M maps and R reducers make M partitions of R blocks: M objects, not M × R.

mod exchange;
mod hash;
pub mod kernel;
pub mod simple;
pub mod split;

pub use exchange::{Columns, Exchange};
pub use hash::{column_of, hash};
