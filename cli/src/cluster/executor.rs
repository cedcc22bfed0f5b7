//! `fanfold executor`: runs functions for every gateway of a cluster, holds partitions, and serves them to its peers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fanfold_executor::{
    Executor,
    peer::{
        links::{Links, OwnerAddress},
        serve::Server,
    },
};
use fanfold_protocol::{
    ExecutorId,
    cluster::{Member, Role},
    link::PROTOCOL,
};
use fanfold_store::members::{Announcement, Members, View};
use serde_json::json;
use tokio::sync::watch;

use super::{Common, advertised, not_started};
use crate::{
    failure::Failure,
    output::Output,
    units,
    up::{
        self, Capacity,
        platform::{ABORTED, RUNTIME_END, runtime},
        signals::Signals,
    },
};

/// How long attempts may go on after it was told to stop.
const DRAIN: Duration = Duration::from_secs(60);

/// `executor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fanfold executor --store s3://bucket/fanfold --redis redis://127.0.0.1:6379"
)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// HOST:PORT that a gateway's --peer listens on; without it, --redis says where gateways are
    #[arg(long, required_unless_present = "redis")]
    gateway: Vec<String>,
    /// What people call it [default: its id]
    #[arg(long)]
    name: Option<String>,
    /// Address to serve partitions and calls on, to other members; port 0 takes a free one. Without --tls-cert it takes
    /// anybody: keep it private
    #[arg(long, default_value = "127.0.0.1:0")]
    peer: SocketAddr,
    /// HOST:PORT where other members reach it [default: --peer]
    #[arg(long)]
    advertise: Option<String>,
    #[command(flatten)]
    capacity: Capacity,
}

/// Everything that runs.
struct Running {
    executor: Executor,
    server: Server,
    links: Arc<Links>,
    announced: Option<Announcement>,
    /// Keeps `links` in step with who is there.
    view: Option<watch::Receiver<Arc<View>>>,
}

/// Runs an executor until it is told to stop.
pub fn run(args: &Args, out: Output) -> Result<(), Failure> {
    args.common.check()?;
    // Unique without asking anybody: two of 63 random bits meet once in a very long time.
    let id = ExecutorId(rand::random::<u64>() >> 1);
    up::start_log(&args.common.log)?;
    let mut config = args.capacity.executor(id, std::env::temp_dir())?;
    config.security = args.common.tls.security(args.peer)?;
    up::raise_open_files();
    let runtime = runtime("executor")?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let mut running = tokio::select! {
            started = start(args, config, out) => started?,
            signal = signals.next() => {
                tracing::info!(signal, "stopped before it was ready");
                return Ok(());
            }
        };
        let signal = running.follow(&mut signals).await;
        tracing::info!(signal, "draining: running tasks may finish; a second signal aborts");
        tokio::select! {
            () = running.stop() => Ok(()),
            signal = signals.next() => {
                tracing::warn!(signal, "aborting");
                std::process::exit(ABORTED);
            }
        }
    });
    runtime.shutdown_timeout(RUNTIME_END);
    ended
}

async fn start(args: &Args, config: fanfold_executor::Config, out: Output) -> Result<Running, Failure> {
    let members = args.common.members().await.map_err(not_started)?;
    let store = args.common.open_store().await.map_err(not_started)?;
    let (slots, memory) = (config.slots, config.memory);
    let executor = Executor::start(config, store).await.map_err(not_started)?;
    let id = executor.offer().executor;
    let server = Server::start(args.peer, executor.clone()).await.map_err(not_started)?;
    let peer = advertised(args.advertise.as_ref(), server.address(), "--advertise HOST:PORT")?;
    let name = args.name.clone().unwrap_or_else(|| id.to_string());
    let links = Arc::new(Links::new(executor.clone(), name.clone(), peer.clone()));
    links.want(&fixed(args));
    let announced = members.as_ref().map(|members| announce(members, id, &name, &peer));
    let told = json!({
        "name": name, "executor": id, "peer": peer, "slots": slots, "memory": memory, "pid": std::process::id(),
    });
    out.print(&told, |_| {
        format!(
            "executor {name} is ready with {slots} slots and {}; peers reach it on {peer}",
            units::bytes(memory)
        )
    })?;
    let view = members.filter(|_| args.gateway.is_empty()).map(|members| members.view());
    Ok(Running { executor, server, links, announced, view })
}

fn fixed(args: &Args) -> Vec<OwnerAddress> {
    args.gateway.iter().map(|address| OwnerAddress { shard: None, address: address.clone() }).collect()
}

fn announce(members: &Members, id: ExecutorId, name: &str, peer: &str) -> Announcement {
    members.announce(Member {
        id: id.0,
        role: Role::Executor,
        name: name.to_owned(),
        url: String::new(),
        peer: peer.to_owned(),
        protocol: PROTOCOL,
        shards: Vec::new(),
    })
}

impl Running {
    /// Links to whoever owns a shard, until a signal comes; answers its name.
    async fn follow(&mut self, signals: &mut Signals) -> &'static str {
        loop {
            if let Some(view) = &mut self.view {
                let seen = view.borrow_and_update().clone();
                self.links.want(&owners(&seen));
            }
            let changed = async {
                let seen = match &mut self.view {
                    Some(view) => view.changed().await.is_ok(),
                    None => false,
                };
                if !seen {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                signal = signals.next() => return signal,
                () = changed => {}
            }
        }
    }

    /// Takes nothing new, lets what runs finish, uploads what only it has, says good-bye.
    async fn stop(self) {
        let Self { executor, server, links, announced, .. } = self;
        links.leave();
        if let Some(announced) = announced {
            announced.withdraw().await;
        }
        match tokio::time::timeout(DRAIN, executor.drain()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "some partitions were not uploaded and are made again elsewhere")
            }
            Err(_) => tracing::warn!("attempts did not end in time and run again elsewhere"),
        }
        links.stop().await;
        server.stop().await;
        executor.stop().await;
        tracing::info!("stopped");
    }
}

/// Who owns each shard: the live gateway that announces it with the highest epoch.
fn owners(view: &View) -> Vec<OwnerAddress> {
    let mut claims: Vec<(&str, u64, &str)> = view
        .members
        .iter()
        .filter(|member| member.role == Role::Gateway && member.protocol == PROTOCOL)
        .flat_map(|member| {
            member.shards.iter().map(|shard| (shard.name.as_str(), shard.epoch, member.peer.as_str()))
        })
        .collect();
    claims.sort_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)));
    claims.dedup_by_key(|claim| claim.0);
    let owner = |(shard, _, peer): (&str, u64, &str)| {
        Some(OwnerAddress { shard: Some(shard.parse().ok()?), address: peer.to_owned() })
    };
    claims.into_iter().filter_map(owner).collect()
}
