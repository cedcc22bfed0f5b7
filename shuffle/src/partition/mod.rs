//! Which column a key belongs to: by hash, or by range.

mod hash;
mod ranges;
pub mod sample;

pub use hash::{column_of, hash};
pub use ranges::{Key, Ranges};
