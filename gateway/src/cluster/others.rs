//! The other gateways of the cluster: who they are, whose jobs they have, and what all agree on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use fanfold_peer::Client;
use fanfold_protocol::{
    Code, Error, Kind,
    cluster::{Member, Role, ShardLease},
    direct::Body,
    link::{PROTOCOL, ShardName, ShardTag},
};
use fanfold_store::{
    Members, Store,
    members::{Announcement, View},
};
use tokio::{sync::watch, time::Instant};

use super::forward::forwarder;

/// The question in the store which shard keeps what belongs to idempotency keys.
const KEYS: &str = "idempotency-keys";

/// See the module.
pub(crate) struct Others {
    members: Members,
    view: watch::Receiver<Arc<View>>,
    /// This process among the members.
    id: u64,
    /// Every shard that is known to exist, by tag.
    shards: RwLock<BTreeMap<ShardTag, ShardName>>,
    /// The shard whose owner gets all requests that carry an idempotency key, so that it does not matter which gateway a
    /// repetition reaches.
    keys: ShardTag,
    announced: Mutex<Option<Announcement>>,
    /// When the last look in the store began which shards exist.
    looked: tokio::sync::Mutex<Option<Instant>>,
    /// The way to them.
    pub(super) forwarder: Client<Body>,
}

impl Others {
    /// The others among `members`, for the gateway that owns `home` in `store`.
    ///
    /// # Errors
    /// `platform` / `storage` where the store cannot be had.
    pub(crate) async fn find(members: Members, store: &Store, home: &ShardName) -> Result<Self, Error> {
        let keys = store.agree(KEYS, home.as_str()).await?;
        let others = Self {
            view: members.view(),
            members,
            id: rand::random(),
            shards: RwLock::default(),
            keys: ShardTag::of(&keys),
            announced: Mutex::default(),
            looked: tokio::sync::Mutex::default(),
            forwarder: forwarder(),
        };
        others.list_shards(store).await?;
        Ok(others)
    }

    /// Announces this gateway, which is reached by clients at `url` and by executors at `peer`.
    pub(crate) fn announce(&self, name: &ShardName, url: String, peer: String, shards: Vec<ShardLease>) {
        let announced = self.members.announce(Member {
            id: self.id,
            role: Role::Gateway,
            name: name.as_str().to_owned(),
            url,
            peer,
            protocol: PROTOCOL,
            shards,
        });
        *self.announced.lock().unwrap_or_else(PoisonError::into_inner) = Some(announced);
    }

    /// Announces which shards it owns now.
    pub(super) fn claim(&self, shards: Vec<ShardLease>) {
        if let Some(announced) = &*self.announced.lock().unwrap_or_else(PoisonError::into_inner) {
            announced.update(|member| member.shards = shards);
        }
    }

    /// Takes this gateway off the list.
    pub(crate) async fn withdraw(&self) {
        let announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(announced) = announced {
            announced.withdraw().await;
        }
    }

    /// Who is there; changes about once a second.
    pub(super) fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// This process among the members.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Looks which shards exist. Those who come while somebody looks share the next look.
    pub(super) async fn list_shards(&self, store: &Store) -> Result<(), Error> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|at| at > asked) {
            return Ok(());
        }
        let began = Instant::now();
        let found = store.shards().await?;
        let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
        shards.extend(found.into_iter().map(|name| (name.tag(), name)));
        *looked = Some(began);
        Ok(())
    }

    /// Every shard that is known to exist.
    pub(super) fn shards(&self) -> BTreeMap<ShardTag, ShardName> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The shard that keeps what belongs to idempotency keys.
    pub(crate) fn keys(&self) -> ShardTag {
        self.keys
    }

    /// The other gateways that live.
    pub(super) fn gateways(&self) -> Vec<Member> {
        gateways(&self.view.borrow()).filter(|member| member.id != self.id).cloned().collect()
    }

    /// The other gateway that owns the shard with this tag.
    pub(super) fn owner(&self, tag: ShardTag) -> Option<Member> {
        let view = self.view.borrow();
        let lease = |member: &Member| {
            let lease = member.shards.iter().find(|lease| ShardTag::of(&lease.name) == tag);
            lease.map(|lease| lease.epoch)
        };
        let others = gateways(&view).filter(|member| member.id != self.id);
        others.max_by_key(|member| lease(member)).filter(|member| lease(member).is_some()).cloned()
    }

    /// Why nothing can be said of the jobs with this tag now; `None` where there is no such shard, and so no such job.
    pub(crate) fn absent(&self, tag: ShardTag) -> Option<Error> {
        let shards = self.shards.read().unwrap_or_else(PoisonError::into_inner);
        shards.get(&tag).map(without_owner)
    }
}

/// The gateways in a view that speak this version.
pub(super) fn gateways(view: &View) -> impl Iterator<Item = &Member> {
    view.members.iter().filter(|member| member.role == Role::Gateway && member.protocol == PROTOCOL)
}

/// What is said of a shard's jobs while nobody owns it.
pub(super) fn without_owner(shard: &ShardName) -> Error {
    let why = format!(
        "the jobs of gateway `{}` have no owner at the moment: ask again in some seconds, when another gateway has taken \
         over",
        shard.as_str()
    );
    Error::new(Kind::Overloaded, Code::Unreachable, why).retryable(true)
}
