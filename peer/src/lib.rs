//! How processes of one cluster reach each other: links that carry messages both ways, and a client for requests, over TCP
//! or TLS.
//!
//! [`frame`] is the bytes on the wire, [`dial`] and [`answer`] begin a link, [`Link::run`] keeps it until one side goes
//! away. [`Security`] is whether and how all of that is encrypted, [`client()`] the HTTP client for data and calls. Nothing here knows what a message means, who is who, or what to do about a peer that is gone.
//!
//! A raw connection and not HTTP/2: a link is one ordered stream of small messages for as long as two processes live,
//! so there is nothing to multiplex, and everything that is ready leaves in one write.

mod address;
pub mod tls;
mod stream;
pub mod frame;
mod hello;
mod link;
mod client;

use address::connect;
pub use client::{Client, Connector, Pooling, client, reason};
pub use hello::{Answered, answer, dial};
pub use link::{Ended, Inbox, Link};
pub use stream::{Security, Stream};
