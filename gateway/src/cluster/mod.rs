//! A gateway's side of a cluster: executors that dial it, and synchronous calls on them.
//!
//! [`Executors`] is who is there. [`Listener`] takes their links and hands each to the owner of the shard it asks for; what
//! happens on a link is the owner's business. [`RemoteLane`] runs direct calls on one of them.
//!
//! Other gateways are in `others`; `forward` passes on what one of them must answer, `lists` merges what all of them have,
//! and `takeover` goes on with the jobs of those that are gone.

mod executors;
pub(crate) mod forward;
mod lane;
mod listen;
pub(crate) mod lists;
mod others;
mod takeover;

use http::{HeaderMap, header};

pub use executors::Executors;
pub use lane::RemoteLane;
pub use listen::Listener;
pub(crate) use others::Others;
pub(crate) use takeover::{Takeover, leases};

/// Removes what belongs to one connection and not to the message on it.
fn hop_by_hop(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::EXPECT] {
        headers.remove(name);
    }
}
