//! How a shuffle is submitted: the same exchange, in different orders and with different traffic.
//!
//! | strategy | tasks | right where |
//! |---|---|---|
//! | [`simple`] | M maps, R reduces of M blocks | all map outputs fit in memory |
//! | [`merge`](mod@merge) | and M / F merges of all columns | many small maps: fewer, larger reads for the reducers |
//! | [`push`] | and merges per group of columns, in rounds; map outputs are kept | beyond memory, where re-running maps is dear |
//! | [`push_star`] | as `push`, map outputs dropped once merged | beyond memory: least storage, bounded memory |
//! | [`streaming`] | a fold per round into a state per reducer | somebody wants partial results soon |
//! | [`epochs`] | a `simple` shuffle per epoch, one ahead | training loops |
//! | [`auto`] | `simple` or `push_star`, with a reason | nobody wants to think about it |

pub mod auto;
pub mod epochs;
mod groups;
pub mod merge;
pub mod push;
pub mod push_star;
pub mod simple;
pub mod streaming;

#[cfg(test)]
mod tests;
