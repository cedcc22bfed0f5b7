//! Reading a partition from another executor's memory: `GET /peer/v1/partitions/{job}/{partition}/{epoch}/{attempt}`, and short
//! ranges of many in one request ([`batch`]).
//!
//! Promises: what is returned was compared with the partition's checksums; a peer that does not have it, cannot be
//! reached or sends something else is an error that says so, and the caller reads elsewhere. Connections are kept.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_peer::{Client, Pooling, Security, client, reason};
use fanfold_protocol::{
    Code, Error, Kind,
    value::{Stored, StoredKey},
};
use fanfold_store::{
    Index,
    memory::Gathered,
    partitions::{Footer, parse},
};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::batch::{self, Ask, Batches, Wanted};

/// Before the first byte of the answer; after that a peer that lives goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// A whole answer, of at most a window or a short partition.
const PATIENCE_BODY: Duration = Duration::from_secs(30);
/// Idle connections kept per peer.
const IDLE_MAX: usize = 16;

/// How many bytes of the answer are the footer, as a header.
pub(super) const FOOTER: &str = "fanfold-footer";

/// The client of all peers.
#[derive(Clone, Debug)]
pub struct Fetch {
    client: Client<Full<Bytes>>,
    batches: Arc<Batches>,
    /// Requests for several readers, which end with the executor.
    requests: TaskTracker,
    stop: CancellationToken,
}

/// A partition's index and some of its bytes.
#[derive(Debug)]
pub struct Fetched {
    /// Its blocks and checksums.
    pub index: Index,
    /// The bytes that were asked for, verified.
    pub bytes: Bytes,
}

impl Fetch {
    /// Without connections.
    pub fn new(security: Security) -> Self {
        let pooling = Pooling { connect: PATIENCE, idle_max: IDLE_MAX, idle: Duration::from_secs(30) };
        let (requests, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { client: client(security, &pooling), batches: Arc::default(), requests, stop }
    }

    /// The index of a partition and its first `bytes` bytes: all of them, or none.
    ///
    /// # Errors
    /// `lost` / `partition-lost` where the peer does not have it or has something else; `platform` / `unreachable`.
    pub async fn open(&self, peer: &str, stored: &Stored, bytes: u64) -> Result<Fetched, Error> {
        let (footer, data) = self.get(peer, stored.key, 0..bytes, true).await?;
        let odd = |what: String| lost(peer, stored.key, &what);
        let object_bytes = stored.meta.bytes + footer.len() as u64;
        let index = match parse(&footer, object_bytes).map_err(odd)? {
            Footer::Complete(index) if index.meta() == stored.meta => index,
            Footer::Complete(_) | Footer::Longer(_) => {
                return Err(odd("it has another partition".to_owned()));
            }
        };
        check(peer, stored.key, &index, 0..bytes, &data)?;
        Ok(Fetched { index, bytes: data })
    }

    /// Bytes of a partition whose index is known.
    ///
    /// # Errors
    /// As [`Fetch::open`].
    pub async fn read(
        &self,
        peer: &Arc<str>,
        key: StoredKey,
        index: &Index,
        range: Range<u64>,
    ) -> Result<Bytes, Error> {
        let whole = index.units_around(range.clone());
        let data = match self.with_others(peer, Wanted::new(key, whole.clone())).await {
            Some(data) => data,
            None => self.get(peer, key, whole.clone(), false).await?.1,
        };
        check(peer, key, index, whole.clone(), &data)?;
        let from = (range.start - whole.start) as usize;
        Ok(data.slice(from..from + (range.end - range.start) as usize))
    }

    /// A short range, in one request with others; `None` where it is not short, or was not answered.
    async fn with_others(&self, peer: &Arc<str>, wanted: Wanted) -> Option<Bytes> {
        if wanted.bytes() > batch::SHORT_BYTES_MAX {
            return None;
        }
        let (answered, request) = self.batches.want(peer, wanted);
        if let Some(mut request) = request {
            // Others than who began it wait for it, too.
            let fetch = self.clone();
            let send = async move {
                while let Some(asks) = request.next() {
                    fetch.send(request.peer(), asks).await;
                }
            };
            self.requests.spawn(self.stop.clone().run_until_cancelled_owned(send));
        }
        answered.await.ok()
    }

    /// Sends a request for ranges; `None` where it could not be answered to its end.
    async fn send(&self, peer: &str, asks: Vec<Ask>) -> Option<()> {
        let uri = format!("http://{peer}{}", batch::PATH);
        let request = Request::post(uri).body(Full::new(batch::list(&asks))).ok()?;
        let response = timeout(PATIENCE, self.client.request(request)).await.ok()?.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        timeout(PATIENCE_BODY, batch::deliver(asks, response.into_body())).await.ok()
    }

    /// Ends what is on its way; nobody is answered any more.
    pub async fn close(&self) {
        self.stop.cancel();
        self.requests.close();
        self.requests.wait().await;
    }

    async fn get(
        &self,
        peer: &str,
        key: StoredKey,
        range: Range<u64>,
        footer: bool,
    ) -> Result<(Bytes, Bytes), Error> {
        let StoredKey { job, partition, epoch, attempt } = key;
        let uri: Uri = format!(
            "http://{peer}/peer/v1/partitions/{job}/{partition}/{epoch}/{attempt}?from={}&to={}&footer={footer}",
            range.start, range.end
        )
        .parse()
        .map_err(|_| unreachable(peer, "it is no address"))?;
        let request =
            Request::get(uri).body(Full::default()).map_err(|_| unreachable(peer, "it is no address"))?;
        let response = timeout(PATIENCE, self.client.request(request))
            .await
            .map_err(|_| unreachable(peer, "it does not answer"))?
            .map_err(|e| unreachable(peer, &reason(&e)))?;
        if response.status() != StatusCode::OK {
            return Err(lost(peer, key, "it does not have it any more"));
        }
        let length =
            response.headers().get(FOOTER).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let length = length.ok_or_else(|| lost(peer, key, "it answered something else"))?;
        let limit = (range.end - range.start) as usize + length;
        let mut body = Limited::new(response.into_body(), limit);
        let mut whole = Gathered::of(limit).map_err(|e| unreachable(peer, &e.to_string()))?;
        let read = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| unreachable(peer, &e.to_string()))?;
                if frame.into_data().is_ok_and(|data| !whole.append(&data)) {
                    return Err(lost(peer, key, "it sent more bytes than it has"));
                }
            }
            Ok(())
        };
        timeout(PATIENCE_BODY, read).await.map_err(|_| unreachable(peer, "it stopped in the middle"))??;
        if whole.left() > 0 {
            return Err(lost(peer, key, "it sent fewer bytes than it has"));
        }
        let mut data = whole.finish();
        Ok((data.split_to(length), data))
    }
}

fn check(peer: &str, key: StoredKey, index: &Index, range: Range<u64>, data: &[u8]) -> Result<(), Error> {
    index.verify(range.start, data).map_err(|what| lost(peer, key, &what))
}

fn lost(peer: &str, key: StoredKey, what: &str) -> Error {
    let message = format!("partition `{}` cannot be read from {peer}: {what}", key.partition);
    Error::new(Kind::Lost, Code::PartitionLost, message)
}

fn unreachable(peer: &str, what: &str) -> Error {
    Error::new(Kind::Platform, Code::Unreachable, format!("executor {peer} cannot be read from: {what}"))
        .retryable(true)
}
