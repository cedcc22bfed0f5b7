//! Everything Fanfold keeps: components, journal, partitions and objects, over an object store.
//!
//! This is the only crate that names `object_store`. Two backends exist: a directory of the local disk, where what is
//! acknowledged has been fsynced, and memory, for tests and throw-away platforms. Both run the same conformance suite
//! (`tests/`). Nothing here knows what a function is or when it runs.
//!
//! Every error is a [`fanfold_protocol::Error`]: a full disk is `platform` / `disk-full` and retryable, other failures
//! of the disk are `platform` / `storage`, damaged bytes are `lost` / `corrupt`, absence is `not-found`.

mod backend;
mod blobs;
mod directory;
mod errors;
pub mod journal;
pub mod objects;
pub mod partitions;
pub mod paths;
mod requests;
mod root;
#[cfg(feature = "test-support")]
pub mod testing;

pub use journal::{Clock, Journal};
pub use objects::Objects;
pub use partitions::{Index, Partitions};
pub use requests::Requests;
pub use root::Store;
