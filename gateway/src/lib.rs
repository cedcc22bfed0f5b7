//! The gateway: serves REST, admits synchronous calls, keeps the registry of functions, and owns jobs.
//!
//! Two lanes leave it. The direct lane ([`direct`]) runs a synchronous call on the connection's own async task and
//! touches neither journal nor disk. The scheduled lane ([`owner`]) journals, schedules and recovers everything that
//! makes or is a task. This crate knows no WebAssembly and no object store client.

mod clock;
pub mod config;

pub mod owner;
pub mod registry;
pub mod cluster;

mod direct;
mod gateway;
mod idempotency;
pub mod mirror;
mod owners;
mod routes;
mod server;
mod shared;
mod triggers;

mod auth;
mod body;
mod metrics;
mod price;
mod problem;

pub use config::{Config, Prices};
pub use gateway::Gateway;
pub use mirror::Mirror;
pub use registry::Registry;
