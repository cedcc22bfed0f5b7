//! All roles in one process: started in order, stopped in the reverse one.
//!
//! Two runtimes: the gateway's, whose threads also run synchronous calls, and the executor's for tasks. A burst of
//! either cannot keep the other from its threads.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fanfold_executor::{Executor, Session};
use fanfold_gateway::{Gateway, owner::ExecutorLink};
use fanfold_protocol::{
    Error,
    direct::DirectLane,
    limit::MESSAGE_QUEUE_MAX,
    link::ShardTag,
    message::{Offer, ToExecutor},
};
use fanfold_store::Store;
use tokio::{
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::JoinHandle,
};

use super::{Settings, signals::Signals};
use crate::failure::Failure;

/// How long the threads of blocking work may take to end once everything is joined.
pub const RUNTIME_END: Duration = Duration::from_secs(2);
/// What a shell shows for a process that was interrupted.
pub const ABORTED: i32 = 130;

/// A running platform.
pub struct Platform {
    gateway_runtime: Runtime,
    executor_runtime: Runtime,
    roles: Roles,
    signals: Signals,
    address: SocketAddr,
    offer: Offer,
}

/// What has to be stopped, in this order.
struct Roles {
    gateway: Gateway,
    /// Carries the owner's messages to the executor; ends when the gateway closes its end.
    pump: JoinHandle<()>,
    executor: Executor,
}

impl Platform {
    /// Opens the directory, starts the executor and then the gateway that uses it.
    pub fn start(settings: &Settings) -> Result<Self, Failure> {
        let gateway_runtime = runtime("gateway")?;
        let executor_runtime = runtime("executor")?;
        // Before anything can be interrupted half-way.
        let signals = gateway_runtime.block_on(async { Signals::listen() })?;
        let store = gateway_runtime.block_on(Store::open_dir(&settings.dir)).map_err(starting)?;

        let (events, from) = mpsc::channel(MESSAGE_QUEUE_MAX);
        let executor = Executor::start(settings.executor.clone(), store.clone());
        let executor = executor_runtime.block_on(executor).map_err(starting)?;
        let session = executor.attach(ShardTag::of("g0"), events);
        let (to, messages) = mpsc::channel(MESSAGE_QUEUE_MAX);
        let pump = executor_runtime.spawn(pump(messages, session));

        let offer = executor.offer();
        let name = String::from("local");
        let held = executor.held(None);
        let link = ExecutorLink { offer: offer.clone(), held, name, peer: None, to, from };
        let lane: Arc<dyn DirectLane> = Arc::new(executor.clone());
        let gateway = Gateway::start(gateway_config(settings), store, lane, vec![link], None);
        let gateway = gateway_runtime.block_on(gateway).map_err(starting)?;
        let address = gateway.local_addr();
        let roles = Roles { gateway, pump, executor };
        Ok(Self { gateway_runtime, executor_runtime, roles, signals, address, offer })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tasks that compute at once.
    pub fn slots(&self) -> u32 {
        self.offer.cpu_millis / 1000
    }

    /// Bytes for functions.
    pub fn memory(&self) -> u64 {
        self.offer.memory
    }

    /// Serves until SIGTERM or SIGINT, or until the gateway cannot go on; then drains. A signal while it drains ends
    /// the process without waiting.
    ///
    /// # Errors
    /// Why the gateway could not go on.
    pub fn run_until_stopped(self) -> Result<(), Failure> {
        let Self { gateway_runtime, executor_runtime, roles, mut signals, .. } = self;
        let failed = gateway_runtime.block_on(async {
            let failed = serve(&roles.gateway, &mut signals).await;
            tokio::select! {
                () = roles.stop() => failed,
                signal = signals.next() => {
                    tracing::warn!(signal, "aborting");
                    std::process::exit(ABORTED);
                }
            }
        });
        executor_runtime.shutdown_timeout(RUNTIME_END);
        gateway_runtime.shutdown_timeout(RUNTIME_END);
        tracing::info!("stopped");
        failed.map_or(Ok(()), |error| Err(Failure::platform(&error).during("the gateway cannot go on")))
    }
}

/// Waits for a reason to stop; answers it where it is a failure.
pub async fn serve(gateway: &Gateway, signals: &mut Signals) -> Option<Error> {
    tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "draining: running requests may finish; a second signal aborts");
            None
        }
        failed = gateway.failed() => {
            let error = failed.unwrap_or_else(|| Error::internal("the gateway ended by itself"));
            tracing::error!(%error, "the gateway cannot go on");
            Some(error)
        }
    }
}

impl Roles {
    /// The reverse of the start: the gateway drains and closes its links, then nobody needs the executor.
    async fn stop(self) {
        self.gateway.shutdown().await;
        if let Err(error) = self.pump.await {
            tracing::error!(%error, "the executor's messages were cut off");
        }
        self.executor.stop().await;
    }
}

/// Hands the owner's messages on in order, until the owner is gone or the executor stops.
async fn pump(mut messages: mpsc::Receiver<ToExecutor>, session: Session) {
    while let Some(message) = messages.recv().await {
        if session.send(message).is_err() {
            return;
        }
    }
}

pub fn runtime(name: &str) -> Result<Runtime, Failure> {
    let built = Builder::new_multi_thread().thread_name(format!("fanfold-{name}")).enable_all().build();
    built.map_err(|e| Failure::new(format!("cannot start threads: {e}"), "raise `ulimit -u` and `ulimit -n`"))
}

fn gateway_config(settings: &Settings) -> fanfold_gateway::Config {
    fanfold_gateway::Config {
        listen: settings.listen,
        token: settings.token.clone(),
        prices: settings.prices.clone(),
        ..fanfold_gateway::Config::default()
    }
}

pub fn starting(error: Error) -> Failure {
    Failure::platform(&error).during("cannot start")
}
