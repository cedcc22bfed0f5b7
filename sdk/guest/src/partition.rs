//! References to data: whole partitions, blocks of them, and ranges of users' objects.

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};

use crate::{
    Error, Reader, Result,
    codec::Encoded,
    host,
    raw::{BlockRange, PartitionId, Value},
    refs::{self, Keep, Text},
};

/// Bytes `offset` to `offset + length` (exclusive) of a user's object; without `length`, to its end.
///
/// A range that ends past the object is cut there. With `etag`, reading fails with
/// [`Conflict`](crate::ErrorKind::Conflict) once the object is another one. As a task's argument it travels by
/// reference: the task may take it as [`ObjectRange`], [`Partition`] or [`Reader`].
pub use crate::raw::ObjectRange;

impl ObjectRange {
    /// The whole object.
    pub fn whole(key: impl Into<String>) -> Self {
        Self { key: key.into(), etag: None, offset: 0, length: None }
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// `not-found` if there is no such object, `conflict` if it has another etag.
    pub fn open(&self) -> Result<Reader> {
        Reader::open(Value::Object(self.clone()))
    }
}

/// [`ObjectRange`] as JSON.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ObjectRange")]
struct ObjectRangeJson {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default)]
    offset: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
}

impl Serialize for ObjectRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ObjectRangeJson::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ObjectRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ObjectRangeJson::deserialize(deserializer)
    }
}

/// A reference to bytes that are not here: a partition (which need not exist yet), some blocks of one, a range of an
/// object, or a small value that came along.
///
/// Passing or returning one moves no data. A task starts when the partitions among its arguments exist.
#[derive(Clone, Debug)]
pub struct Partition {
    value: Value,
    keep: Option<Keep>,
}

impl Partition {
    pub(crate) fn new(value: Value, keep: Option<Keep>) -> Self {
        Self { value, keep }
    }

    /// Opens it for reading, after waiting for it to exist.
    ///
    /// # Errors
    /// What the task that makes it failed with; `lost` if it cannot be made again.
    pub fn open(&self) -> Result<Reader> {
        Reader::open(self.value.clone())
    }

    /// Block `index` of it, counted from 0 within this reference.
    ///
    /// # Errors
    /// As [`Partition::blocks`].
    pub fn block(&self, index: u32) -> Result<Self> {
        self.blocks(index..index.saturating_add(1))
    }

    /// Some blocks of it, counted from 0 within this reference.
    ///
    /// # Errors
    /// `invalid` if the range is empty or ends past this reference, or if it is not to a partition. A range past the
    /// end of a partition that does not exist yet shows when it is opened.
    pub fn blocks(&self, range: Range<u32>) -> Result<Self> {
        let (partition, base, count) = match &self.value {
            Value::Partition(id) => (*id, 0, u32::MAX),
            Value::Blocks(blocks) => (blocks.partition, blocks.first, blocks.count),
            Value::Inline(_) | Value::Object(_) => {
                return Err(Error::invalid("only a partition has blocks that can be named"));
            }
        };
        if range.is_empty() || range.end > count {
            return Err(Error::invalid(format!("there is no block range {range:?} among {count} blocks")));
        }
        let blocks = BlockRange { partition, first: base + range.start, count: range.end - range.start };
        Ok(Self { value: Value::Blocks(blocks), keep: self.keep.clone() })
    }

    /// The id of the partition it is, or has its blocks from; `None` for an object or an inline value.
    pub fn id(&self) -> Option<PartitionId> {
        match &self.value {
            Value::Partition(id) => Some(*id),
            Value::Blocks(blocks) => Some(blocks.partition),
            Value::Inline(_) | Value::Object(_) => None,
        }
    }

    pub(crate) fn into_value(self) -> Value {
        // Its handle, if it has one, belongs to a result: see `Encoded::for_output`.
        std::mem::forget(self.keep);
        self.value
    }

    pub(crate) fn encoded(&self) -> Encoded {
        Encoded { value: self.value.clone(), keep: self.keep.iter().cloned().collect() }
    }
}

impl From<ObjectRange> for Partition {
    fn from(range: ObjectRange) -> Self {
        Self::new(Value::Object(range), None)
    }
}

/// [`Partition`] as JSON, where it is nested in a larger value.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PartitionJson {
    Whole(Text),
    Blocks { partition: Text, first: u32, count: u32 },
    Object(ObjectRange),
}

impl Serialize for Partition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = match &self.value {
            Value::Partition(id) => PartitionJson::Whole(Text(*id)),
            Value::Blocks(BlockRange { partition, first, count }) => {
                PartitionJson::Blocks { partition: Text(*partition), first: *first, count: *count }
            }
            Value::Object(range) => PartitionJson::Object(range.clone()),
            Value::Inline(payload) => {
                PartitionJson::Whole(Text(host::put(payload).map_err(S::Error::custom)?))
            }
        };
        if let PartitionJson::Whole(Text(id)) | PartitionJson::Blocks { partition: Text(id), .. } = &json {
            refs::note(*id, self.keep.clone())?;
        }
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Partition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match PartitionJson::deserialize(deserializer)? {
            PartitionJson::Whole(Text(id)) => Self::new(Value::Partition(id), refs::held()),
            PartitionJson::Blocks { partition: Text(partition), first, count } => {
                Self::new(Value::Blocks(BlockRange { partition, first, count }), refs::held())
            }
            PartitionJson::Object(range) => range.into(),
        })
    }
}
