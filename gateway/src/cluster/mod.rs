//! A gateway's side of a cluster: executors that dial it, and synchronous calls on them.
//!
//! [`Executors`] is who is there. [`Listener`] takes their links and hands each to the owner of the shard it asks for; what
//! happens on a link is the owner's business. [`RemoteLane`] runs direct calls on one of them.

mod executors;
mod lane;
mod listen;

pub use executors::Executors;
pub use lane::RemoteLane;
pub use listen::Listener;
pub(crate) use listen::Shard;
