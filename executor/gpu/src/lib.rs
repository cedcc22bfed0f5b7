//! Compute on a gpu for functions that nobody trusts.
//!
//! Drivers, shader compilers and `wgpu` run in a process of their own, the *worker*: it limits itself, reads requests from a socket,
//! validates each before `wgpu` sees it, and is ended when it hangs. The executor holds the other end: a [`Gpu`] starts workers and
//! keeps them warm, a [`Session`] is what one attempt does on one of them. Data goes over that socket from the executor's memory to
//! the device and back; it never passes through a guest.
//!
//! One worker serves one session at a time, and only sessions of one owner (a job): what a shader does to its process, it does to
//! itself.

pub mod message;
mod check;
mod client;
mod frame;
mod shader;
mod table;
mod worker;

pub use client::{Gpu, KeptKey, Owner, Session, Settings, Software};
pub use worker::gpu_worker;
