//! The SDK for Fanfold functions in Rust.
//!
//! A function is an ordinary Rust function with an attribute. It takes and returns any serde type (as JSON), or raw
//! bytes as `Vec<u8>`; it may fail with anything that can be printed:
//!
//! ```
//! #[derive(serde::Deserialize)]
//! struct Request {
//!     a: i64,
//!     b: i64,
//! }
//!
//! #[fanfold::function]
//! fn add(input: Request) -> Result<i64, &'static str> {
//!     input.a.checked_add(input.b).ok_or("the sum does not fit into 64 bits")
//! }
//! # fn main() {}
//! ```
//!
//! A *driver* is a function that calls others. Its component's further entries are *tasks*; each gets a companion of
//! the same name with `submit`, which returns a [`Future`] at once, and `call`, which takes wishes first (see
//! [`Call`]). Futures are passed on by reference: below, the lengths go from task to task without passing through
//! `main`.
//!
//! ```
//! use fanfold::{Future, Inputs, ObjectRange, Reader, Result};
//! use std::io::BufRead;
//!
//! /// Counts the lines of every object under a prefix.
//! #[fanfold::function(tasks(count, sum))]
//! fn lines(prefix: String) -> Result<Future<u64>> {
//!     let counts = fanfold::objects::list(prefix)
//!         .map(|object| count::submit(ObjectRange::whole(object?.key)))
//!         .collect::<Result<Vec<_>>>()?;
//!     fanfold::info!("counting {} objects", counts.len());
//!     sum::submit(&counts)
//! }
//!
//! #[fanfold::task]
//! fn count(text: Reader) -> Result<u64> {
//!     Ok(text.lines().count() as u64)
//! }
//!
//! #[fanfold::task]
//! fn sum(counts: Inputs<u64>) -> u64 {
//!     counts.into_iter().sum()
//! }
//!
//! // Outside of a component everything runs in this process, so a driver can be tested as it is:
//! # fn main() -> Result<()> {
//! fanfold::objects::put("poems/a", b"to be\nor not\n")?;
//! fanfold::objects::put("poems/b", b"to be\n")?;
//! assert_eq!(lines("poems/".into())?.get()?, 3);
//! # Ok(())
//! # }
//! ```
//!
//! A *generator*'s outputs appear while it runs:
//!
//! ```
//! use fanfold::{Result, Yielder};
//!
//! #[fanfold::generator]
//! fn countdown(out: &mut Yielder<u32>, from: u32) -> Result<()> {
//!     (0..from).rev().try_for_each(|n| out.send(n))
//! }
//!
//! # fn main() -> Result<()> {
//! let numbers: Vec<u32> = countdown::submit(3)?.map(|future| future?.get()).collect::<Result<_>>()?;
//! assert_eq!(numbers, [2, 1, 0]);
//! # Ok(())
//! # }
//! ```
//!
//! # Values
//!
//! Arguments and results are JSON, with these exceptions: `Vec<u8>` is raw bytes, `()` is no bytes, [`Partition`],
//! [`Reader`] and [`ObjectRange`] are references, [`Inputs`] and [`Outputs`] are several values. A [`Future`], a
//! [`Shared`] or a [`Partition`] anywhere inside a serde value works, and keeps its data alive. What is over 64 KiB
//! becomes a partition by itself. An empty body counts as JSON's `null`.
//!
//! # Building
//!
//! `cargo build --release --target wasm32-wasip2` of a `cdylib` crate makes the component. It imports what it uses:
//! one that calls nothing is not a driver. Clocks and random numbers are virtual (they are equal when a task is run
//! again) unless the manifest says `deterministic = false`.

mod arg;
#[doc(hidden)]
pub mod bindings;
mod buffer;
mod call;
mod codec;
mod error;
mod future;
mod generator;
pub mod gpu;
mod host;
mod log;
#[cfg(feature = "arrow")]
pub mod arrow;
pub mod objects;
mod output;
mod partition;
pub mod raw;
mod reader;
mod refs;
#[doc(hidden)]
pub mod rt;
mod writer;

pub use arg::{Arg, FromArg, Inputs, Reference, Shared, put};
pub use call::{Call, Durability, Entry, Options, Placement, call};
pub use error::{Error, ErrorKind, Failure, Result};
pub use fanfold_macros::{function, generator, task};
pub use future::{AsCompleted, AsFuture, Future, as_completed, cancel, wait, wait_all};
pub use generator::{Generator, Yielder};
#[cfg(not(target_arch = "wasm32"))]
pub use host::native;
pub use log::{Level, log, status};
pub use output::{IntoOutputs, OutputSet, Outputs, Returns};
pub use partition::{ObjectRange, Partition};
pub use reader::Reader;
pub use writer::Writer;

/// What the running task may know of itself. All of it but `attempt` and `executor` is equal on replay.
pub fn context() -> raw::Info {
    host::current()
}
