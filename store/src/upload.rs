//! Writing an object piece by piece: in one request where it is short, else in parts, of which a few are on their way
//! while the next is gathered.
//!
//! Promises: until it is finished, readers see what was there before; if it fails or is dropped, nothing changes, and
//! what was sent is removed. Pieces are not copied unless they are tiny. Does not retry: the object store below does.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::Error;
use futures::{Stream, StreamExt as _};
use object_store::{MultipartUpload, PutPayload, path::Path};
use tokio::{runtime::Handle, task::JoinSet};

use crate::{backend::Backend, errors::storage, memory::HUGE_BYTES};

/// Bytes of the first part of a file: a piece of an executor's memory, so that the disk begins early. Each has twice as many as the
/// one before, up to the second number: a disk is at its fastest with long ones.
const PART_BYTES: usize = HUGE_BYTES;
const PART_BYTES_MAX: usize = 8 << 20;
/// Bytes of each part where it is a request to a server, which has its price. S3 wants at least 5 MiB.
const REMOTE_PART_BYTES: usize = 16 << 20;
/// Parts on their way at a time, beside the one that is gathered.
const PARTS_MAX: usize = 1;
/// Pieces of a body shorter than this are copied together: the copy is cheaper than a write of its own.
const TINY_BYTES: usize = 4 << 10;

/// Writes an object from a stream, durably; its etag and its bytes.
///
/// # Errors
/// The stream's own error; `platform`.
pub(crate) async fn put(
    backend: &Backend,
    path: &Path,
    mut body: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
) -> Result<(Option<String>, u64), Error> {
    let mut upload = Upload::new(backend.clone(), path.clone());
    while let Some(piece) = body.next().await {
        let written = match piece {
            Ok(piece) => upload.write(piece).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            upload.abort().await;
            return Err(error);
        }
    }
    upload.finish().await
}

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Upload {
    backend: Backend,
    path: Path,
    /// What is gathered: at most a part and a piece.
    part: Part,
    /// Bytes of that part, once it is full.
    full: usize,
    /// Once there is more than one part.
    sending: Option<Sending>,
    bytes: u64,
    /// Why it cannot be finished any more.
    failed: Option<Error>,
}

impl Upload {
    pub(crate) fn new(backend: Backend, path: Path) -> Self {
        let full = if backend.is_shared() { REMOTE_PART_BYTES } else { PART_BYTES };
        Self { backend, path, part: Part::default(), full, sending: None, bytes: 0, failed: None }
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a piece. Waits while as many parts are on their way as may be.
    ///
    /// # Errors
    /// `platform`, also of an earlier part. The upload is over then.
    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if piece.is_empty() {
            return Ok(());
        }
        self.bytes += piece.len() as u64;
        if !self.backend.is_shared() {
            self.part.push(piece);
            return self.send_full().await;
        }
        // A request goes when more follows: what is the whole object goes in one.
        self.send_full().await?;
        self.part.push(piece);
        Ok(())
    }

    /// Sends the part if it is full.
    async fn send_full(&mut self) -> Result<(), Error> {
        if self.part.bytes < self.full {
            return Ok(());
        }
        if !self.backend.is_shared() {
            self.full = (2 * self.full).min(PART_BYTES_MAX);
        }
        match self.send().await {
            Err(error) => Err(self.fail(error)),
            Ok(()) => Ok(()),
        }
    }

    /// It cannot be finished any more: some of it is missing.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        error
    }

    /// Sends what was gathered as a part.
    async fn send(&mut self) -> Result<(), Error> {
        let sending = match &mut self.sending {
            Some(sending) => sending,
            None => self.sending.insert(Sending::begin(&self.backend, &self.path).await?),
        };
        sending.send(std::mem::take(&mut self.part).payload()).await
    }

    /// Makes the object visible, whole; its etag and its bytes.
    ///
    /// # Errors
    /// `platform`; nothing changed then.
    pub(crate) async fn finish(mut self) -> Result<(Option<String>, u64), Error> {
        let finished = self.complete().await;
        if finished.is_err() {
            self.abort().await;
        }
        finished
    }

    async fn complete(&mut self) -> Result<(Option<String>, u64), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.sending.is_none() {
            let whole = std::mem::take(&mut self.part).payload();
            return Ok((self.backend.put(&self.path, whole).await?, self.bytes));
        }
        if self.part.bytes > 0 {
            self.send().await?;
        }
        let Some(sending) = &mut self.sending else {
            return Err(Error::internal("an upload that never began"));
        };
        Ok((sending.complete().await?, self.bytes))
    }

    /// Gives it up and waits until what was sent is removed.
    pub(crate) async fn abort(mut self) {
        if let Some(sending) = self.sending.take() {
            sending.abort().await;
        }
    }
}

/// Some of a body: pieces as they came.
#[derive(Default, Debug)]
struct Part {
    pieces: Vec<Bytes>,
    /// Tiny pieces being joined: a client that sends a byte at a time must not cost a piece for each.
    tiny: BytesMut,
    bytes: usize,
}

impl Part {
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

    fn payload(mut self) -> PutPayload {
        self.join();
        self.pieces.into_iter().collect()
    }
}

/// The parts of an object on their way.
#[derive(Debug)]
struct Sending {
    /// `None` once it is completed or aborted. The lock is for the compiler: only its owner ever looks inside.
    upload: Option<Mutex<Box<dyn MultipartUpload>>>,
    parts: JoinSet<object_store::Result<()>>,
    path: Path,
    remote: bool,
}

impl Sending {
    async fn begin(backend: &Backend, path: &Path) -> Result<Self, Error> {
        let upload = backend.multipart(path).await?;
        let (path, remote) = (path.clone(), backend.is_shared());
        Ok(Self { upload: Some(Mutex::new(upload)), parts: JoinSet::new(), path, remote })
    }

    fn upload(&mut self) -> Result<&mut Box<dyn MultipartUpload>, Error> {
        let upload = self.upload.as_mut().ok_or_else(|| Error::internal("an upload that has ended"))?;
        Ok(upload.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    async fn send(&mut self, part: PutPayload) -> Result<(), Error> {
        while self.parts.len() >= PARTS_MAX {
            self.arrived().await?;
        }
        let sending = self.upload()?.put_part(part);
        self.parts.spawn(sending);
        Ok(())
    }

    /// Waits for one of the parts.
    async fn arrived(&mut self) -> Result<(), Error> {
        match self.parts.join_next().await {
            Some(Ok(sent)) => sent.map_err(|e| storage("write", &self.path, &e)),
            Some(Err(_)) => Err(Error::internal("an upload was stopped: the process is shutting down")),
            None => Ok(()),
        }
    }

    async fn complete(&mut self) -> Result<Option<String>, Error> {
        while !self.parts.is_empty() {
            self.arrived().await?;
        }
        let completed = self.upload()?.complete().await;
        let etag = completed.map_err(|e| storage("write", &self.path, &e))?.e_tag;
        self.upload = None;
        Ok(etag)
    }

    async fn abort(mut self) {
        // A part that arrived after the end of its upload would stay.
        self.parts.shutdown().await;
        if let Some(upload) = self.upload.take() {
            give_up(upload).await;
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // A file that was not completed goes by itself; a server has to be told. Nobody waits for that, and where the
        // process ends first, the bucket's own rule removes it.
        if self.remote
            && let Some(upload) = self.upload.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let mut parts = std::mem::take(&mut self.parts);
            drop(runtime.spawn(async move {
                parts.shutdown().await;
                give_up(upload).await;
            }));
        }
    }
}

/// Removes what was sent. What remains where this fails too is swept up, by the next open or the bucket's own rule.
async fn give_up(upload: Mutex<Box<dyn MultipartUpload>>) {
    let _ = upload.into_inner().unwrap_or_else(PoisonError::into_inner).abort().await;
}
