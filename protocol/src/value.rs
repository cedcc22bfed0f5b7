//! Values: what calls carry and tasks return. Small ones travel inline, large ones by reference.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{ExecutorId, PartitionId, limit};

/// Bytes, and the partitions that are named inside them. The list is what keeps those partitions alive; the
/// platform never looks into the bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Payload {
    /// Opaque to the platform.
    pub bytes: Bytes,
    /// Partitions the bytes refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<PartitionId>,
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, refs: Vec::new() }
    }
}

/// An argument or result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Value {
    /// The bytes themselves.
    Inline(Payload),
    /// A whole partition, which need not exist yet.
    Partition(PartitionId),
    /// Blocks `first..first + count` of a partition, which need not exist yet.
    Blocks {
        /// The partition.
        partition: PartitionId,
        /// First block.
        first: u32,
        /// How many blocks.
        count: u32,
    },
    /// A byte range of a user's object.
    Object(ObjectRange),
}

impl Value {
    /// The partitions that must exist before a task with this argument can start.
    pub fn needs(&self) -> Option<PartitionId> {
        match self {
            Self::Partition(partition) | Self::Blocks { partition, .. } => Some(*partition),
            Self::Inline(_) | Self::Object(_) => None,
        }
    }

    /// Bytes of the longest partition behind this value that is brought into memory as a whole where it is from elsewhere.
    pub fn whole_max(&self) -> u64 {
        limit::load_bytes_max(matches!(self, Self::Blocks { .. }))
    }

    /// Every partition this value keeps alive.
    pub fn refers(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let nested = match self {
            Self::Inline(payload) => payload.refs.as_slice(),
            _ => &[],
        };
        self.needs().into_iter().chain(nested.iter().copied())
    }
}

/// A byte range of an object that a user put in (`PUT /v1/objects/{key}`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectRange {
    /// The object's key.
    pub key: String,
    /// If set, reading fails with `precondition` once the object is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// First byte.
    pub offset: u64,
    /// How many bytes; `None`: to the end. A range that ends past the object is cut there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// An output that exists: its bytes, or where a copy of them is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Output {
    /// At most [`crate::limit::INLINE_BYTES_MAX`] bytes.
    Inline(Payload),
    /// A partition in the data plane.
    Stored(Stored),
    /// The task returned one of its inputs or one of its children's outputs: this output is that value.
    Alias(Box<Value>),
}

impl Output {
    /// What is told of it beside the journal.
    pub fn encode(&self) -> Vec<u8> {
        // Named MessagePack of these types cannot fail: there is no map with non-string keys and no writer.
        rmp_serde::to_vec_named(self).unwrap_or_default()
    }

    /// The output in `bytes`.
    ///
    /// # Errors
    /// `lost` / `corrupt` where they are none of this or an older version.
    pub fn decode(bytes: &[u8]) -> Result<Self, crate::Error> {
        rmp_serde::from_slice(bytes).map_err(|e| {
            let why =
                format!("what is told of an output cannot be read ({e}): it was written by a newer version");
            crate::Error::new(crate::Kind::Lost, crate::Code::Corrupt, why)
        })
    }

    /// Its size in bytes, as far as this record tells (0 for an alias).
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(payload) => payload.bytes.len() as u64,
            Self::Stored(stored) => stored.meta.bytes,
            Self::Alias(_) => 0,
        }
    }
}

/// A partition in the data plane, and the attempt whose copy was committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Key of the data: unique to the attempt that wrote it.
    pub key: StoredKey,
    /// Shape and checksum; equal whenever it is made again.
    pub meta: PartitionMeta,
    /// The executor that has it in memory or on its disk, if one is known to.
    pub at: Option<ExecutorId>,
    /// Whether the object store has it.
    pub durable: bool,
    /// Partitions that its bytes refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<PartitionId>,
}

/// The attempt-unique name of a partition's data; `fanfold-store` makes the object path from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StoredKey {
    /// The job, so that a job's data can be removed by prefix.
    pub job: crate::JobId,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the attempt that wrote it.
    pub epoch: u64,
    /// The number of the attempt that wrote it.
    pub attempt: u32,
}

impl StoredKey {
    /// The key of output `output` of a memoised call: of no job and no attempt. Its made-up job id is that of all data
    /// of the entry, and carries the shard's tag as any.
    pub fn of_memo(memo: crate::Digest, shard: crate::link::ShardTag, output: u32) -> Self {
        let (mut job, mut task) = ([0; 16], [0; 16]);
        job[..14].copy_from_slice(&memo.0[..14]);
        job[14..].copy_from_slice(&shard.0.to_be_bytes());
        task.copy_from_slice(&memo.0[16..]);
        Self {
            job: crate::JobId(uuid::Builder::from_custom_bytes(job).into_uuid()),
            partition: PartitionId { task: crate::TaskId(task), output },
            epoch: 0,
            attempt: 0,
        }
    }

    /// Whether it is one of those: owners' epochs count from 1.
    pub fn is_memo(&self) -> bool {
        self.epoch == 0
    }
}

/// Shape and checksum of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionMeta {
    /// Bytes of data, footer not counted.
    pub bytes: u64,
    /// Number of blocks, at least 1 unless `bytes` is 0.
    pub blocks: u32,
    /// crc32c over the data.
    pub crc32c: u32,
}
