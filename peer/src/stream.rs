//! A connection between two processes: plain, or with TLS where certificates are configured.
//!
//! Whether there is TLS is decided by [`Security`] alone, for links, partition reads and direct calls alike.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fanfold_protocol::{Code, Error, Kind};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsStream;

use crate::{connect, tls::Tls};

/// Time for the dialler's side of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How this process talks to others; plain unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct Security(Option<Arc<Tls>>);

impl From<Tls> for Security {
    fn from(tls: Tls) -> Self {
        Self(Some(Arc::new(tls)))
    }
}

impl Security {
    /// Whether there is none.
    pub fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    /// Connects to `host:port`.
    ///
    /// # Errors
    /// `platform` / `unreachable`, retryable, which names the address; `invalid` / `certificate` where the two do not
    /// trust each other.
    pub async fn connect(&self, address: &str, patience: Duration) -> Result<Stream, Error> {
        let stream = connect(address, patience).await?;
        let Some(tls) = &self.0 else { return Ok(Stream::Plain(stream)) };
        let begun = timeout(patience, tls.connect(stream)).await;
        let stream = begun.unwrap_or_else(|_| Err("it did not begin TLS in time".to_owned()));
        Ok(Stream::Tls(Box::new(stream.map_err(|why| untrusted(address, &why))?)))
    }

    /// The other side of [`Security::connect`].
    ///
    /// # Errors
    /// `invalid` / `certificate`.
    pub async fn accept(&self, stream: TcpStream) -> Result<Stream, Error> {
        // Only latency suffers where the option cannot be set.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.0 else { return Ok(Stream::Plain(stream)) };
        let begun = timeout(HANDSHAKE, tls.accept(stream)).await;
        let stream = begun.unwrap_or_else(|_| Err("it did not begin TLS in time".to_owned()));
        Ok(Stream::Tls(Box::new(stream.map_err(|why| untrusted("the other side", &why))?)))
    }

    /// What an error of a [`Stream`] means: with TLS 1.3 a refusal of our certificate shows at the first read.
    pub(crate) fn explain(&self, error: &io::Error) -> String {
        self.0.as_ref().map_or_else(|| error.to_string(), |tls| tls.explain(error))
    }
}

fn untrusted(who: &str, why: &str) -> Error {
    Error::new(Kind::Invalid, Code::Certificate, format!("no TLS with {who}: {why}"))
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted; both sides know each other.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
