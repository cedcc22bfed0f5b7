//! Identities. All are values: equal on replay, printable, and parseable from what they print.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{Code, Error, Kind, limit, link::ShardTag};

/// One invocation from outside and the tree of tasks under it. Its invocation id is the same value.
///
/// A UUID version 7, so ids sort by creation time. Prints as the hyphenated form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, format = "uuid"))]
pub struct JobId(pub Uuid);

impl JobId {
    /// The id of a job accepted at `at_ms` (Unix milliseconds) into the journal shard with this tag; `random` makes it
    /// unique. Its last two bytes are the tag, so that everybody can tell whose it is.
    pub fn new(at_ms: u64, shard: ShardTag, random: [u8; 8]) -> Self {
        let [high, low] = shard.0.to_be_bytes();
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&random);
        (bytes[8], bytes[9]) = (high, low);
        Self(uuid::Builder::from_unix_timestamp_millis(at_ms, &bytes).into_uuid())
    }

    /// The tag of its shard.
    pub fn shard(self) -> ShardTag {
        let bytes = self.0.as_bytes();
        ShardTag(u16::from_be_bytes([bytes[14], bytes[15]]))
    }
}

/// A task: 16 bytes, known before it runs and equal on replay.
///
/// The root of a job is `sha256("root" ‖ job)`, child `n` of a task is `sha256(parent ‖ n as u64 big-endian)`, both
/// cut to 14 bytes; the last two are the tag of the job's shard. Prints as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct TaskId(#[serde(with = "digits")] pub [u8; 16]);

impl TaskId {
    /// The root task of `job`.
    pub fn root(job: JobId) -> Self {
        Self::cut(Sha256::new().chain_update(b"root").chain_update(job.0.as_bytes()), job.shard())
    }

    /// The task made by call number `index` of this task. Calls are counted from 0 over every `submit` and
    /// `generate` of the task, in program order.
    pub fn child(self, index: u64) -> Self {
        Self::cut(Sha256::new().chain_update(self.0).chain_update(index.to_be_bytes()), self.shard())
    }

    /// The tag of its job's shard.
    pub fn shard(self) -> ShardTag {
        ShardTag(u16::from_be_bytes([self.0[14], self.0[15]]))
    }

    fn cut(hash: Sha256, shard: ShardTag) -> Self {
        let mut id = [0; 16];
        id[..14].copy_from_slice(&hash.finalize()[..14]);
        id[14..].copy_from_slice(&shard.0.to_be_bytes());
        Self(id)
    }

    /// The id as the two big-endian halves that the WIT interface passes.
    pub fn halves(self) -> (u64, u64) {
        let n = u128::from_be_bytes(self.0);
        ((n >> 64) as u64, n as u64)
    }

    /// The inverse of [`TaskId::halves`].
    pub fn from_halves(high: u64, low: u64) -> Self {
        Self((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

/// Output `output` of task `task`; names the same bytes for ever, whichever attempt made them.
///
/// Outputs that a task returns or yields count from 0; those it `put`s count from [`PartitionId::FIRST_PUT`].
/// Prints as `<task>.<output>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    /// The task that makes it.
    pub task: TaskId,
    /// Which of the task's outputs.
    pub output: u32,
}

impl PartitionId {
    /// The number of a task's first `put` partition.
    pub const FIRST_PUT: u32 = 1 << 31;
}

/// One execution of a task, and the fencing token that goes with it: results that carry a token other than the
/// current one are dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// The owner epoch under which the attempt was started.
    pub epoch: u64,
    /// Counts from 1 within the epoch and task.
    pub number: u32,
}

/// An executor process. One that is started again has another id, unless it found what it had spilled before it was killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExecutorId(pub u64);

/// The SHA-256 of some bytes. Prints as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of several byte strings, each preceded by its length so that no two lists collide.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The first 12 hexadecimal digits: how versions are shown to people.
    pub fn short(&self) -> String {
        hex(&self.0[..6])
    }
}

/// The name of a function: 1 to 63 of `a-z 0-9 -`, starting with a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct FunctionName(Arc<str>);

impl FunctionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FunctionName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let fits = (1..=limit::NAME_LEN_MAX).contains(&text.len());
        if fits && text.bytes().all(plain) && !text.starts_with('-') {
            return Ok(Self(text.into()));
        }
        Err(Error::new(
            Kind::Invalid,
            Code::Name,
            format!(
                "`{}` is not a name: use 1 to {} of a-z, 0-9 and -, not starting with -",
                text.chars().take(80).collect::<String>().escape_debug(),
                limit::NAME_LEN_MAX
            ),
        ))
    }
}

impl TryFrom<String> for FunctionName {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<FunctionName> for String {
    fn from(name: FunctionName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl std::borrow::Borrow<str> for FunctionName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn not_an_id(what: &str, text: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::new(Kind::Invalid, Code::Name, format!("`{}` is not {what}", shown.escape_debug()))
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Uuid::try_parse(text).map(Self).map_err(|_| not_an_id("an invocation or job id", text))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TaskId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        unhex(text).map(Self).ok_or_else(|| not_an_id("a task id", text))
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.task, self.output)
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PartitionId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (task, output) = text.split_once('.')?;
            Some(Self { task: task.parse().ok()?, output: output.parse().ok()? })
        };
        parse().ok_or_else(|| not_an_id("a partition id (`<task>.<output>`)", text))
    }
}

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl FromStr for Digest {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        unhex(text).map(Self).ok_or_else(|| not_an_id("a sha-256 digest", text))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        digits::serialize(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        digits::deserialize(from).map(Self)
    }
}

/// Hexadecimal digits where people read it (JSON), bytes elsewhere.
mod digits {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer, const N: usize>(
        bytes: &[u8; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.serialize_str(&super::hex(bytes))
        } else {
            serde_bytes::serialize(bytes, to)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        if !from.is_human_readable() {
            return serde_bytes::deserialize(from);
        }
        let text = String::deserialize(from)?;
        super::unhex(&text).ok_or_else(|| D::Error::custom(format!("expected {} hexadecimal digits", 2 * N)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse() {
        let job = JobId(Uuid::from_u128(7));
        let task = TaskId::root(job).child(3);
        assert_eq!(task.shard(), job.shard());
        let partition = PartitionId { task, output: 9 };
        assert_eq!(job.to_string().parse::<JobId>().unwrap(), job);
        assert_eq!(partition.to_string().parse::<PartitionId>().unwrap(), partition);
        assert_eq!(serde_json::to_value(task).unwrap(), task.to_string());
        assert_eq!(serde_json::from_value::<TaskId>(task.to_string().into()).unwrap(), task);
        let (high, low) = task.halves();
        assert_eq!(TaskId::from_halves(high, low), task);
        assert_ne!(TaskId::root(job).child(3), TaskId::root(job).child(4));
        assert!("x.1".parse::<PartitionId>().is_err());
    }

    #[test]
    fn names_keep_out_paths() {
        for bad in ["", "../etc", "a/b", "A", "-a", "a.b", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<FunctionName>().is_err(), "{bad}");
        }
        assert!("word-count2".parse::<FunctionName>().is_ok());
    }
}
