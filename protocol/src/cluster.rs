//! Who takes part in a cluster, as everybody announces it once a second and everybody else reads it.

use serde::{Deserialize, Serialize};

/// One process of a cluster. Pure data: whether it lives is known from when it was last announced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Unique to one start of a process.
    pub id: u64,
    /// What it does.
    pub role: Role,
    /// What people call it; a gateway's is that of the shard of its own.
    pub name: String,
    /// Base URL of its REST interface; empty where it has none.
    #[serde(default)]
    pub url: String,
    /// `host:port` where other members reach it.
    pub peer: String,
    /// Version of the protocol between members that it speaks.
    pub protocol: u32,
    /// The journal shards it owns.
    #[serde(default)]
    pub shards: Vec<ShardLease>,
}

/// What a member does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Serves REST, owns jobs, schedules.
    Gateway,
    /// Runs attempts and holds partitions.
    Executor,
}

/// A member's claim to own a shard. Of two claims, the one with the higher epoch is true.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardLease {
    /// The shard.
    pub name: String,
    /// The epoch under which it is owned: from the object store, never from here.
    pub epoch: u64,
}
