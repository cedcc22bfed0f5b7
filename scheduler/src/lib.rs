//! The scheduler: a pure state machine that owns jobs, tasks, partitions' whereabouts and executors' slots.
//!
//! [`Scheduler::step`] takes one [`Event`] and the time, and says what to do as [`Command`]s. It knows no clock, no
//! network, no store and no WebAssembly; the same events at the same times give the same commands, which is how the
//! simulator in `tests/` can replay any failure from a seed.
//!
//! An invocation passes through the modules in this order.

mod event;
mod scheduler;

// What is remembered.
mod executor;
mod holdings;
mod job;
mod output;
mod slab;
mod spec;
mod task;
mod timer;

// From a call to a running attempt.
mod replay;
mod submit;
mod ready;
mod placement;
mod ahead;
mod running;

// What attempts ask and make.
mod interest;
mod wait;
mod generator;

// How it ends.
mod commit;
mod memo;
mod retry;
mod failure;
mod journal;
mod end;

// What keeps it going, and what lets go of it.
mod members;
mod recovery;
mod references;
mod backup;
mod stall;

mod query;
mod graph;
mod reason;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod tests;

pub use event::{Command, Event, JobEnd, JobStart, Replay};
pub use executor::{ExecutorView, Resources};
pub use scheduler::Scheduler;
