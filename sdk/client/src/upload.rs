//! What a request can carry to the server: bytes, a file, or a stream, with progress told while it is sent.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream::BoxStream};
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;

use crate::Error;

/// A file at most this long is read whole before it is sent: one trip to the blocking pool instead of several.
const WHOLE_FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes handed to the connection at a time: large enough to be cheap, small enough for smooth progress.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes to send: from memory, a file or a stream.
///
/// Memory and files can be sent again when a request is repeated; a stream is sent once.
#[derive(Clone)]
pub struct Upload {
    source: Source,
    progress: Option<Progress>,
}

type Progress = Arc<dyn Fn(u64) + Send + Sync>;
type Chunks = BoxStream<'static, io::Result<Bytes>>;

#[derive(Clone)]
enum Source {
    Bytes(Bytes),
    File(PathBuf),
    Once { stream: Arc<Mutex<Option<Chunks>>>, length: Option<u64> },
}

/// A file failed while it was being sent. Found again among the sources of the HTTP stack's error.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub(crate) struct ReadFailed {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) error: io::Error,
}

impl Upload {
    /// The content of a file, read when it is sent.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { source: Source::File(path.into()), progress: None }
    }

    /// Chunks as they come, `length` bytes in all if that is known. Sent once: a request with such a body is not
    /// repeated for you.
    pub fn stream(
        stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        length: Option<u64>,
    ) -> Self {
        let stream = Arc::new(Mutex::new(Some(stream.boxed())));
        Self { source: Source::Once { stream, length }, progress: None }
    }

    /// Calls `progress` with the bytes handed to the connection so far; again from 0 when the request is repeated.
    pub fn on_progress(mut self, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Whether it can be sent more than once.
    pub(crate) fn repeats(&self) -> bool {
        !matches!(self.source, Source::Once { .. })
    }

    /// A body for one attempt, and its length where it is known but the body does not tell.
    pub(crate) async fn body(&self) -> Result<(reqwest::Body, Option<u64>), Error> {
        match &self.source {
            Source::Bytes(bytes) => Ok(self.bytes_body(bytes.clone())),
            Source::File(path) => {
                self.file_body(path).await.map_err(|source| Error::File { path: path.clone(), source })
            }
            Source::Once { stream, length } => {
                let taken = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
                let stream =
                    taken.ok_or_else(|| Error::Request("this stream has been sent already".into()))?;
                Ok((self.stream_body(stream), *length))
            }
        }
    }

    async fn file_body(&self, path: &Path) -> io::Result<(reqwest::Body, Option<u64>)> {
        let mut file = tokio::fs::File::open(path).await?;
        let length = file.metadata().await?.len();
        if length <= WHOLE_FILE_BYTES_MAX {
            let mut bytes = Vec::with_capacity(length as usize);
            file.read_to_end(&mut bytes).await?;
            return Ok(self.bytes_body(bytes.into()));
        }
        file.set_max_buf_size(CHUNK_BYTES);
        let path = path.to_owned();
        // A file that grows meanwhile is sent as long as it was; the announced length is binding.
        let chunks = ReaderStream::with_capacity(file.take(length), CHUNK_BYTES)
            .map_err(move |error| io::Error::other(ReadFailed { path: path.clone(), error }));
        Ok((self.stream_body(chunks.boxed()), Some(length)))
    }

    fn bytes_body(&self, bytes: Bytes) -> (reqwest::Body, Option<u64>) {
        if self.progress.is_none() {
            return (bytes.into(), None);
        }
        let length = bytes.len() as u64;
        let chunks = futures::stream::unfold(bytes, |mut rest| async move {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            (!chunk.is_empty()).then_some((Ok(chunk), rest))
        });
        (self.stream_body(chunks.boxed()), Some(length))
    }

    fn stream_body(&self, stream: Chunks) -> reqwest::Body {
        let Some(progress) = self.progress.clone() else { return reqwest::Body::wrap_stream(stream) };
        progress(0);
        let mut sent = 0;
        reqwest::Body::wrap_stream(stream.inspect_ok(move |chunk| {
            sent += chunk.len() as u64;
            progress(sent);
        }))
    }
}

impl<T: Into<Bytes>> From<T> for Upload {
    fn from(bytes: T) -> Self {
        Self { source: Source::Bytes(bytes.into()), progress: None }
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Bytes(bytes) => write!(f, "Upload({} bytes)", bytes.len()),
            Source::File(path) => write!(f, "Upload({})", path.display()),
            Source::Once { length, .. } => write!(f, "Upload(stream of {length:?} bytes)"),
        }
    }
}
