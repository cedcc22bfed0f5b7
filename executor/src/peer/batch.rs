//! Short ranges from one peer that are wanted at the same time, in one request: `POST /peer/v1/ranges`.
//!
//! A reducer of a shuffle wants a few kilobytes of each of hundreds of partitions; a request for each takes both sides longer than the
//! bytes do. So a range that is wanted while as many requests are on their way as may be waits for one of them to end, and goes
//! with all others that wait for the same peer; when few are wanted, none waits. The request's body is the list of ranges, as
//! MessagePack. The answer's is a byte for each, [`THERE`] or not, and then the bytes of those that are there, in order.
//!
//! Promises: what is answered has as many bytes as were asked for; nobody has compared them with checksums. What is not answered is
//! asked for by itself, which tells why.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use fanfold_protocol::value::StoredKey;
use fanfold_store::memory::Gathered;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Where ranges are asked for.
pub(super) const PATH: &str = "/peer/v1/ranges";
/// In an answer: the bytes of a range follow.
pub(super) const THERE: u8 = 1;
/// A longer range has a request of its own.
pub(super) const SHORT_BYTES_MAX: u64 = 128 << 10;
/// Ranges in one request.
const RANGES_MAX: usize = 256;
/// Their bytes.
const BYTES_MAX: u64 = 2 << 20;
const _: () = assert!(SHORT_BYTES_MAX <= BYTES_MAX);
/// Bytes of a list of so many ranges, at most.
pub(super) const LIST_BYTES_MAX: usize = RANGES_MAX * 128;
/// Requests on their way to one peer.
const REQUESTS_MAX: usize = 2;

/// Some of a partition's data.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) key: StoredKey,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Wanted {
    pub(super) fn new(key: StoredKey, range: Range<u64>) -> Self {
        Self { key, from: range.start, to: range.end }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// A range that waits, and who wants it. Dropped, it was not answered.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) wanted: Wanted,
    answer: oneshot::Sender<Bytes>,
}

/// What waits for peers.
#[derive(Default, Debug)]
pub(super) struct Batches(Mutex<HashMap<Arc<str>, Waiting>>);

#[derive(Default, Debug)]
struct Waiting {
    asks: VecDeque<Ask>,
    /// Requests on their way.
    requests: usize,
}

impl Batches {
    /// Adds a range: where its bytes will come, unless it is not answered; and, if another request may be on its way to the peer,
    /// the right to send what waits.
    pub(super) fn want(
        self: &Arc<Self>,
        peer: &Arc<str>,
        wanted: Wanted,
    ) -> (oneshot::Receiver<Bytes>, Option<Request>) {
        let (answer, answered) = oneshot::channel();
        let mut peers = self.peers();
        let waiting = peers.entry(peer.clone()).or_default();
        waiting.asks.push_back(Ask { wanted, answer });
        let may = waiting.requests < REQUESTS_MAX;
        waiting.requests += usize::from(may);
        (answered, may.then(|| Request { batches: self.clone(), peer: peer.clone(), over: false }))
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to have one request on its way to a peer.
#[derive(Debug)]
pub(super) struct Request {
    batches: Arc<Batches>,
    peer: Arc<str>,
    over: bool,
}

impl Request {
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// What waits, as much as goes in one request; `None`, and the right is given back, if nothing does.
    pub(super) fn next(&mut self) -> Option<Vec<Ask>> {
        let mut peers = self.batches.peers();
        let waiting = peers.get_mut(&self.peer)?;
        let (mut asks, mut bytes) = (Vec::new(), 0);
        while asks.len() < RANGES_MAX
            && let Some(ask) = waiting.asks.front()
            && bytes + ask.wanted.bytes() <= BYTES_MAX
        {
            bytes += ask.wanted.bytes();
            asks.extend(waiting.asks.pop_front());
        }
        if !asks.is_empty() {
            return Some(asks);
        }
        self.over = true;
        waiting.requests -= 1;
        if waiting.requests == 0 {
            peers.remove(&self.peer);
        }
        None
    }
}

impl Drop for Request {
    /// Stopped in the middle. Where nobody is left to send them, those that wait are not answered.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut peers = self.batches.peers();
        let Some(waiting) = peers.get_mut(&self.peer) else { return };
        waiting.requests -= 1;
        if waiting.requests == 0 {
            peers.remove(&self.peer);
        }
    }
}

/// The body of a request.
pub(super) fn list(asks: &[Ask]) -> Bytes {
    let wanted: Vec<&Wanted> = asks.iter().map(|ask| &ask.wanted).collect();
    // Its types have no map, whose keys could be wrong.
    rmp_serde::to_vec(&wanted).unwrap_or_default().into()
}

/// The same at the peer; `None` where it is none.
pub(super) fn parse(body: &[u8]) -> Option<Vec<Wanted>> {
    let list: Vec<Wanted> = rmp_serde::from_slice(body).ok()?;
    let bytes = list.iter().map(Wanted::bytes).fold(0, u64::saturating_add);
    (list.len() <= RANGES_MAX && bytes <= BYTES_MAX && list.iter().all(|wanted| wanted.from < wanted.to))
        .then_some(list)
}

/// Gives each its bytes as they come. Where the answer ends early, the rest are not answered.
pub(super) async fn deliver(asks: Vec<Ask>, body: Incoming) {
    let mut answer = Answer { body, frame: Bytes::new() };
    let Some(there) = answer.take(asks.len()).await else { return };
    for (ask, there) in asks.into_iter().zip(there) {
        if there != THERE {
            continue;
        }
        let Some(bytes) = answer.take(ask.wanted.bytes() as usize).await else { return };
        // Whoever asked may have gone.
        let _ = ask.answer.send(bytes);
    }
}

/// An answer that is being read.
struct Answer {
    body: Incoming,
    /// What has come and was not taken.
    frame: Bytes,
}

impl Answer {
    /// The next `wanted` bytes, in memory of their own; `None` where there are fewer.
    async fn take(&mut self, wanted: usize) -> Option<Bytes> {
        let mut taken = Gathered::of(wanted).ok()?;
        while taken.left() > 0 {
            if self.frame.is_empty() {
                self.frame = self.body.frame().await?.ok()?.into_data().ok()?;
            }
            let more = self.frame.len().min(taken.left());
            taken.append(&self.frame.split_to(more)).then_some(())?;
        }
        Some(taken.finish())
    }
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{JobId, PartitionId, TaskId};

    use super::*;

    fn wanted(number: u32, bytes: u64) -> Wanted {
        let partition = PartitionId { task: TaskId([7; 16]), output: number };
        Wanted::new(
            StoredKey { job: JobId(uuid::Uuid::nil()), partition, epoch: 1, attempt: 1 },
            5..5 + bytes,
        )
    }

    #[test]
    fn what_waits_goes_together_as_far_as_it_fits() {
        let (batches, peer) = (Arc::new(Batches::default()), Arc::from("there"));
        let mut requests: Vec<_> = (0..REQUESTS_MAX as u32)
            .map(|n| batches.want(&peer, wanted(n, 10)).1.expect("it may go"))
            .collect();
        let first = requests[0].next().expect("they wait");
        assert_eq!(first.len(), REQUESTS_MAX, "whoever goes first takes all");
        let many = 3 * RANGES_MAX as u32 / 2;
        for n in 0..many {
            assert!(batches.want(&peer, wanted(n, 10)).1.is_none(), "enough are on their way");
        }
        assert!(batches.want(&Arc::from("elsewhere"), wanted(0, 10)).1.is_some(), "to this peer");
        let taken: Vec<usize> = (0..2).map(|n| requests[n].next().expect("they wait").len()).collect();
        assert_eq!(taken, [RANGES_MAX, RANGES_MAX / 2]);
        let long = BYTES_MAX / SHORT_BYTES_MAX;
        (0..=long).for_each(|n| drop(batches.want(&peer, wanted(n as u32, SHORT_BYTES_MAX))));
        let asks = requests[0].next().expect("they wait");
        assert_eq!(asks.len() as u64, long);
        let list_of = |asks: &[Ask]| asks.iter().map(|ask| ask.wanted.clone()).collect::<Vec<_>>();
        assert_eq!(parse(&list(&asks)), Some(list_of(&asks)));
        assert_eq!(requests[0].next().expect("the last").len(), 1);
        assert!(requests.iter_mut().all(|request| request.next().is_none()), "nothing waits");
        assert!(batches.want(&peer, wanted(0, 10)).1.is_some(), "both have ended");
    }

    #[test]
    fn lists_that_are_too_long_are_none() {
        let of = |ranges: Vec<Wanted>| {
            let asks: Vec<_> =
                ranges.into_iter().map(|wanted| Ask { wanted, answer: oneshot::channel().0 }).collect();
            list(&asks)
        };
        let many = |count: usize| {
            of(vec![Wanted { from: u64::MAX - 1, to: u64::MAX, ..wanted(u32::MAX, 0) }; count])
        };
        assert!(parse(&many(RANGES_MAX)).is_some() && many(RANGES_MAX).len() <= LIST_BYTES_MAX);
        assert!(parse(&many(RANGES_MAX + 1)).is_none(), "too many");
        assert!(parse(&of(vec![wanted(0, BYTES_MAX + 1)])).is_none(), "too long");
        assert!(parse(b"something else").is_none());
    }

    #[tokio::test]
    async fn whoever_waits_for_a_request_that_is_stopped_is_not_answered() {
        let (batches, peer) = (Arc::new(Batches::default()), Arc::from("there"));
        let (first, request) = batches.want(&peer, wanted(0, 10));
        let (second, other) = batches.want(&peer, wanted(1, 10));
        let (third, none) = batches.want(&peer, wanted(2, 10));
        assert!(none.is_none());
        drop(request);
        let sent = other.expect("a second may go").next().expect("they wait");
        assert_eq!(sent.len(), 3, "by who is left");
        drop(sent);
        for answered in [first, second, third] {
            assert!(answered.await.is_err());
        }
        let (last, request) = batches.want(&peer, wanted(3, 10));
        drop(request);
        assert!(last.await.is_err(), "nobody is left to send it");
    }
}
