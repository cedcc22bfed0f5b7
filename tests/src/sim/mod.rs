//! The scheduler under a seeded simulator: virtual time, virtual executors that run scripted pure programs, a virtual
//! owner with a journal, and faults.
//!
//! A seed decides everything: programs, cluster, delays and faults. The same seed gives the same run, event by event
//! (its hash is compared in a test), so a seed that fails can be replayed and read.
//!
//! # Which faults are fair
//!
//! - A message may take any time. Messages of one attempt keep their order, each way; others do not.
//! - A message from an executor may come twice, the second time at any later moment, also after its attempt's end.
//!   A message to an executor comes once: a second `Run` would be a second attempt with the same token.
//! - An executor may die at any moment, with its memory, its disk and its attempts. Messages it has sent may still
//!   arrive until the owner notices; what was in the object store stays.
//! - An executor's link may break: it ends its attempts, keeps what it has, and comes back under the same id. Whatever
//!   was on its way is gone, or late.
//! - An executor may offer more or less than before, never less memory than all drivers need at once. It may drain:
//!   then it begins nothing, uploads all it has and leaves.
//! - An executor may be a hundred times slower than others, now and then.
//! - A copy of a partition may vanish everywhere, and nobody is told.
//! - The gateway may die at any moment. Journal entries that were not durable are gone, the others are there in
//!   order. Executors end its attempts; they may die with it, live on with their
//!   caches and come to the next one up to four seconds later, or start anew with it under the same ids and with nothing (one process). Messages for
//!   the dead owner may reach the next one. Unrecorded jobs are gone.
//! - Unfair, and not done: losing a message between two live parties (both ends would notice a broken connection and
//!   count the executor as gone), reordering messages of one attempt, a journal that loses a durable entry.
//!
//! # What is checked
//!
//! At every step: attempts fit into their executors, no token is used twice, no task has more than
//! two attempts, no task commits twice in the log, no job
//! stands still. At the end: every job has ended, with the result of the oracle (`program`), which knows nothing of
//! schedulers; nothing is remembered; everything that no result consists of was freed; and where nothing was lost, no
//! task ran more often than its own failures explain and every copy could be read.

mod check;
mod faults;
mod machine;
mod making;
mod members;
mod owner;
mod plan;
mod program;
mod reading;
mod run;
mod trace;
mod watch;
mod world;

pub use run::{Report, run};
