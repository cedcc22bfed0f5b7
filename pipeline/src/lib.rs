//! Streaming batches as a library: rows go from stage to stage in partitions, while stages that need different resources
//! run at the same time and share one limit of memory.
//!
//! A [`Pipeline`] is what to compute: steps on rows of bytes, and what each needs. [`run()`] is the driver of it; its decisions
//! are those of [`schedule`], which knows no I/O. All of it is ordinary code over the `fanfold` crate: the platform knows
//! tasks and partitions, and nothing of pipelines.
//!
//! ```
//! use fanfold::{Call, Inputs, Partition, Result};
//! use fanfold_pipeline::{Needs, Output, Pipeline, Settings, Tasks, Work};
//!
//! /// The squares of the even ones of some numbers: a split is a range of them.
//! fn squares() -> Pipeline<(u32, u32)> {
//!     let number = |row: &[u8]| -> Result<u32> { Ok(std::str::from_utf8(row)?.parse()?) };
//!     Pipeline::read(Needs::cpu(1000), |&(from, to): &(u32, u32), row| {
//!         Ok(Box::new((from + row as u32..to).map(|n| Ok(n.to_string().into_bytes()))))
//!     })
//!     .filter("even", move |row| Ok(number(row)? % 2 == 0))
//!     .needs(Needs::cpu(10).custom("squarer", 1))
//!     .map("square", move |row| Ok(number(row)?.pow(2).to_string().into_bytes()))
//! }
//!
//! /// The pipeline's one task.
//! #[fanfold::task]
//! fn stage(work: Work<(u32, u32)>, inputs: Inputs<Partition>) -> Result<Output> {
//!     squares().run(&work, &inputs)
//! }
//!
//! struct Calls;
//!
//! impl Tasks for Calls {
//!     type Split = (u32, u32);
//!
//!     fn stage(&self, work: Work<(u32, u32)>, inputs: Vec<Partition>) -> Call<Output> {
//!         stage::call(work, inputs)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let settings = Settings::new(1 << 30, Needs::cpu(4000).custom("squarer", 2));
//! let mut sum = 0;
//! let report = fanfold_pipeline::run(&Calls, &squares(), &[(0, 5), (5, 9)], &settings, |piece| {
//!     for row in piece.open()? {
//!         sum += std::str::from_utf8(&row?)?.parse::<u32>()?;
//!     }
//!     Ok(())
//! })?;
//! assert_eq!((sum, report.rows), (4 + 16 + 36 + 64, 5));
//! # Ok(())
//! # }
//! ```
//!
//! `docs/pipeline.md` says what the modes are and what they cost.

pub mod schedule;
mod rows;
mod stage;
mod settings;
mod feed;
mod dead;
mod task;
mod checkpoint;
mod status;
mod run;
#[cfg(test)]
mod tests;

pub use dead::{Reason, dead_letter};
pub use rows::{Row, Rows};
pub use run::{Tasks, run};
pub use schedule::Mode;
pub use settings::{Piece, Report, Settings};
pub use stage::{Needs, OnError, Pipeline, RowIter};
pub use task::{Ended, Output, Work};
