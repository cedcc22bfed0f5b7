//! Shards whose owner is gone, and shards that others have taken back.
//!
//! A shard that no live gateway announces for some seconds, while the list of members could be read all that time, is
//! taken over: the gateway that comes first in the shard's own order of gateways claims the next epoch, folds the log and
//! goes on; the next in order waits longer. To be wrong costs time and nothing else: epochs are claimed in the object
//! store, and an owner of a lower one is fenced at its next write. A gateway that sees a higher epoch announced gives the
//! shard up; where it is its own, the whole gateway ends, as it does when it is fenced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use fanfold_protocol::{
    Code, Error, Kind,
    cluster::ShardLease,
    link::{ShardName, ShardTag},
};
use fanfold_store::{Journal, members::View};
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::others::{Others, gateways};
use crate::{
    owner::{self, Owner},
    owners::Shard,
    shared::Shared,
};

/// How long a shard that had an owner must be without one.
const GRACE: Duration = Duration::from_secs(2);
/// The same for one that never had any while this process looked: its gateway may just be starting, too.
const GRACE_UNSEEN: Duration = Duration::from_secs(10);
/// How much longer each further gateway waits.
const TURN: Duration = Duration::from_secs(3);
/// A view that is older says nothing of who is there.
const STALE: Duration = Duration::from_millis(2500);
/// Time between two looks which shards exist.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// The task that takes over and gives up.
pub(crate) struct Takeover {
    tasks: TaskTracker,
    stop: CancellationToken,
    superseded: watch::Receiver<Option<Error>>,
}

impl Takeover {
    /// Begins to look.
    pub(crate) fn start(shared: Arc<Shared>, others: Arc<Others>) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (tell, superseded) = watch::channel(None);
        let watcher = Watcher { shared, others, superseded: tell, ending: tasks.clone() };
        let stopped = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = watcher.run() => {}
                () = stopped.cancelled() => {}
            }
        });
        Self { tasks, stop, superseded }
    }

    /// Resolves when another gateway has taken over this one's own shard.
    pub(crate) async fn superseded(&self) -> Error {
        let mut superseded = self.superseded.clone();
        match superseded.wait_for(Option::is_some).await.map(|error| error.clone()) {
            Ok(Some(error)) => error,
            // It was stopped.
            _ => std::future::pending().await,
        }
    }

    /// Takes nothing over any more, and waits for owners that are ending.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

struct Watcher {
    shared: Arc<Shared>,
    others: Arc<Others>,
    superseded: watch::Sender<Option<Error>>,
    ending: TaskTracker,
}

impl Watcher {
    async fn run(self) {
        let mut view = self.others.view();
        let (mut orphans, mut list_at) = (Orphans::default(), Instant::now() + LIST_EVERY);
        // The list's keeper lives as long as `others`.
        while view.changed().await.is_ok() {
            let seen = view.borrow_and_update().clone();
            if list_at <= Instant::now() {
                list_at = Instant::now() + LIST_EVERY;
                if let Err(error) = self.others.list_shards(&self.shared.store).await {
                    tracing::warn!(%error, "it cannot be seen which shards exist; trying on");
                }
            }
            self.give_up(&seen);
            let (shards, now) = (self.others.shards(), Instant::now());
            let mine = |tag: &ShardTag| self.shared.owners.of(*tag).is_some();
            let others: Vec<_> =
                shards.into_iter().filter(|(tag, _)| !mine(tag)).map(|(_, name)| name).collect();
            for shard in orphans.due(&seen, &others, self.others.id(), now) {
                self.adopt(shard).await;
            }
        }
    }

    /// Takes a shard over.
    async fn adopt(&self, name: ShardName) {
        tracing::warn!(shard = name.as_str(), "its gateway is gone: taking over its jobs");
        match self.open(&name).await {
            Ok(shard) => {
                let epoch = shard.epoch;
                self.shared.owners.adopt(shard);
                self.claim();
                tracing::info!(shard = name.as_str(), epoch, "took over the jobs of another gateway");
            }
            Err(error) => {
                tracing::warn!(shard = name.as_str(), %error, "the jobs of another gateway were not taken over");
            }
        }
    }

    async fn open(&self, name: &ShardName) -> Result<Shard, Error> {
        let Shared { store, registry, config, .. } = &*self.shared;
        let (journal, records) = Journal::open(store, name.as_str()).await?;
        // Its jobs run functions that may have been deployed a moment ago.
        registry.look().await?;
        let epoch = journal.epoch();
        let mut state = owner::State::default();
        records.into_iter().for_each(|record| state.fold(record));
        let owned = owner::Config { drain: config.drain, shard: name.tag(), mirror: config.mirror.clone() };
        let owner = Owner::start(owned, store.clone(), journal, registry.clone(), state, Vec::new()).await?;
        Ok(Shard::new(name.clone(), epoch, owner))
    }

    /// Gives up what others own by now, or what was fenced.
    fn give_up(&self, seen: &View) {
        let highest = |name: &ShardName| {
            let others = gateways(seen).filter(|member| member.id != self.others.id());
            let leases = others.flat_map(|member| &member.shards).filter(|lease| lease.name == name.as_str());
            leases.map(|lease| lease.epoch).max()
        };
        let owners = &self.shared.owners;
        let lost = |shard: &Shard| shard.owner.has_ended() || highest(&shard.name) > Some(shard.epoch);
        for shard in owners.adopted().iter().filter(|shard| lost(shard)) {
            tracing::info!(shard = shard.name.as_str(), "its jobs have another owner again");
            owners.give_up(&shard.name);
            self.claim();
            let owner = shard.owner.clone();
            self.ending.spawn(owner.stop());
        }
        let home = owners.home();
        if highest(&home.name) > Some(home.epoch) {
            let why =
                "another gateway has taken over the jobs of this one, which was out of reach; start it again";
            self.superseded.send_replace(Some(Error::new(Kind::Conflict, Code::Fenced, why)));
        }
    }

    fn claim(&self) {
        self.others.claim(leases(&self.shared.owners.all()));
    }
}

/// What is announced of shards.
pub(crate) fn leases(shards: &[Shard]) -> Vec<ShardLease> {
    let lease = |shard: &Shard| ShardLease { name: shard.name.as_str().to_owned(), epoch: shard.epoch };
    shards.iter().map(lease).collect()
}

/// Since when shards are without an owner.
#[derive(Default)]
struct Orphans {
    since: BTreeMap<ShardName, Instant>,
    /// Shards that had an owner at some time.
    seen: BTreeSet<ShardName>,
}

impl Orphans {
    /// Those of `shards` that `me` should take over now. Each is named once, and then after a further time of waiting.
    fn due(&mut self, view: &View, shards: &[ShardName], me: u64, now: Instant) -> Vec<ShardName> {
        if !view.reachable || now.saturating_duration_since(view.at) > STALE {
            // Silence is no death while nobody can be heard.
            self.since.clear();
            return Vec::new();
        }
        let owned: HashMap<&str, u64> = gateways(view)
            .flat_map(|member| &member.shards)
            .map(|lease| (lease.name.as_str(), lease.epoch))
            .collect();
        let mut due = Vec::new();
        self.since.retain(|shard, _| shards.contains(shard));
        for shard in shards {
            if owned.contains_key(shard.as_str()) {
                self.seen.insert(shard.clone());
                self.since.remove(shard);
                continue;
            }
            let since = *self.since.entry(shard.clone()).or_insert(now);
            let grace = if self.seen.contains(shard) { GRACE } else { GRACE_UNSEEN };
            if now.saturating_duration_since(since) >= grace + TURN * rank(view, shard, me) {
                self.since.remove(shard);
                due.push(shard.clone());
            }
        }
        due
    }
}

/// How many gateways come before `me` in the order of this shard.
fn rank(view: &View, shard: &ShardName, me: u64) -> u32 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let place = |id: u64| hasher.hash_one((shard, id));
    let before = gateways(view).filter(|member| member.id != me && place(member.id) < place(me)).count();
    u32::try_from(before).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{
        cluster::{Member, Role},
        link::PROTOCOL,
    };

    use super::*;

    fn gateway(id: u64, shards: &[&str]) -> Member {
        let lease = |name: &&str| ShardLease { name: (*name).to_owned(), epoch: 1 };
        Member {
            id,
            role: Role::Gateway,
            name: format!("g{id}"),
            url: String::new(),
            peer: String::new(),
            protocol: PROTOCOL,
            shards: shards.iter().map(lease).collect(),
        }
    }

    #[test]
    fn one_gateway_takes_over_and_only_from_the_dead() {
        let start = Instant::now();
        let at = |ms: u64, reachable: bool, members: Vec<Member>| View {
            members,
            at: start + Duration::from_millis(ms),
            reachable,
        };
        let shards: Vec<ShardName> = vec!["g9".parse().unwrap()];
        let (mut first, mut second) = (Orphans::default(), Orphans::default());
        let mut look = |ms: u64, view: &View| {
            let now = start + Duration::from_millis(ms);
            (first.due(view, &shards, 1, now).len(), second.due(view, &shards, 2, now).len())
        };
        let all = || vec![gateway(1, &[]), gateway(2, &[]), gateway(9, &["g9"])];
        let left = || vec![gateway(1, &[]), gateway(2, &[])];
        assert_eq!(look(0, &at(0, true, all())), (0, 0));
        assert_eq!(look(1000, &at(1000, true, left())), (0, 0));
        // Redis goes away: the time starts anew.
        assert_eq!(look(2500, &at(2500, false, left())), (0, 0));
        assert_eq!(look(4000, &at(4000, true, left())), (0, 0));
        // A process that was stopped wakes with an old view.
        assert_eq!(look(9000, &at(4000, true, left())), (0, 0));
        assert_eq!(look(9100, &at(9100, true, left())), (0, 0));
        let (a, b) = look(11_200, &at(11_200, true, left()));
        assert_eq!(a + b, 1, "exactly one is first");
        let (c, d) = look(14_300, &at(14_300, true, left()));
        assert!(c + d >= 1 && (a, b) != (c, d), "if that one fails, the other one follows");
    }

    #[test]
    fn a_gateway_that_may_just_be_starting_is_waited_for() {
        let start = Instant::now();
        let mut orphans = Orphans::default();
        let shards: Vec<ShardName> = vec!["g9".parse().unwrap()];
        let mut due = |ms: u64| {
            let now = start + Duration::from_millis(ms);
            let view = View { members: vec![gateway(1, &[])], at: now, reachable: true };
            orphans.due(&view, &shards, 1, now).len()
        };
        assert_eq!([due(0), due(5000), due(9900), due(10_000)], [0, 0, 0, 1]);
    }
}
