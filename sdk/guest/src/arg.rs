//! Arguments: what a caller may pass where a task takes a `T`, and how the task gets it.

use std::{marker::PhantomData, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

use crate::{
    Future, ObjectRange, Partition, Reader, Result,
    codec::{self, Encoded},
    host,
    raw::{PartitionId, Value},
    refs::{self, Text},
};

/// What a caller may pass where a task takes a `T`: the value itself, or a reference to one.
///
/// | passed | for a task that takes |
/// |---|---|
/// | `T`, `&T` | any serde type |
/// | `&[u8]`, `&str` | `Vec<u8>`, `String` |
/// | `Future<T>`, `&Future<T>` | `T`: the task starts when it exists, and its bytes never pass through the caller |
/// | `Shared<T>`, `&Shared<T>` | `T` |
/// | `Partition`, [`ObjectRange`], a future of a `Partition` | [`Partition`] or [`Reader`] |
pub trait Arg<T> {
    #[doc(hidden)]
    fn encode(self) -> Result<Passed>;
}

/// Opaque outside of this crate.
#[doc(hidden)]
pub struct Passed(pub(crate) Encoded);

impl From<Encoded> for Passed {
    fn from(encoded: Encoded) -> Self {
        Self(encoded)
    }
}

impl<T: Serialize + 'static> Arg<T> for T {
    fn encode(self) -> Result<Passed> {
        codec::encode(self).map(Into::into)
    }
}

impl<T: Serialize + 'static> Arg<T> for &T {
    fn encode(self) -> Result<Passed> {
        codec::encode_ref(self).map(Into::into)
    }
}

impl Arg<Vec<u8>> for &[u8] {
    fn encode(self) -> Result<Passed> {
        Ok(Encoded::bytes(self.to_vec()).into())
    }
}

impl Arg<String> for &str {
    fn encode(self) -> Result<Passed> {
        Ok(Encoded::bytes(serde_json::to_vec(self)?).into())
    }
}

impl<T> Arg<T> for Future<T> {
    fn encode(self) -> Result<Passed> {
        Ok(self.as_partition().encoded().into())
    }
}

impl<T> Arg<T> for &Future<T> {
    fn encode(self) -> Result<Passed> {
        Ok(self.as_partition().encoded().into())
    }
}

impl<T> Arg<T> for Shared<T> {
    fn encode(self) -> Result<Passed> {
        Arg::<T>::encode(&self)
    }
}

impl<T> Arg<T> for &Shared<T> {
    fn encode(self) -> Result<Passed> {
        Ok(Encoded { value: Value::Partition(self.id), keep: Vec::new() }.into())
    }
}

impl Arg<Partition> for ObjectRange {
    fn encode(self) -> Result<Passed> {
        codec::encode_ref(&self).map(Into::into)
    }
}

impl Arg<Partition> for &ObjectRange {
    fn encode(self) -> Result<Passed> {
        codec::encode_ref(self).map(Into::into)
    }
}

/// Types whose values are references to bytes, so that a [`Reader`] can read them.
pub trait Reference: Arg<Partition> {}

impl Reference for Partition {}
impl Reference for &Partition {}
impl Reference for ObjectRange {}
impl Reference for &ObjectRange {}
impl Reference for Future<Partition> {}
impl Reference for &Future<Partition> {}

impl<R: Reference> Arg<Reader> for R {
    fn encode(self) -> Result<Passed> {
        Arg::<Partition>::encode(self)
    }
}

/// What a task can take: any serde type, or a [`Reader`].
pub trait FromArg: Sized {
    #[doc(hidden)]
    fn decode(value: Value) -> Result<Self>;
}

impl<T: DeserializeOwned + 'static> FromArg for T {
    fn decode(value: Value) -> Result<Self> {
        codec::decode(value)
    }
}

impl FromArg for Reader {
    fn decode(value: Value) -> Result<Self> {
        Reader::open(value)
    }
}

/// The last parameter of a task that takes any number of further arguments, each passed on its own.
///
/// Unlike in a `Vec<T>`, which is one value, each of them may be a reference, and the task starts when all of those
/// exist. Callers pass anything that can be iterated over.
///
/// ```
/// #[fanfold::task]
/// fn sum(numbers: fanfold::Inputs<u64>) -> u64 {
///     numbers.iter().sum()
/// }
///
/// # fn main() -> fanfold::Result<()> {
/// let first = sum::submit([1, 2])?;
/// let second = sum::submit([&first, &first])?;
/// assert_eq!(second.get()?, 6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inputs<T>(pub Vec<T>);

impl<T> Deref for Inputs<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> IntoIterator for Inputs<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A value that was stored once, to be passed to many calls without being copied into each. Made by [`put`]; it stays
/// at least until the task that made it ends.
pub struct Shared<T> {
    id: PartitionId,
    of: PhantomData<fn() -> T>,
}

/// Stores a value as a partition.
///
/// # Errors
/// `guest` if the value cannot be serialised, `platform` where the executor has no room.
///
/// ```
/// #[fanfold::task]
/// fn score(model: Vec<u8>, row: u64) -> u64 {
///     model.len() as u64 + row
/// }
///
/// # fn main() -> fanfold::Result<()> {
/// let model = fanfold::put(&vec![0u8; 1 << 20])?;
/// let scores = (0..4).map(|row| score::submit(&model, row)).collect::<fanfold::Result<Vec<_>>>()?;
/// assert_eq!(scores[3].get()?, (1 << 20) + 3);
/// # Ok(())
/// # }
/// ```
pub fn put<T: Serialize + 'static>(value: &T) -> Result<Shared<T>> {
    let id = match codec::encode_ref(value)?.value {
        Value::Inline(payload) => host::put(&payload)?,
        Value::Partition(id) => id,
        reference => {
            let payload = Reader::open(reference)?.into_payload()?;
            host::put(&payload)?
        }
    };
    Ok(Shared { id, of: PhantomData })
}

impl<T> Shared<T> {
    /// The partition's id.
    pub fn id(&self) -> PartitionId {
        self.id
    }
}

impl<T: DeserializeOwned + 'static> Shared<T> {
    /// Reads the value.
    ///
    /// # Errors
    /// `invalid` if the bytes are no `T`, `lost` where data is gone for good.
    pub fn get(&self) -> Result<T> {
        codec::decode(Value::Partition(self.id))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { id: self.id, of: PhantomData }
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", Text(self.id))
    }
}

impl<T> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        refs::serialize(self.id, None, serializer)
    }
}

impl<'de, T> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { id: Text::deserialize(deserializer)?.0, of: PhantomData })
    }
}
