//! One gateway: opens the journal, folds it, starts owner and server, and ends them in order.

use std::{net::SocketAddr, sync::Arc};

use fanfold_protocol::{Error, direct::DirectLane, record::Record};
use fanfold_store::{Journal, Store};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::{
    auth::Auth,
    cluster::{Executors, Listener, Shard},
    config::Config,
    direct::RecentLogs,
    idempotency::Keys,
    metrics::Metrics,
    owner::{self, Appender, ExecutorLink, Owner},
    registry::{Append, Catalog, Registry},
    routes,
    server::{Front, Server},
    shared::{Draining, Shared},
};

/// A running gateway.
pub struct Gateway {
    server: Server,
    shared: Arc<Shared>,
    registry: Task,
    /// The owner's epoch.
    epoch: u64,
    /// Where executors dial, if they may.
    listener: Option<Listener>,
}

/// The registry's task and what ends it.
struct Task {
    tracker: TaskTracker,
    stop: oneshot::Sender<()>,
}

impl Gateway {
    /// Replays the journal in `store`, goes on with the jobs in it, and serves REST.
    ///
    /// # Errors
    /// `conflict` / `fenced` where another gateway owns the journal; `lost` / `corrupt` where it is damaged;
    /// `platform` where the store or the address cannot be had.
    pub async fn start(
        config: Config,
        store: Store,
        direct: Arc<dyn DirectLane>,
        executors: Vec<ExecutorLink>,
    ) -> Result<Self, Error> {
        let (journal, records) = Journal::open(&store, config.shard.as_str()).await?;
        let epoch = journal.epoch();
        let (catalog, state) = fold(records);
        let appender = Appender::default();
        let (registry, task) = start_registry(catalog, appender.clone());
        let owned = owner::Config { drain: config.drain, shard: config.shard.tag() };
        let owner = Owner::start(owned, store.clone(), journal, registry.clone(), state, executors).await?;
        owner.connect(&appender);
        let shared = Arc::new(Shared {
            auth: Auth::new(config.token.as_deref()),
            registry,
            owner,
            store,
            direct,
            metrics: Metrics::new(),
            recent_logs: RecentLogs::default(),
            keys: Keys::default(),
            deploys: Semaphore::new(config.deploys_max),
            draining: Draining::new(),
            config,
        });
        let router = routes::router(Arc::clone(&shared));
        let server = Server::start(Front { shared: Arc::clone(&shared), router }).await;
        match server {
            Ok(server) => Ok(Self { server, shared, registry: task, epoch, listener: None }),
            Err(error) => {
                shared.owner.clone().stop().await;
                task.end().await;
                Err(error)
            }
        }
    }

    /// Lets executors of other processes dial it at `address`; those that are linked are in `executors`. Where it listens.
    ///
    /// # Errors
    /// `platform` / `unreachable` where the address cannot be had.
    pub async fn listen(&mut self, address: SocketAddr, executors: Executors) -> Result<SocketAddr, Error> {
        let name = self.shared.config.shard.clone();
        let shard = Shard { name, epoch: self.epoch, owner: self.shared.owner.clone() };
        let listener = Listener::start(address, shard, executors).await?;
        Ok(self.listener.insert(listener).address())
    }

    /// The epoch under which it owns its shard.
    pub fn epoch(&self) -> u64 {
        self.epoch
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
        self.shared.owner.ended().await
    }

    /// Ends it: stops accepting connections; tells those that wait or follow; lets requests finish until the drain
    /// deadline, then cancels them; ends the registry's and the owner's task. What was accepted goes on after the next
    /// start.
    pub async fn shutdown(self) {
        let Self { server, shared, registry, listener, .. } = self;
        shared.draining.begin();
        server.shutdown(shared.config.drain).await;
        registry.end().await;
        shared.owner.clone().stop().await;
        if let Some(listener) = listener {
            listener.stop().await;
        }
    }
}

impl Task {
    async fn end(self) {
        // A task that is gone already needs no telling.
        let _ = self.stop.send(());
        self.tracker.wait().await;
    }
}

fn fold(records: Vec<Record>) -> (Catalog, owner::State) {
    let mut catalog = Catalog::default();
    let mut state = owner::State::default();
    for record in records {
        catalog.fold(&record);
        state.fold(record);
    }
    (catalog, state)
}

fn start_registry(catalog: Catalog, appender: Appender) -> (Registry, Task) {
    let append: Append = Box::new(move |records| {
        let appender = appender.clone();
        Box::pin(async move { appender.append(records).await })
    });
    let (registry, changes) = Registry::new(catalog, append);
    let (stop, stopped) = oneshot::channel();
    let tracker = TaskTracker::new();
    tracker.spawn(changes.run(stopped));
    tracker.close();
    (registry, Task { tracker, stop })
}
