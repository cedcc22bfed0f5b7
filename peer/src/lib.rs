//! How processes of one cluster reach each other: links that carry messages both ways, over TCP.
//!
//! [`frame`] is the bytes on the wire, [`dial`] and [`answer`] begin a link, [`Link::run`] keeps it until one side goes
//! away. Nothing here knows what a message means, who is who, or what to do about a peer that is gone.
//!
//! A raw connection and not HTTP/2: a link is one ordered stream of small messages for as long as two processes live,
//! so there is nothing to multiplex, and everything that is ready leaves in one write.

mod address;
pub mod frame;
mod hello;
mod link;

pub use address::connect;
pub use hello::{Answered, answer, dial};
pub use link::{Ended, Inbox, Link};
