//! Shuffles as a library: every map makes something for every reducer.
//!
//! *What to compute* is an [`Exchange`]: a map from a split of the input to blocks, a merge of blocks, and a fold.
//! *How to submit it* is a [`strategy`], and all strategies run the same exchange. Both are ordinary code over the
//! `fanfold` crate: the platform knows tasks, partitions and blocks, and nothing of shuffles.
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
//! M maps and R reducers make M partitions of R blocks: M objects, not M × R. Every stage is checked to take what the
//! stage before it gave ([`Tally`]).
//!
//! [`strategy::simple`] has a whole example. `docs/shuffle.md` says which strategy to use when.

pub mod split;
mod exchange;
mod blocks;
mod columns;
mod layout;
mod tally;
mod tasks;
pub mod strategy;
pub mod partition;
pub mod random;
pub mod kernel;

pub use blocks::{Blocks, Buffers, Output};
pub use columns::{Column, Columns, Stream};
pub use exchange::{Exchange, map, merge, reduce};
pub use layout::{COLUMNS_MAX, Layout};
pub use partition::{column_of, hash};
pub use tally::{Stage, Tally, Violation};
pub use tasks::{Report, Shuffled, Tasks};
