//! Everything Fanfold keeps: components, journal, partitions and objects, over an object store.
//!
//! This is the only crate that names `object_store`, `aws-sdk-s3`, `aws-sdk-sqs` and `redis`. Three backends exist: a directory of the
//! local disk, where what is acknowledged has been fsynced; S3, which several processes share; and memory, for tests and
//! throw-away platforms. All run the same conformance suite (`tests/`). Nothing here knows what a function is or when it
//! runs.
//!
//! Every error is a [`fanfold_protocol::Error`]: a full disk is `platform` / `disk-full` and retryable, other failures
//! of the disk or the server are `platform` / `storage`, damaged bytes are `lost` / `corrupt`, absence is `not-found`.

mod backend;
mod blobs;
mod cluster;
mod directory;
mod errors;
pub mod failpoint;
pub mod members;
pub mod memory;
pub mod mirror;
pub mod journal;
pub mod objects;
pub mod partitions;
pub mod paths;
pub mod queue;
mod redis_client;
mod requests;
mod root;
mod s3;
pub mod seen;
pub mod shared_log;
pub mod stream;
mod upload;
mod url;
#[cfg(feature = "test-support")]
pub mod testing;

pub use directory::{
    large::{FileWriter, read_large_at},
    read::read_at,
};
pub use failpoint::Failpoint;
pub use journal::{Clock, Journal};
pub use members::Members;
pub use mirror::Mirror;
pub use objects::Objects;
pub use partitions::{Index, Partitions};
pub use requests::Account;
pub use root::Store;
pub use s3::{
    Credentials, S3Options,
    bootstrap::{Bootstrapped, UploadRule, bootstrap},
};
pub use shared_log::SharedLog;
pub use url::{Bucket, StoreUrl};
