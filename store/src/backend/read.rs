//! Reading. A directory's files are read directly (see [`crate::directory`]); other stores through `object_store`.

use std::{
    fs::File,
    io,
    ops::Range,
    sync::{Arc, atomic::AtomicU64},
};

use bytes::Bytes;
use fanfold_protocol::Error;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use object_store::{GetOptions, GetRange, GetResult, ObjectStoreExt as _, path::Path};

use super::{Backend, meta_of};
use crate::{
    directory::{
        blocking,
        read::{self, Meta},
    },
    errors::{io_error, storage},
    memory::Gathered,
    requests::Counters,
    s3::answer::Answer,
};

/// Bytes of one read of a streamed object.
const STREAM_BYTES: u64 = 1 << 20;

/// What most reads count as.
const GET: fn(&Counters) -> &AtomicU64 = |counters| &counters.get;

/// An object's bytes in pieces.
pub(crate) type Pieces = BoxStream<'static, Result<Bytes, Error>>;

impl Backend {
    pub(crate) async fn head(&self, path: &Path) -> Result<Option<Meta>, Error> {
        if self.local().is_some() {
            return self.open_file(path, |counters| &counters.head, |_, meta| Ok(meta)).await;
        }
        absent(path, self.store().head(path).await.map(|meta| meta_of(&meta)))
    }

    /// The whole object.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>, Error> {
        if self.local().is_some() {
            let read =
                self.open_file(path, GET, |file, meta| read::read(&file, &meta, 0..meta.bytes)).await?;
            return Ok(read.inspect(|bytes| self.count_read(bytes.len() as u64)));
        }
        let got = async { self.store().get(path).await?.bytes().await };
        absent(path, got.await)
    }

    /// The bytes of `range` and what object they are of; fewer where it ends before the range does.
    pub(crate) async fn get_range(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> Result<Option<(Bytes, Meta)>, Error> {
        if self.local().is_some() {
            let part = move |file: File, meta: Meta| Ok((read::read(&file, &meta, cut(range, &meta))?, meta));
            let read = self.open_file(path, GET, part).await?;
            return Ok(read.inspect(|(bytes, _)| self.count_read(bytes.len() as u64)));
        }
        if range.is_empty() {
            return Ok(self.head(path).await?.map(|meta| (Bytes::new(), meta)));
        }
        self.collect(path, self.request(path, bounded(range)).await?).await
    }

    /// The last `length` bytes, or all there are.
    pub(crate) async fn get_tail(&self, path: &Path, length: u64) -> Result<Option<(Bytes, Meta)>, Error> {
        if self.local().is_some() {
            let tail = move |file: File, meta: Meta| {
                Ok((read::read(&file, &meta, meta.bytes.saturating_sub(length)..meta.bytes)?, meta))
            };
            let read = self.open_file(path, GET, tail).await?;
            return Ok(read.inspect(|(bytes, _)| self.count_read(bytes.len() as u64)));
        }
        self.collect(path, self.request(path, GetRange::Suffix(length)).await?).await
    }

    /// The bytes from `range.start`, in pieces. They are those of the object as it is now, whatever replaces it.
    pub(crate) async fn stream(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> Result<Option<(Meta, Pieces)>, Error> {
        if self.local().is_some() {
            let opened = self.open_file(path, GET, |file, meta| Ok((file, meta))).await?;
            return Ok(opened.map(|(file, meta)| {
                let range = cut(range, &meta);
                self.count_read(range.end - range.start);
                (meta.clone(), file_pieces(Arc::new((file, meta)), path.clone(), range))
            }));
        }
        if range.is_empty() {
            return Ok(self.head(path).await?.map(|meta| (meta, futures::stream::empty().boxed())));
        }
        Ok(match self.request(path, bounded(range)).await? {
            Found::None => None,
            Found::Past(meta) => Some((meta, futures::stream::empty().boxed())),
            Found::Some(got) => {
                let (meta, path) = (meta_of(&got.meta), path.clone());
                Some((meta, got.into_stream().map_err(move |e| storage("read", &path, &e)).boxed()))
            }
        })
    }

    async fn request(&self, path: &Path, range: GetRange) -> Result<Found, Error> {
        let start = match &range {
            GetRange::Bounded(range) => range.start,
            GetRange::Offset(offset) => *offset,
            GetRange::Suffix(_) => 0,
        };
        match self.store().get_opts(path, GetOptions { range: Some(range), ..GetOptions::default() }).await {
            Ok(got) => Ok(Found::Some(Box::new(got))),
            Err(e) if is_absence(&e) => Ok(Found::None),
            // Stores refuse a range that begins at or past the end, each with its own error; here it is empty.
            Err(e) => match self.head(path).await? {
                Some(meta) if start >= meta.bytes => Ok(Found::Past(meta)),
                Some(_) => Err(storage("read", path, &e)),
                None => Ok(Found::None),
            },
        }
    }

    async fn collect(&self, path: &Path, found: Found) -> Result<Option<(Bytes, Meta)>, Error> {
        match found {
            Found::None => Ok(None),
            Found::Past(meta) => Ok(Some((Bytes::new(), meta))),
            Found::Some(got) => {
                let meta = meta_of(&got.meta);
                Ok(Some((gathered(path, *got).await?, meta)))
            }
        }
    }

    fn count_read(&self, bytes: u64) {
        self.0.counters.count(|counters| &counters.bytes_in, bytes);
    }

    /// Opens a file of the directory, which counts as a request of `kind`, and does something with it; `None` where there
    /// is none.
    async fn open_file<T: Send + 'static>(
        &self,
        path: &Path,
        kind: fn(&Counters) -> &AtomicU64,
        then: impl FnOnce(File, Meta) -> io::Result<T> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        self.0.counters.count(kind, 1);
        let file = self.local().map(|directory| directory.file(path)).unwrap_or_default();
        let path = path.clone();
        blocking(move || {
            let opened = read::open(&file).and_then(|opened| {
                opened.map(|(file, metadata)| then(file, Meta::from(&metadata))).transpose()
            });
            opened.map_err(|e| io_error("read", path.as_ref(), &e))
        })
        .await
    }
}

/// The bytes of an answer, in memory that is used again.
async fn gathered(path: &Path, got: GetResult) -> Result<Bytes, Error> {
    let failed = |e: io::Error| io_error("read", path, &e);
    let expected = usize::try_from(got.range.end - got.range.start).unwrap_or(usize::MAX);
    let mut bytes = Gathered::of(expected).map_err(failed)?;
    let mut pieces = got.into_stream();
    while let Some(piece) = pieces.try_next().await.map_err(|e| storage("read", path, &e))? {
        if !bytes.append(&piece) {
            return Err(failed(io::Error::other("the store answered with more bytes than it said")));
        }
    }
    match bytes.left() {
        0 => Ok(bytes.finish()),
        left => Err(failed(io::Error::other(format!("the store's answer ended {left} bytes early")))),
    }
}

enum Found {
    None,
    /// It is there, and shorter than the range's start.
    Past(Meta),
    Some(Box<GetResult>),
}

/// A range may be a user's wish; memory is reserved only for what is there.
fn cut(range: Range<u64>, meta: &Meta) -> Range<u64> {
    let end = range.end.min(meta.bytes);
    range.start.min(end)..end
}

fn bounded(range: Range<u64>) -> GetRange {
    if range.end == u64::MAX { GetRange::Offset(range.start) } else { GetRange::Bounded(range) }
}

fn file_pieces(file: Arc<(File, Meta)>, path: Path, range: Range<u64>) -> Pieces {
    futures::stream::try_unfold(range, move |left| {
        let (file, path) = (file.clone(), path.clone());
        async move {
            if left.is_empty() {
                return Ok(None);
            }
            let next = left.start..left.end.min(left.start + STREAM_BYTES);
            let end = next.end;
            let read =
                move || read::read(&file.0, &file.1, next).map_err(|e| io_error("read", path.as_ref(), &e));
            let piece = blocking(read).await?;
            // Files are replaced whole, never cut: an empty piece is somebody else's doing and ends the stream.
            Ok((!piece.is_empty()).then_some((piece, end..left.end)))
        }
    })
    .boxed()
}

fn absent<T>(path: &Path, got: object_store::Result<T>) -> Result<Option<T>, Error> {
    match got {
        Ok(value) => Ok(Some(value)),
        Err(e) if is_absence(&e) => Ok(None),
        Err(e) => Err(storage("read", path, &e)),
    }
}

/// Whether an error says that there is no such object. Where the bucket itself is gone, that is not known.
fn is_absence(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
        && !Answer::of(error).is_some_and(|answer| answer.has_no_bucket())
}
