//! A program's standard streams: its input is the request's body, its output the response's.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::limit;
use futures::task::noop_waker_ref;
use http_body::{Body as _, Frame};
use tokio::io::{AsyncRead, AsyncWrite};
use wasmtime_wasi::{
    cli::{IsTerminal, StdinStream, StdoutStream},
    p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult},
};
use wasmtime_wasi_http::WasiBody;

use super::output_too_large;

/// Output that waits for its reader. A program that ends within it is answered as a whole, exit status and all.
pub(super) const HELD_BYTES_MAX: usize = limit::INLINE_BYTES_MAX;

/// Standard input. Handles share one position, as WASI asks.
#[derive(Clone)]
pub(super) struct Stdin(Arc<Mutex<Source>>);

struct Source {
    body: WasiBody,
    /// What was received and not read yet.
    rest: Bytes,
    failure: Option<wasmtime_wasi_http::Error>,
    ended: bool,
}

impl Stdin {
    /// Reads `body`.
    pub(super) fn new(body: WasiBody) -> Self {
        Self(Arc::new(Mutex::new(Source { body, rest: Bytes::new(), failure: None, ended: false })))
    }
}

impl Source {
    /// Ready once there is something to say.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.rest.is_empty() && self.failure.is_none() && !self.ended {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.ended = true,
                Poll::Ready(Some(Err(error))) => self.failure = Some(error),
                // Trailers mean nothing to a program.
                Poll::Ready(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
            }
        }
        Poll::Ready(())
    }

    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut cx = Context::from_waker(noop_waker_ref());
        if self.fill(&mut cx).is_pending() {
            return Ok(Bytes::new());
        }
        if let Some(error) = self.failure.take() {
            self.ended = true;
            return Err(StreamError::LastOperationFailed(error.into()));
        }
        if self.rest.is_empty() {
            return Err(StreamError::Closed);
        }
        let size = size.min(self.rest.len());
        Ok(self.rest.split_to(size))
    }
}

#[async_trait::async_trait]
impl Pollable for Stdin {
    async fn ready(&mut self) {
        poll_fn(|cx| lock(&self.0).fill(cx)).await;
    }
}

impl InputStream for Stdin {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        lock(&self.0).read(size)
    }
}

impl IsTerminal for Stdin {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Stdin {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        // Asked for by WASI 0.3 only, which is not linked.
        Box::new(tokio::io::empty())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }
}

/// Standard output: the program's end and its reader's.
#[derive(Clone)]
pub(super) struct Stdout(Arc<Mutex<Pipe>>);

struct Pipe {
    held: BytesMut,
    /// Bytes that may still be written.
    left: u64,
    max: u64,
    ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Stdout {
    /// At most `max` bytes in all.
    pub(super) fn new(max: u64) -> Self {
        let pipe = Pipe { held: BytesMut::new(), left: max, max, ended: false, reader: None, writer: None };
        Self(Arc::new(Mutex::new(pipe)))
    }

    /// Whether the program has to wait for a reader.
    pub(super) fn full(&self) -> bool {
        lock(&self.0).held.len() >= HELD_BYTES_MAX
    }

    /// Everything that was written and not read.
    pub(super) fn take(&self) -> Bytes {
        lock(&self.0).held.split().freeze()
    }

    /// Marks the end of the output when dropped.
    pub(super) fn end_on_drop(&self) -> EndOnDrop {
        EndOnDrop(self.clone())
    }

    /// The reader's end: the next bytes, or `None` after the last.
    pub(super) fn poll_read(&self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let mut pipe = lock(&self.0);
        if !pipe.held.is_empty() {
            let bytes = pipe.held.split().freeze();
            if let Some(writer) = pipe.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Frame::data(bytes)));
        }
        if pipe.ended {
            return Poll::Ready(None);
        }
        pipe.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// See [`Stdout::end_on_drop`].
pub(super) struct EndOnDrop(Stdout);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let mut pipe = lock(&self.0.0);
        pipe.ended = true;
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
    }
}

#[async_trait::async_trait]
impl Pollable for Stdout {
    async fn ready(&mut self) {
        poll_fn(|cx| {
            let mut pipe = lock(&self.0);
            if pipe.held.len() < HELD_BYTES_MAX {
                return Poll::Ready(());
            }
            pipe.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl OutputStream for Stdout {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut pipe = lock(&self.0);
        let Some(left) = pipe.left.checked_sub(bytes.len() as u64) else {
            return Err(StreamError::Trap(output_too_large(pipe.max).into()));
        };
        pipe.left = left;
        pipe.held.extend_from_slice(&bytes);
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(HELD_BYTES_MAX.saturating_sub(lock(&self.0).held.len()))
    }
}

impl IsTerminal for Stdout {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdout {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

/// Nothing panics while one is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
