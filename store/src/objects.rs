//! Users' objects: `PUT`, `GET`, `HEAD`, `DELETE` and listing of `/v1/objects`, and the guests' reads of them.
//!
//! An object is replaced whole or not at all: readers see the old or the new one, and a failed upload leaves nothing.
//! Keys are plain strings in which `/` has no meaning but for people: `a` and `a/b` can both exist.

use std::{
    ops::Range,
    pin::pin,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind, limit,
    rest::{ObjectView, Page},
    value::ObjectRange,
};
use futures::{Stream, StreamExt as _};

use crate::{
    backend::{Backend, bare},
    directory::read::Meta,
    paths,
    upload::{self, Upload},
};

/// An object's bytes in pieces of at most 1 MiB (other stores: as they come).
pub type ObjectStream = futures::stream::BoxStream<'static, Result<Bytes, Error>>;

/// Objects in one page of a listing, whatever was asked for.
pub const LIST_LIMIT_MAX: usize = 10_000;

/// The objects of a store.
#[derive(Debug)]
pub struct Objects {
    backend: Backend,
}

impl Objects {
    pub(crate) fn new(backend: Backend) -> Self {
        Self { backend }
    }

    /// Writes an object from a stream, durably. Until it returns, readers see what was there before; if the stream
    /// fails or this future is dropped, nothing changes.
    ///
    /// # Errors
    /// `invalid` for a key that is no key or a body over [`limit::OBJECT_BYTES_MAX`]; the stream's own error; `platform`.
    pub async fn put(
        &self,
        key: &str,
        body: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
    ) -> Result<ObjectView, Error> {
        let path = paths::object(self.backend.layout(), key)?;
        let counted = body.scan(0, |total, piece| {
            futures::future::ready(Some(piece.and_then(|piece| within(total, piece))))
        });
        let written = upload::put(&self.backend, &path, pin!(counted)).await?;
        Ok(written_now(key.to_owned(), written))
    }

    /// Begins an object that is written piece by piece. Nothing is there before [`ObjectWriter::finish`].
    ///
    /// # Errors
    /// `invalid` for a key that is no key.
    pub fn create(&self, key: &str) -> Result<ObjectWriter, Error> {
        let path = paths::object(self.backend.layout(), key)?;
        Ok(ObjectWriter { key: key.to_owned(), upload: Upload::new(self.backend.clone(), path) })
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// `not-found` / `object`, `invalid`, `platform`.
    pub async fn head(&self, key: &str) -> Result<ObjectView, Error> {
        let path = paths::object(self.backend.layout(), key)?;
        let meta = self.backend.head(&path).await?.ok_or_else(|| no_object(key))?;
        Ok(view(key.to_owned(), meta))
    }

    /// A byte range of an object as a stream. A range that ends past the object is cut there.
    ///
    /// # Errors
    /// `not-found` / `object`; `conflict` / `precondition` where the object has another etag; `invalid`, `platform`.
    pub async fn get(&self, range: &ObjectRange) -> Result<(ObjectView, ObjectStream), Error> {
        let key = &range.key;
        let path = paths::object(self.backend.layout(), key)?;
        let end = range.length.map_or(u64::MAX, |length| range.offset.saturating_add(length));
        let found = self.backend.stream(&path, range.offset..end).await?;
        let (meta, pieces) = found.ok_or_else(|| no_object(key))?;
        check_etag(key, range.etag.as_deref(), &meta)?;
        Ok((view(key.clone(), meta), pieces))
    }

    /// The bytes of a range in one request; fewer where the object ends before it. For guests, whose ranges are short.
    ///
    /// # Errors
    /// As [`Objects::get`].
    pub async fn read(&self, key: &str, etag: Option<&str>, range: Range<u64>) -> Result<Bytes, Error> {
        let path = paths::object(self.backend.layout(), key)?;
        let (bytes, meta) = self.backend.get_range(&path, range).await?.ok_or_else(|| no_object(key))?;
        check_etag(key, etag, &meta)?;
        Ok(bytes)
    }

    /// Objects whose keys begin with `prefix` (any string) and are greater than `after`, in byte order, at most `limit`
    /// and [`LIST_LIMIT_MAX`] of them. `next` is the `after` of the next page.
    ///
    /// # Errors
    /// `platform`.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<ObjectView>, Error> {
        let limit = limit.clamp(1, LIST_LIMIT_MAX);
        // One more than asked for tells whether there is a next page.
        let mut found = self.backend.keys(prefix, after.unwrap_or_default(), limit + 1).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|(key, _)| key.clone());
        Ok(Page { items: found.into_iter().map(|(key, meta)| view(key, meta)).collect(), next })
    }

    /// Removes an object, durably; what it was.
    ///
    /// # Errors
    /// `not-found` / `object`, `invalid`, `platform`.
    pub async fn delete(&self, key: &str) -> Result<ObjectView, Error> {
        let path = paths::object(self.backend.layout(), key)?;
        let meta = self.backend.head(&path).await?.ok_or_else(|| no_object(key))?;
        self.backend.delete(&path).await?;
        self.backend.sync_entry(&path).await?;
        Ok(view(key.to_owned(), meta))
    }
}

/// An object that is being written: replaced whole at [`ObjectWriter::finish`], or not at all. Dropped, it leaves nothing.
///
/// Holds a part that is gathered and one that is on its way: up to 8 MiB each, 16 where the store is a bucket.
#[derive(Debug)]
pub struct ObjectWriter {
    key: String,
    upload: Upload,
}

impl ObjectWriter {
    /// Appends a piece, which is not copied unless it is tiny. Waits while as many bytes are on their way as may be.
    ///
    /// # Errors
    /// `invalid` for more than [`limit::OBJECT_BYTES_MAX`] in all; `platform`. After either it cannot be finished.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        match within(&mut self.upload.bytes(), piece) {
            Ok(piece) => self.upload.write(piece).await,
            Err(error) => Err(self.upload.fail(error)),
        }
    }

    /// Makes the object visible, durably.
    ///
    /// # Errors
    /// `platform`; what was there before is still there.
    pub async fn finish(self) -> Result<ObjectView, Error> {
        Ok(written_now(self.key, self.upload.finish().await?))
    }
}

/// An object as it was just written.
fn written_now(key: String, (etag, bytes): (Option<String>, u64)) -> ObjectView {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let etag = bare(etag.as_deref().unwrap_or_default()).to_owned();
    ObjectView { key, bytes, etag, modified_at_ms: now.as_millis() as u64 }
}

/// Caps a body as its pieces come.
fn within(total: &mut u64, piece: Bytes) -> Result<Bytes, Error> {
    *total += piece.len() as u64;
    if *total <= limit::OBJECT_BYTES_MAX {
        return Ok(piece);
    }
    let max = limit::OBJECT_BYTES_MAX >> 30;
    let message = format!("an object has at most {max} GiB; put larger data in as several objects");
    Err(Error::new(Kind::Invalid, Code::BodyTooLarge, message))
}

fn view(key: String, meta: Meta) -> ObjectView {
    ObjectView { key, bytes: meta.bytes, etag: meta.etag, modified_at_ms: meta.modified_at_ms }
}

fn check_etag(key: &str, wanted: Option<&str>, meta: &Meta) -> Result<(), Error> {
    match wanted {
        Some(etag) if bare(etag) != meta.etag => {
            let message = format!("the object `{key}` is another one by now: its etag is `{}`", meta.etag);
            Err(Error::new(Kind::Conflict, Code::Precondition, message))
        }
        _ => Ok(()),
    }
}

fn no_object(key: &str) -> Error {
    Error::not_found(Code::Object, format!("there is no object `{key}`"))
}
