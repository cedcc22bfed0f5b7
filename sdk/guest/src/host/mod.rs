//! Where host calls go: to the platform in a component, to a small in-process host everywhere else.
//!
//! Both sides have the same functions and types, over the contract's plain data. The rest of the crate does not know
//! which one it has.

#[cfg(target_arch = "wasm32")]
mod component;
#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::fanfold::gpu::compute as gpu;
#[cfg(target_arch = "wasm32")]
pub use component::Local;
#[cfg(target_arch = "wasm32")]
pub(crate) use component::*;

#[cfg(not(target_arch = "wasm32"))]
mod data;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod gpu;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use data::{ObjectWriter, Reader, Writer};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::*;
