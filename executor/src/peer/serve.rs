//! What an executor serves to its peers, over HTTP/1.1 on an address of its own: partitions in its memory and on its disk,
//! and [direct calls](calls).
//!
//! The answer's first bytes are the partition's footer, if that was asked for; the rest are slices of the memory the
//! partition is in: nothing is copied before the kernel. Of one on disk, a piece at a time is in memory. It knows no users and checks no tokens: the address must only be
//! reachable for the cluster.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, JobId, Kind, PartitionId, direct::Body as Streamed, limit::HOST_CALL_BYTES_MAX,
    value::StoredKey,
};
use fanfold_store::partitions;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    batch::{self, Wanted},
    calls,
    fetch::FOOTER,
};
use crate::{
    Executor,
    cache::{Cache, Cached, Partition},
};

/// Ranges on their way from the disk for one request: a disk is faster when it is asked for several.
const DISK_READS_MAX: usize = 8;

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
            Ok((stream, from)) => {
                let (executor, stop) = (executor.clone(), stop.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = connection(stream, from, executor) => {}
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

async fn connection(stream: TcpStream, from: SocketAddr, executor: Executor) {
    let stream = match executor.security().accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%from, %error, "a peer was refused"),
    };
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
    if let Some(asked) = asked(&request) {
        return partition(executor.cache(), asked);
    }
    if request.method() == Method::POST && request.uri().path() == batch::PATH {
        return ranges(executor.cache(), request.into_body()).await;
    }
    match calls::answer(executor, request).await {
        Some(response) => response.map(PeerBody::Streamed),
        None => without(StatusCode::NOT_FOUND),
    }
}

fn without(status: StatusCode) -> Response<PeerBody> {
    let mut response = Response::new(PeerBody::Pieces(Pieces::default()));
    *response.status_mut() = status;
    response
}

/// See [`batch`].
async fn ranges(cache: &Cache, body: Incoming) -> Response<PeerBody> {
    let body = Limited::new(body, batch::LIST_BYTES_MAX).collect().await;
    let Some(list) = body.ok().and_then(|body| batch::parse(&body.to_bytes())) else {
        return without(StatusCode::BAD_REQUEST);
    };
    let find = |Wanted { key, from, to }: &Wanted| {
        let partition = cache.here(*key).filter(|partition| *to <= partition.index().bytes())?;
        Some((partition, *from..*to))
    };
    let found: Vec<_> = list.iter().map(find).collect();
    let there: Vec<u8> = found.iter().map(|found| found.as_ref().map_or(0, |_| batch::THERE)).collect();
    let found: Vec<_> = found.into_iter().flatten().collect();
    let bytes = found.iter().map(|(_, range)| range.end - range.start).sum::<u64>() + there.len() as u64;
    let cache = cache.clone();
    let reads = stream::iter(found).map(move |(partition, range)| {
        let cache = cache.clone();
        async move { cache.read(&partition, range).await }
    });
    let body = stream::once(ready(Ok(there.into()))).chain(reads.buffered(DISK_READS_MAX));
    let body = StreamBody::new(body.map_ok(Frame::data)).boxed_unsync();
    let mut response = Response::new(PeerBody::Streamed(body));
    response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    response
}

fn partition(cache: &Cache, Asked { wanted: Wanted { key, from, to }, footer }: Asked) -> Response<PeerBody> {
    let Some(partition) = cache.here(key) else { return without(StatusCode::NOT_FOUND) };
    let footer = if footer { partitions::encode(partition.index()) } else { Bytes::new() };
    let footer_bytes = footer.len();
    let end = to.min(partition.index().bytes());
    let length = footer_bytes as u64 + end.saturating_sub(from);
    let body = match partition {
        Partition::Memory(cached) => PeerBody::Pieces(Pieces::of(footer, &cached, from, to)),
        other => PeerBody::Streamed(streamed(cache.clone(), other, footer, from..end)),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(FOOTER, footer_bytes.into());
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

/// The footer, if it has bytes, and a range of a partition's data, piece after piece.
fn streamed(cache: Cache, partition: Partition, footer: Bytes, range: Range<u64>) -> Streamed {
    let data = stream::try_unfold(range, move |left| {
        let (cache, partition) = (cache.clone(), partition.clone());
        async move {
            if left.is_empty() {
                return Ok(None);
            }
            let piece = left.start..left.end.min(left.start + HOST_CALL_BYTES_MAX as u64);
            let end = piece.end;
            Ok(Some((cache.read(&partition, piece).await?, end..left.end)))
        }
    });
    let footer = stream::iter((!footer.is_empty()).then_some(Ok(footer)));
    StreamBody::new(footer.chain(data).map_ok(Frame::data)).boxed_unsync()
}

/// What a peer is answered with.
enum PeerBody {
    Pieces(Pieces),
    Streamed(Streamed),
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.get_mut() {
            Self::Pieces(pieces) => Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece)))),
            Self::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.left.is_empty(),
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.bytes),
            Self::Streamed(body) => body.size_hint(),
        }
    }
}

struct Asked {
    wanted: Wanted,
    footer: bool,
}

fn asked(request: &Request<Incoming>) -> Option<Asked> {
    if request.method() != Method::GET {
        return None;
    }
    let mut parts = request.uri().path().strip_prefix("/peer/v1/partitions/")?.split('/');
    let job: JobId = parts.next()?.parse().ok()?;
    let partition: PartitionId = parts.next()?.parse().ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let attempt = parts.next()?.parse().ok()?;
    let mut wanted = Wanted::new(StoredKey { job, partition, epoch, attempt }, 0..0);
    let mut footer = false;
    for (name, value) in request.uri().query()?.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "from" => wanted.from = value.parse().ok()?,
            "to" => wanted.to = value.parse().ok()?,
            "footer" => footer = value.parse().ok()?,
            _ => {}
        }
    }
    (parts.next().is_none() && wanted.from <= wanted.to).then_some(Asked { wanted, footer })
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
