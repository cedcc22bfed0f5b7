//! Writing an object from a stream of pieces: in one request where it is short, else in parts, of which two are in
//! memory at a time.
//!
//! Promises: until it returns, readers see what was there before; if the stream fails or the future is dropped, nothing
//! changes. Does not retry: the object store below does.

use bytes::{Bytes, BytesMut};
use fanfold_protocol::Error;
use futures::{Stream, StreamExt as _};
use object_store::{MultipartUpload, path::Path};

use crate::{backend::Backend, errors::storage};

/// Bytes of one part of an upload, and of an object that is written in one request. S3 wants at least 5 MiB; two are
/// in memory at a time.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// Pieces of a body shorter than this are copied together: the copy is cheaper than a write of its own.
const TINY_BYTES: usize = 4 << 10;

/// Writes an object, durably; its etag and its bytes.
///
/// # Errors
/// The stream's own error; `platform`.
pub(crate) async fn put(
    backend: &Backend,
    path: &Path,
    mut body: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
) -> Result<(Option<String>, u64), Error> {
    let mut total = 0;
    let first = Part::gather(&mut body, &mut total).await?;
    if first.last {
        return Ok((backend.put(path, first.pieces.into_iter().collect()).await?, total));
    }
    let mut upload = backend.multipart(path).await?;
    match send_parts(&mut *upload, first, &mut body, &mut total, path).await {
        Ok(etag) => Ok((etag, total)),
        Err(e) => {
            // What remains where this fails too is swept up, by the next open or the bucket's own rule.
            let _ = upload.abort().await;
            Err(e)
        }
    }
}

/// Some of a body: pieces as they came, not copied unless they are tiny.
#[derive(Default)]
struct Part {
    pieces: Vec<Bytes>,
    /// Tiny pieces being joined: a client that sends a byte at a time must not cost a piece for each.
    tiny: BytesMut,
    bytes: usize,
    /// Whether the body ends with it.
    last: bool,
}

impl Part {
    /// Takes at least [`PART_BYTES`] from a body, or what is left of it. `total` counts the whole body.
    async fn gather(
        body: &mut (impl Stream<Item = Result<Bytes, Error>> + Unpin),
        total: &mut u64,
    ) -> Result<Self, Error> {
        let mut part = Self::default();
        while part.bytes < PART_BYTES {
            let Some(piece) = body.next().await.transpose()? else {
                part.last = true;
                break;
            };
            *total += piece.len() as u64;
            part.push(piece);
        }
        part.join();
        Ok(part)
    }

    /// What follows the last part.
    fn end() -> Self {
        Self { last: true, ..Self::default() }
    }

    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() < TINY_BYTES {
            self.tiny.extend_from_slice(&piece);
            return;
        }
        self.join();
        self.pieces.push(piece);
    }

    fn join(&mut self) {
        if !self.tiny.is_empty() {
            self.pieces.push(self.tiny.split().freeze());
        }
    }
}

/// Sends a body's parts, each while the next one is gathered; the new object's etag.
async fn send_parts(
    upload: &mut dyn MultipartUpload,
    first: Part,
    body: &mut (impl Stream<Item = Result<Bytes, Error>> + Unpin),
    total: &mut u64,
    path: &Path,
) -> Result<Option<String>, Error> {
    let failed = |e| storage("write", path, &e);
    let mut part = first;
    // A body that ends with a whole part has nothing left for another: stores refuse empty ones.
    while !part.pieces.is_empty() {
        let sending = upload.put_part(part.pieces.into_iter().collect());
        let sending = async { sending.await.map_err(failed) };
        let next = async { if part.last { Ok(Part::end()) } else { Part::gather(body, total).await } };
        ((), part) = futures::try_join!(sending, next)?;
    }
    Ok(upload.complete().await.map_err(failed)?.e_tag)
}
