//! The words of Fanfold as types: identities, specifications, messages, records, limits and error kinds.
//!
//! Every other crate speaks in these terms. Nothing here does I/O, reads a clock or knows a runtime, a store or
//! a WebAssembly engine; it depends on serialisation crates only.

pub mod id;
pub mod limit;
pub mod error;
pub mod manifest;
pub mod function;
pub mod value;
pub mod call;
pub mod message;
pub mod link;
pub mod cluster;
pub mod record;
pub mod rest;
pub mod trigger;
pub mod custom;
pub mod direct;
pub mod remote;

pub use error::{Code, Error, Kind};
pub use id::{AttemptId, Digest, ExecutorId, FunctionName, JobId, PartitionId, TaskId};
pub use manifest::Manifest;
