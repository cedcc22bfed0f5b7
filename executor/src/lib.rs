//! Runs functions: a wasmtime engine, a sandbox per invocation, host calls, the partition cache, and two lanes.
//!
//! It owns compiled code, instances and cached partitions. It promises that a guest which loops, traps, exhausts
//! memory, recurses, floods its logs or answers nonsense gets its own typed error and that neither the process nor a
//! neighbour notices. It does not know who asked, what else a job runs, or which tenants there are.
//!
//! In reading order, as an invocation travels: [`executor`] is the handle; [`direct`] and [`worker`] are the two
//! lanes; [`load`] turns a component's digest into something that can be instantiated ([`admit`] and [`compile`] when
//! there is no compiled copy); [`sandbox`] opens an instance; [`task`] and [`egress`] are what a guest can call.

pub mod config;
pub mod executor;
pub mod engine;
pub mod admit;
pub mod compile;
pub mod load;
pub mod sandbox;
pub mod egress;
pub mod direct;
pub mod task;
pub mod cache;
pub mod worker;
pub mod peer;
#[cfg(test)]
mod testing;

pub use compile::compile_child;
pub use config::{Config, Spill};
pub use executor::Executor;
pub use fanfold_gpu::gpu_worker;

/// What computes for functions that want a gpu, for who asks what there is.
pub mod gpu {
    pub use fanfold_gpu::{Gpu, Settings, message::Adapter};
}
pub use worker::session::Session;
