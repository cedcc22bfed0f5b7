//! The direct lane: synchronous calls, run on the connection's own task.
//!
//! In the order a call passes: its path is parsed, the function looked up, a permit taken, the executor called, the
//! response head completed, the body streamed. No router, no message, no journal, no disk. When the client goes
//! away, hyper drops the future and with it the instance.

mod admission;
mod call;
mod head;
mod keyed;
mod path;
mod recent;
mod scheduled;
mod streamed;

pub(crate) use admission::Admission;
pub(crate) use call::{answer, answer_async};
pub(crate) use recent::RecentLogs;
pub(crate) use scheduled::accepted;
pub(crate) use streamed::Streamed;
