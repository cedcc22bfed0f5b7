//! One gateway: opens the journal, folds it, starts owner and server, takes its place among others, and ends all in order.

use std::{net::SocketAddr, sync::Arc};

use fanfold_protocol::{Error, direct::DirectLane, record::Record};
use fanfold_store::{Journal, Members, Store};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::{
    auth::Auth,
    cluster::{Executors, Listener, Others, Takeover, leases},
    config::Config,
    direct::RecentLogs,
    idempotency::Keys,
    metrics::Metrics,
    mirror::Mirror,
    owner::{self, ExecutorLink, Owner},
    owners::{Owners, Shard},
    registry::{Keeper, Registry},
    routes,
    server::{Front, Server},
    shared::{Draining, Shared},
    triggers,
};

/// A running gateway.
pub struct Gateway {
    server: Server,
    shared: Arc<Shared>,
    registry: Task,
    /// Does what triggers are due.
    runner: triggers::Runner,
    /// Where executors dial, if they may.
    listener: Option<Listener>,
    /// Looks after the jobs of other gateways, if there may be some.
    takeover: Option<Takeover>,
}

/// The registry's task and what ends it.
struct Task {
    tracker: TaskTracker,
    stop: oneshot::Sender<()>,
}

impl Gateway {
    /// Replays the journal in `store`, goes on with the jobs in it, and serves REST. With `members`, where the store is
    /// shared, it is one of several gateways: see [`Gateway::join`].
    ///
    /// # Errors
    /// `conflict` / `fenced` where another gateway owns the journal; `lost` / `corrupt` where it is damaged;
    /// `platform` where the store or the address cannot be had.
    pub async fn start(
        config: Config,
        store: Store,
        direct: Arc<dyn DirectLane>,
        executors: Vec<ExecutorLink>,
        members: Option<Members>,
    ) -> Result<Self, Error> {
        let (journal, records) = Journal::open(&store, config.shard.as_str()).await?;
        let epoch = journal.epoch();
        let (functions, state) = fold(records);
        let (registry, keeper) = Registry::open(&store, functions).await?;
        let others = match members {
            Some(members) => Some(Arc::new(Others::find(members, &store, &config.shard).await?)),
            None => None,
        };
        let mirror = config.mirror.clone().map(|mirror| Mirror::new(mirror, store.clone()));
        let owned =
            owner::Config { drain: config.drain, shard: config.shard.tag(), mirror: config.mirror.clone() };
        let owner = Owner::start(owned, store.clone(), journal, registry.clone(), state, executors).await?;
        let shared = Arc::new(Shared {
            auth: Auth::new(config.token.as_deref()),
            registry,
            owners: Arc::new(Owners::new(Shard::new(config.shard.clone(), epoch, owner))),
            others,
            mirror,
            store,
            direct,
            metrics: Metrics::new(),
            recent_logs: RecentLogs::default(),
            keys: Keys::default(),
            deploys: Semaphore::new(config.deploys_max),
            draining: Draining::new(),
            triggers: triggers::Seen::default(),
            config,
        });
        let registry = Task::start(keeper);
        let router = routes::router(Arc::clone(&shared));
        let server = Server::start(Front { shared: Arc::clone(&shared), router }).await;
        match server {
            Ok(server) => {
                let runner = triggers::Runner::start(Arc::clone(&shared));
                Ok(Self { server, shared, registry, runner, listener: None, takeover: None })
            }
            Err(error) => {
                shared.home().clone().stop().await;
                registry.end().await;
                Err(error)
            }
        }
    }

    /// Lets executors of other processes dial it at `address`; those that are linked are in `executors`. Where it listens.
    ///
    /// # Errors
    /// `platform` / `unreachable` where the address cannot be had.
    pub async fn listen(&mut self, address: SocketAddr, executors: Executors) -> Result<SocketAddr, Error> {
        let listener = Listener::start(address, Arc::clone(&self.shared.owners), executors).await?;
        Ok(self.listener.insert(listener).address())
    }

    /// Takes its place among the members it was started with: announces itself as reached by clients at `url` and by
    /// executors at `peer`, and takes over the jobs of gateways that are gone. Without members it does nothing.
    pub fn join(&mut self, url: String, peer: String) {
        let Some(others) = &self.shared.others else { return };
        let home = self.shared.owners.home();
        others.announce(&home.name, url, peer, leases(std::slice::from_ref(home)));
        self.takeover = Some(Takeover::start(Arc::clone(&self.shared), Arc::clone(others)));
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// The functions it knows.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Resolves when the gateway cannot go on: another one took over its journal, or the journal is damaged. The
    /// process should then shut it down and end.
    pub async fn failed(&self) -> Option<Error> {
        let superseded = async {
            match &self.takeover {
                Some(takeover) => takeover.superseded().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = self.shared.home().ended() => ended,
            error = superseded => Some(error),
        }
    }

    /// Ends it: stops accepting connections; tells those that wait or follow; lets requests finish until the drain
    /// deadline, then cancels them; ends the owners' and the registry's tasks. What was accepted goes on after the next
    /// start, or with another gateway.
    pub async fn shutdown(self) {
        let Self { server, shared, registry, runner, listener, takeover } = self;
        shared.draining.begin();
        if let Some(takeover) = takeover {
            takeover.stop().await;
        }
        runner.stop().await;
        server.shutdown(shared.config.drain).await;
        futures::future::join_all(shared.owners.all().into_iter().map(|shard| shard.owner.stop())).await;
        // Not before: another gateway takes over what nobody announces, and these were still writing.
        if let Some(others) = &shared.others {
            others.withdraw().await;
        }
        registry.end().await;
        if let Some(listener) = listener {
            listener.stop().await;
        }
    }
}

impl Task {
    fn start(keeper: Keeper) -> Self {
        let (stop, stopped) = oneshot::channel();
        let tracker = TaskTracker::new();
        tracker.spawn(keeper.run(stopped));
        tracker.close();
        Self { tracker, stop }
    }

    async fn end(self) {
        // A task that is gone already needs no telling.
        let _ = self.stop.send(());
        self.tracker.wait().await;
    }
}

/// The jobs of a journal, and the records of functions from when those were in it too.
fn fold(records: Vec<Record>) -> (Vec<Record>, owner::State) {
    let mut state = owner::State::default();
    let mut functions = Vec::new();
    for record in records {
        match record {
            Record::Deployed(_)
            | Record::AliasSet { .. }
            | Record::Removed { .. }
            | Record::TriggerSet(_)
            | Record::TriggerRemoved { .. } => functions.push(record),
            other => state.fold(other),
        }
    }
    (functions, state)
}
