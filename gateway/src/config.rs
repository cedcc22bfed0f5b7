//! What an operator may set. Every value has a default that suits one machine.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use fanfold_protocol::link::ShardName;

pub use crate::price::Prices;

/// Configuration of one gateway process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, and that of the journal shard it owns.
    pub shard: ShardName,
    /// Where to listen. Port 0 takes a free one; see [`crate::Gateway::local_addr`].
    pub listen: SocketAddr,
    /// The bearer token that every request but `/healthz` and `/readyz` must carry. `None`: none is asked for.
    pub token: Option<String>,
    /// Open connections. Further ones wait in the kernel's queue until one closes.
    pub connections_max: usize,
    /// From the first byte of a request to the end of its head; half as long again at worst.
    pub header_timeout: Duration,
    /// How long a connection may stay open between requests.
    pub idle_timeout: Duration,
    /// How long a body may make no progress, either way.
    pub body_timeout: Duration,
    /// Bytes of a request's head; a longer one is answered `431`.
    pub header_bytes_max: usize,
    /// How long [`crate::Gateway::shutdown`] lets requests finish before it cancels them.
    pub drain: Duration,
    /// Uploads of components at once: each may hold 50 MiB and a compiler.
    pub deploys_max: usize,
    /// What `/v1/jobs/{id}/cost` counts.
    pub prices: Prices,
    /// Where other gateways are told of its jobs.
    pub mirror: Option<fanfold_store::Mirror>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shard: ShardName::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            token: None,
            connections_max: 8192,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            body_timeout: Duration::from_secs(30),
            header_bytes_max: 64 << 10,
            drain: Duration::from_secs(10),
            deploys_max: 4,
            prices: Prices::default(),
            mirror: None,
        }
    }
}
