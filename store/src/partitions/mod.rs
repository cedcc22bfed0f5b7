//! Partitions' data in the object store: one object of ordered blocks and, at its end, a footer that says where they
//! are and what their checksums are.
//!
//! Reading one is the footer once (one request for up to some 1,000 blocks, two for more) and then byte ranges. Nothing
//! is handed out that was not compared with a checksum: reads are widened to whole *units*, at most [`UNIT_BYTES`] long.
//! The index and its codec are pure; executors use them for the partitions they hold in memory.

mod crc;
mod footer;
mod index;

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use fanfold_protocol::{Code, Error, Kind, value::StoredKey};
use futures::{Stream, StreamExt as _};

pub use crc::combine;
pub use footer::{Footer, TRAILER_BYTES, encode, parse};
pub use index::{Block, Builder, Index, UNIT_BYTES};

use crate::{backend::Backend, errors::corrupt, paths, upload};

/// Bytes read from an object's end in the hope that they hold the whole footer.
const TAIL_BYTES: u64 = 16 << 10;

/// Partitions' data in a store.
#[derive(Debug)]
pub struct Partitions {
    backend: Backend,
}

/// A partition's data as it is held in memory: pieces that are written one after the other, without being joined.
#[derive(Clone, Debug, Default)]
pub struct Data(Vec<Bytes>);

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

impl From<Vec<Bytes>> for Data {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self(pieces)
    }
}

impl Partitions {
    pub(crate) fn new(backend: Backend) -> Self {
        Self { backend }
    }

    /// Writes a partition, durably. The key belongs to one attempt, so writing it again writes the same bytes.
    ///
    /// # Errors
    /// `platform`; `platform` / `internal` where the index is of other data.
    pub async fn put(&self, key: StoredKey, data: impl Into<Data>, index: &Index) -> Result<(), Error> {
        let Data(mut pieces) = data.into();
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if bytes != index.bytes() {
            let message = format!("a partition of {bytes} bytes was given an index of {}", index.bytes());
            return Err(Error::internal(message));
        }
        pieces.push(encode(index));
        self.backend.put(&paths::partition(key), pieces.into_iter().collect()).await.map(|_| ())
    }

    /// [`Partitions::put`] of data that is not in memory: `data` is all of it, in pieces that were compared with the
    /// index. Holds two parts of an upload at a time.
    ///
    /// # Errors
    /// That of `data`; as [`Partitions::put`].
    pub async fn put_stream(
        &self,
        key: StoredKey,
        data: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
        index: &Index,
    ) -> Result<(), Error> {
        let footer = encode(index);
        let bytes = index.bytes() + footer.len() as u64;
        let body = data.chain(futures::stream::once(std::future::ready(Ok(footer))));
        let (_, written) = upload::put(&self.backend, &paths::partition(key), body).await?;
        if written == bytes {
            return Ok(());
        }
        // Nobody can read it as a partition, and the key is nobody else's.
        self.delete(&[key]).await?;
        let message = format!("a partition of {bytes} bytes with its footer was written with {written}");
        Err(Error::internal(message))
    }

    /// Reads a partition's index.
    ///
    /// # Errors
    /// `not-found` / `partition`; `lost` / `corrupt`; `platform`.
    pub async fn index(&self, key: StoredKey) -> Result<Index, Error> {
        let path = paths::partition(key);
        let read = |length| async move {
            let found = self.backend.get_tail(&paths::partition(key), length).await?;
            found.ok_or_else(|| no_partition(key))
        };
        let (tail, meta) = read(TAIL_BYTES).await?;
        let footer = parse(&tail, meta.bytes).map_err(|what| corrupt(&path, what))?;
        let length = match footer {
            Footer::Complete(index) => return Ok(index),
            Footer::Longer(length) => length,
        };
        let (tail, meta) = read(length).await?;
        match parse(&tail, meta.bytes).map_err(|what| corrupt(&path, what))? {
            Footer::Complete(index) => Ok(index),
            Footer::Longer(_) => Err(corrupt(&path, "its footer's length changed")),
        }
    }

    /// Reads a byte range and verifies it. The range is cut at the end of the data.
    ///
    /// # Errors
    /// `not-found` / `partition`; `lost` / `corrupt`, naming the object and the damaged block; `platform`.
    pub async fn read(&self, key: StoredKey, index: &Index, range: Range<u64>) -> Result<Bytes, Error> {
        let end = range.end.min(index.bytes());
        let range = range.start.min(end)..end;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let path = paths::partition(key);
        let whole = index.units_around(range.clone());
        let (bytes, _) =
            self.backend.get_range(&path, whole.clone()).await?.ok_or_else(|| no_partition(key))?;
        index.verify(whole.start, &bytes).map_err(|what| corrupt(&path, what))?;
        if bytes.len() as u64 != whole.end - whole.start {
            return Err(corrupt(&path, "it ends within its data"));
        }
        let from = (range.start - whole.start) as usize;
        Ok(bytes.slice(from..from + (range.end - range.start) as usize))
    }

    /// Copies a partition's data to another key, durably, without reading it where the store can do that.
    ///
    /// # Errors
    /// `not-found` / `partition`; `platform`.
    pub async fn copy(&self, from: StoredKey, to: StoredKey) -> Result<(), Error> {
        match self.backend.copy(&paths::partition(from), &paths::partition(to)).await? {
            true => Ok(()),
            false => Err(no_partition(from)),
        }
    }

    /// Removes partitions; those that are not there are no error.
    ///
    /// # Errors
    /// `platform`; the others were removed all the same.
    pub async fn delete(&self, keys: &[StoredKey]) -> Result<(), Error> {
        self.backend.delete_all(keys.iter().copied().map(paths::partition).collect()).await
    }
}

/// A byte range of data that is in memory in pieces. Without a copy where one piece holds it.
pub fn slice(pieces: &[Bytes], range: Range<u64>) -> Bytes {
    let (mut at, mut joined) = (0, BytesMut::new());
    for piece in pieces {
        let end = at + piece.len() as u64;
        if range.start >= at && range.end <= end {
            return piece.slice((range.start - at) as usize..(range.end - at) as usize);
        }
        let from = range.start.clamp(at, end) - at;
        let to = range.end.clamp(at, end) - at;
        joined.extend_from_slice(&piece[from as usize..to as usize]);
        at = end;
    }
    joined.freeze()
}

fn no_partition(key: StoredKey) -> Error {
    Error::new(
        Kind::NotFound,
        Code::Partition,
        format!("the store has no data of partition `{}`", key.partition),
    )
}
