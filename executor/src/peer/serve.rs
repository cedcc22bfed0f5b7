//! What an executor serves to its peers, over HTTP/1.1 on an address of its own: partitions in its memory, and [direct
//! calls](calls).
//!
//! The answer's first bytes are the partition's footer, if that was asked for; the rest are slices of the memory the
//! partition is in: nothing is copied before the kernel. It knows no users and checks no tokens: the address must only be
//! reachable for the cluster.

use std::{
    collections::VecDeque,
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, JobId, Kind, PartitionId, direct::Body as CallBody, value::StoredKey};
use fanfold_store::partitions;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{calls, fetch::FOOTER};
use crate::{
    Executor,
    cache::{Cache, Cached},
};

/// A listening server of partitions.
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// `platform` / `unreachable` where the address cannot be had.
    pub async fn start(address: SocketAddr, executor: Executor) -> Result<Self, Error> {
        let failed = |e: std::io::Error| {
            let message = format!("cannot serve other executors on {address}: {e}");
            Error::new(Kind::Platform, Code::Unreachable, message)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, executor, stop.clone(), tasks.clone()));
        tasks.close();
        Ok(Self { address, stop, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it; answers that are being sent are cut off.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn accept(listener: TcpListener, executor: Executor, stop: CancellationToken, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (executor, stop) = (executor.clone(), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = connection(stream, executor) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: others will be closed.
                tracing::warn!(%error, "a peer's connection was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, executor: Executor) {
    // Only latency suffers where the option cannot be set.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let executor = executor.clone();
        async move { Ok::<_, Infallible>(answer(&executor, request).await) }
    });
    let served =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a peer's connection ended");
    }
}

async fn answer(executor: &Executor, request: Request<Incoming>) -> Response<PeerBody> {
    if let Some(wanted) = wanted(&request) {
        return partition(executor.cache(), &wanted).map(PeerBody::Pieces);
    }
    match calls::answer(executor, request).await {
        Some(response) => response.map(PeerBody::Call),
        None => {
            let mut response = Response::new(PeerBody::Pieces(Pieces::default()));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

fn partition(cache: &Cache, wanted: &Wanted) -> Response<Pieces> {
    let mut response = Response::new(Pieces::default());
    match cache.in_memory(wanted.key) {
        Some(cached) => {
            let footer = if wanted.footer { partitions::encode(&cached.index) } else { Bytes::new() };
            response.headers_mut().insert(FOOTER, footer.len().into());
            *response.body_mut() = Pieces::of(footer, &cached, wanted.from, wanted.to);
        }
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    response
}

/// What a peer is answered with.
enum PeerBody {
    Pieces(Pieces),
    Call(CallBody),
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.get_mut() {
            Self::Pieces(pieces) => Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece)))),
            Self::Call(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.left.is_empty(),
            Self::Call(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.bytes),
            Self::Call(body) => body.size_hint(),
        }
    }
}

struct Wanted {
    key: StoredKey,
    from: u64,
    to: u64,
    footer: bool,
}

fn wanted(request: &Request<Incoming>) -> Option<Wanted> {
    if request.method() != Method::GET {
        return None;
    }
    let mut parts = request.uri().path().strip_prefix("/peer/v1/partitions/")?.split('/');
    let job: JobId = parts.next()?.parse().ok()?;
    let partition: PartitionId = parts.next()?.parse().ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let attempt = parts.next()?.parse().ok()?;
    let mut wanted =
        Wanted { key: StoredKey { job, partition, epoch, attempt }, from: 0, to: 0, footer: false };
    for (name, value) in request.uri().query()?.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "from" => wanted.from = value.parse().ok()?,
            "to" => wanted.to = value.parse().ok()?,
            "footer" => wanted.footer = value.parse().ok()?,
            _ => {}
        }
    }
    (parts.next().is_none() && wanted.from <= wanted.to).then_some(wanted)
}

/// Bytes that are in memory, in order. Holds what they are slices of.
#[derive(Debug, Default)]
struct Pieces {
    left: VecDeque<Bytes>,
    bytes: u64,
    /// The partition counts as read until its last byte is handed to the kernel.
    _of: Option<Arc<Cached>>,
}

impl Pieces {
    fn of(footer: Bytes, cached: &Arc<Cached>, from: u64, to: u64) -> Self {
        let mut left: VecDeque<Bytes> = cached.segments.pieces(from..to).collect();
        if !footer.is_empty() {
            left.push_front(footer);
        }
        let bytes = left.iter().map(|piece| piece.len() as u64).sum();
        Self { left, bytes, _of: Some(cached.clone()) }
    }

    fn next(&mut self) -> Option<Bytes> {
        let piece = self.left.pop_front()?;
        self.bytes -= piece.len() as u64;
        Some(piece)
    }
}
