//! One outgoing request: resolve, check, connect to the checked address, send, and hand the response back bounded in
//! bytes and time.

use std::{
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep, timeout},
};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::{Io, Origin, address};

/// Longest wait for each step, also where the guest asks for more. The function's own timeout bounds the whole.
const STEP_MAX: Duration = Duration::from_secs(30);
/// Longest wait for a name.
const RESOLVE_MAX: Duration = Duration::from_secs(5);
/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long each step may take.
#[derive(Clone, Copy)]
pub(super) struct Times {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
}

impl Times {
    /// What the guest asked for, at most [`STEP_MAX`] each.
    pub(super) fn of(options: Option<RequestOptions>) -> Self {
        let options = options.unwrap_or_default();
        let bound = |asked: Option<Duration>| asked.map_or(STEP_MAX, |asked| asked.min(STEP_MAX));
        Self {
            connect: bound(options.connect_timeout),
            first_byte: bound(options.first_byte_timeout),
            between_bytes: bound(options.between_bytes_timeout),
        }
    }
}

/// Sends `request` to `origin` and returns the response with the future that keeps its connection going.
pub(super) async fn send(
    mut request: http::Request<WasiBody>,
    origin: &Origin,
    times: Times,
    body_max: u64,
    allow_private: bool,
) -> Result<(http::Response<WasiBody>, Io<()>), Error> {
    let addresses = resolve(origin, allow_private).await?;
    let stream =
        timeout(times.connect, connect(&addresses)).await.map_err(|_| Error::ConnectionTimeout)??;
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(http::Uri::default, http::Uri::from);
    let request =
        request.map(|body| Bounded::new(body, body_max, times.between_bytes, Error::HttpRequestBodySize));

    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    // Aborted when its handle is dropped, which the response's body keeps.
    let connection = wasmtime_wasi::runtime::spawn(connection);
    let answer = timeout(times.first_byte, sender.send_request(request)).await;
    let response = answer.map_err(|_| Error::ConnectionReadTimeout)??;
    let bound = |body: hyper::body::Incoming| {
        Bounded::new(
            body.map_err(Error::from).boxed_unsync(),
            body_max,
            times.between_bytes,
            Error::HttpResponseBodySize,
        )
        .boxed_unsync()
    };
    // Whatever ends the connection, the body has told the guest.
    let done = Box::new(async move {
        let _ = connection.await;
        Ok(())
    });
    Ok((response.map(bound), done))
}

/// Every address of the origin's host, once, in the resolver's order.
async fn resolve(origin: &Origin, allow_private: bool) -> Result<Vec<SocketAddr>, Error> {
    let lookup = timeout(RESOLVE_MAX, tokio::net::lookup_host((origin.host.as_str(), origin.port))).await;
    let found = lookup.map_err(|_| Error::DnsTimeout)?;
    let found: Vec<SocketAddr> =
        found.map_err(|e| Error::DnsError { rcode: Some(e.to_string()), info_code: None })?.collect();
    if found.is_empty() {
        return Err(Error::DestinationNotFound);
    }
    if let Some(refused) = found.iter().find(|found| !allow_private && !address::public(found.ip())) {
        tracing::debug!(%origin, address = %refused.ip(), "egress denied: not a public address");
        return Err(Error::DestinationIpProhibited);
    }
    Ok(found)
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut failure = Error::DestinationUnavailable;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are written whole: waiting for more would only delay them.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => failure = Error::Connect(error),
        }
    }
    Err(failure)
}

/// A body that ends with an error after too many bytes or too long a silence.
struct Bounded {
    body: WasiBody,
    left: u64,
    max: u64,
    too_large: fn(Option<u64>) -> Error,
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    fn new(body: WasiBody, max: u64, patience: Duration, too_large: fn(Option<u64>) -> Error) -> Self {
        Self { body, left: max, max, too_large, patience, silence: None }
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            let until = Instant::now() + this.patience;
            let silence = this.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            ready!(silence.as_mut().poll(cx));
            return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
        };
        this.silence = None;
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(left) = this.left.checked_sub(bytes) else {
            return Poll::Ready(Some(Err((this.too_large)(Some(this.max)))));
        };
        this.left = left;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
