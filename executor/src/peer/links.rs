//! A link to the owner of each journal shard, dialled again as long as the shard has one.
//!
//! Whoever knows the cluster says with [`Links::want`] who owns what. A link that breaks ends its session, and with it
//! its attempts; it is dialled again with a growing delay. Every owner is offered all cpu slots and an equal share of the
//! memory: too many threads cost time, too much memory would cost attempts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fanfold_peer::{Inbox, dial};
use fanfold_protocol::{
    Error,
    limit::MESSAGE_QUEUE_MAX,
    link::{Hello, PROTOCOL, ShardName, Welcome},
    message::{FromExecutor, Offer, ToExecutor},
};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Executor, Session};

/// Delay before a link is dialled again, doubled up to the second one.
const DELAY: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);
/// How long an owner may take to close its link after a good-bye.
const GOOD_BYE: Duration = Duration::from_secs(1);

/// The owner of a shard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnerAddress {
    /// The shard; `None`: whichever the gateway owns.
    pub shard: Option<ShardName>,
    /// Where its gateway listens for executors, as `host:port`.
    pub address: String,
}

/// See the module.
pub struct Links {
    inner: Arc<Inner>,
    tasks: TaskTracker,
}

struct Inner {
    executor: Executor,
    name: String,
    /// Where peers reach this executor.
    peer: String,
    links: Mutex<HashMap<OwnerAddress, Kept>>,
    leaving: CancellationToken,
    /// A link came up or went down.
    changed: Notify,
}

/// A link that is kept up.
struct Kept {
    stop: CancellationToken,
    /// To its owner, while it is up.
    up: Option<mpsc::Sender<FromExecutor>>,
}

impl Links {
    /// No links yet. `name` and `peer` are what owners are told: what operators call this executor, and where other
    /// processes reach it.
    pub fn new(executor: Executor, name: String, peer: String) -> Self {
        let leaving = CancellationToken::new();
        let inner = Inner { executor, name, peer, links: Mutex::default(), leaving, changed: Notify::new() };
        Self { inner: Arc::new(inner), tasks: TaskTracker::new() }
    }

    /// Keeps links to exactly these owners.
    pub fn want(&self, owners: &[OwnerAddress]) {
        let mut links = self.inner.links();
        let before = links.len();
        links.retain(|owner, kept| {
            let wanted = owners.contains(owner);
            if !wanted {
                kept.stop.cancel();
            }
            wanted
        });
        for owner in owners {
            if !links.contains_key(owner) {
                let stop = CancellationToken::new();
                links.insert(owner.clone(), Kept { stop: stop.clone(), up: None });
                self.tasks.spawn(keep(self.inner.clone(), owner.clone(), stop));
            }
        }
        let changed = links.len() != before;
        drop(links);
        if changed {
            self.inner.offer_anew();
        }
    }

    /// How many links are up.
    pub fn up(&self) -> usize {
        self.inner.links().values().filter(|kept| kept.up.is_some()).count()
    }

    /// Tells every owner that this executor takes nothing new.
    pub fn leave(&self) {
        self.inner.leaving.cancel();
        self.inner.tell(|| FromExecutor::Leaving);
    }

    /// Says good-bye to every owner, waits until it has heard that, a second at most, and ends every link.
    pub async fn stop(&self) {
        self.inner.tell_uploaded().await;
        self.inner.tell(|| FromExecutor::Left);
        let heard = async {
            while self.up() > 0 {
                self.inner.changed.notified().await;
            }
        };
        if tokio::time::timeout(GOOD_BYE, heard).await.is_err() {
            tracing::warn!("a gateway did not take the good-bye");
        }
        self.inner.links().drain().for_each(|(_, kept)| kept.stop.cancel());
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Inner {
    fn links(&self) -> MutexGuard<'_, HashMap<OwnerAddress, Kept>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each owner may use.
    fn offer(&self) -> Offer {
        let whole = self.executor.offer();
        let owners = self.links().len().max(1) as u64;
        Offer { memory: whole.memory / owners, ..whole }
    }

    fn offer_anew(&self) {
        let offer = self.offer();
        self.tell(|| FromExecutor::Offer(offer.clone()));
    }

    /// Says something to every owner. One whose channel is full is behind by thousands of messages; what it is not told
    /// now it learns with the next change.
    fn tell(&self, message: impl Fn() -> FromExecutor) {
        for up in self.links().values().filter_map(|kept| kept.up.as_ref()) {
            let _ = up.try_send(message());
        }
    }

    /// Tells owners what of theirs the object store has, so that they need not make it again once this executor is gone.
    async fn tell_uploaded(&self) {
        let up: Vec<_> = self.links().values().filter_map(|kept| kept.up.clone()).collect();
        for held in self.executor.held(None).into_iter().filter(|held| held.durable) {
            for owner in &up {
                // Those whose job it is not do not know the key; a link that broke meanwhile needs nothing.
                let _ = owner.send(FromExecutor::Durable(held.key)).await;
            }
        }
    }

    fn set_up(&self, owner: &OwnerAddress, up: Option<mpsc::Sender<FromExecutor>>) {
        if let Some(kept) = self.links().get_mut(owner) {
            kept.up = up;
        }
        self.changed.notify_one();
    }
}

/// Dials, carries messages, dials again.
async fn keep(inner: Arc<Inner>, owner: OwnerAddress, stop: CancellationToken) {
    let (mut delay, address) = (DELAY, &owner.address);
    loop {
        let ended = tokio::select! {
            ended = run(&inner, &owner) => ended,
            () = stop.cancelled() => return,
        };
        if inner.leaving.is_cancelled() {
            return;
        }
        match ended {
            Ok(why) => {
                tracing::warn!(address, "the link to the gateway ended: {why}");
                delay = DELAY;
            }
            Err(error) => tracing::warn!(%error, "no link to the gateway; trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.cancelled() => return,
        }
        delay = (delay * 2).min(DELAY_MAX);
    }
}

/// One link from its beginning to its end; why it ended.
async fn run(inner: &Arc<Inner>, owner: &OwnerAddress) -> Result<String, Error> {
    let hello = Hello {
        protocol: PROTOCOL,
        name: inner.name.clone(),
        shard: owner.shard.clone(),
        offer: inner.offer(),
        peer: inner.peer.clone(),
        held: inner.executor.held(owner.shard.as_ref().map(ShardName::tag)),
    };
    let (link, Welcome { shard, epoch, .. }) =
        dial(inner.executor.security(), &owner.address, &hello).await?;
    tracing::info!(shard = shard.as_str(), epoch, address = owner.address, "linked to the gateway");
    let (events, outgoing) = mpsc::channel(MESSAGE_QUEUE_MAX);
    let session = Incoming(inner.executor.attach(shard.tag(), events.clone()));
    let _up = Up::new(inner, owner, events);
    Ok(link.run(outgoing, session).await.to_string())
}

/// Messages go to the worker on the link's own task: there is no queue between.
struct Incoming(Session);

impl Inbox<ToExecutor> for Incoming {
    async fn put(&mut self, message: ToExecutor) -> bool {
        self.0.send(message).is_ok()
    }
}

/// Notes that a link is up, as long as it is.
struct Up<'a> {
    inner: &'a Inner,
    owner: &'a OwnerAddress,
}

impl<'a> Up<'a> {
    fn new(inner: &'a Inner, owner: &'a OwnerAddress, events: mpsc::Sender<FromExecutor>) -> Self {
        if inner.leaving.is_cancelled() {
            let _ = events.try_send(FromExecutor::Leaving);
        }
        inner.set_up(owner, Some(events.clone()));
        // The hello may be older than the last link that came or went.
        let _ = events.try_send(FromExecutor::Offer(inner.offer()));
        Self { inner, owner }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.inner.set_up(self.owner, None);
    }
}
