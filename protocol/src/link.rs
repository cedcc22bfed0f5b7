//! What an executor and the owner of a journal shard say to each other before they exchange [`crate::message`]s.
//!
//! An executor dials the gateway that owns a shard and sends a [`Hello`]; the gateway answers with a [`Welcome`] or an
//! error and closes. Both are MessagePack with field names, so that processes of different versions understand enough
//! of each other to refuse; everything after them needs the same [`PROTOCOL`].

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Code, Error, ExecutorId, Kind, message::Offer, value::StoredKey};

/// Version of everything that processes of one cluster say to each other. They must agree on it.
pub const PROTOCOL: u32 = 1;

/// An executor's first words on a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the executor.
    pub protocol: u32,
    /// What operators call it.
    pub name: String,
    /// Name of the shard whose owner it wants; `None`: whichever the gateway owns.
    pub shard: Option<ShardName>,
    /// What it offers that owner.
    pub offer: Offer,
    /// Where other processes reach it, as `host:port`.
    pub peer: String,
    /// Partitions that it made before this link and still has, of the shard's jobs if a shard is named, else of all.
    pub held: Vec<Held>,
}

/// A partition that an executor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Which copy.
    pub key: StoredKey,
    /// Whether the object store has it too.
    pub durable: bool,
}

/// The owner's first words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// [`PROTOCOL`] of the gateway.
    pub protocol: u32,
    /// The shard.
    pub shard: ShardName,
    /// Epoch of its owner.
    pub epoch: u64,
}

/// Where an executor's partitions can be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Which executor.
    pub executor: ExecutorId,
    /// As `host:port`; `None`: it is gone.
    pub address: Option<String>,
}

/// Refuses a process that speaks another version.
///
/// # Errors
/// `conflict` / `protocol`, which names both versions.
pub fn check_protocol(who: &str, theirs: u32) -> Result<(), Error> {
    if theirs == PROTOCOL {
        return Ok(());
    }
    let message = format!(
        "{who} speaks version {theirs} of the cluster protocol and this process version {PROTOCOL}: run the same release of fanfold everywhere"
    );
    Err(Error::new(Kind::Conflict, Code::Protocol, message))
}

/// The two bytes that a job id carries of the name of its shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardTag(pub u16);

impl ShardTag {
    /// The tag of the shard of this name. Two shards of one cluster must not have the same one.
    pub fn of(shard: &str) -> Self {
        let digest = crate::Digest::of(shard.as_bytes());
        Self(u16::from_be_bytes([digest.0[0], digest.0[1]]))
    }
}

/// The name of a journal shard: that of the gateway it was made by. 1 to 32 of `a-z 0-9 -`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShardName(String);

impl ShardName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its tag.
    pub fn tag(&self) -> ShardTag {
        ShardTag::of(&self.0)
    }
}

/// That of the only gateway.
impl Default for ShardName {
    fn default() -> Self {
        Self("g0".to_owned())
    }
}

impl FromStr for ShardName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=32).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(80).collect();
        let message =
            format!("`{}` is not a gateway's name: use 1 to 32 of a-z, 0-9 and -", shown.escape_debug());
        Err(Error::new(Kind::Invalid, Code::Name, message))
    }
}

impl TryFrom<String> for ShardName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<ShardName> for String {
    fn from(name: ShardName) -> Self {
        name.0
    }
}
