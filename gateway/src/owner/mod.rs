//! Job ownership: accepts jobs, journals what happens to them, has them scheduled, answers what became of them.
//!
//! [`Owner`] is a cheap handle. Behind it one task ([`run`]) owns all state: the durable one, which is a fold over the
//! journal ([`state`]), the scheduler, the channels to executors ([`link`]), and what can be made again from these.
//! Nothing in that task waits for a store or a network; see [`lane`] for the journal and [`work`] for the rest.
//!
//! # What is promised
//!
//! - An id is given out after the job's record is durable. From then on the job ends exactly once: well, or as a dead
//!   letter, or cancelled because somebody asked. A crash in between costs time only.
//! - An end is announced (answers, watchers, views) after its record is durable, and never changes.
//! - Unrecorded jobs (synchronous calls of drivers) leave nothing, are run at most once, and are cancelled when nobody
//!   waits for them any more.
//! - While the journal cannot be written, nothing is acknowledged and nothing that was decided is lost; everything
//!   else goes on. An owner that was replaced by another one stops at once ([`Owner::ended`]).
//!
//! It does not read request bodies, check tokens or know HTTP; admission of synchronous calls is its callers' business.

mod clock;
mod messages;
pub mod state;
mod shared;
mod handle;

mod run;
mod runs;
mod requests;
mod jobs;
mod live;
mod places;
mod calls;
mod commands;
mod link;
mod lane;
mod consequences;
mod work;
mod house;
mod memos;
mod events;
mod parts;
mod follow;
mod wrote;
mod retention;
mod stop;

mod views;
mod watch;
mod mirrored;
mod history;
mod lineage;
mod overview;
mod letters;
mod logs;
mod outputs;
mod dropped;

#[cfg(test)]
mod tests;

pub(crate) use events::{BATCH_TYPE, ENDED_MAX, Triggers};
pub(crate) use follow::Ending;
pub use handle::{Config, Owner};
pub(crate) use lineage::of as lineage_of;
pub use messages::{Answer, ExecutorLink, ExecutorMetrics, JournalMetrics, Metrics, NewJob};
pub(crate) use outputs::open_output;
pub(crate) use overview::JOBS_MAX;
pub use state::{State, StoredAnswer};
pub(crate) use wrote::Written;
