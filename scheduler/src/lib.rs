//! The scheduler: a pure state machine.

mod event;

pub use event::{Command, Event, JobEnd, JobStart, Replay};
