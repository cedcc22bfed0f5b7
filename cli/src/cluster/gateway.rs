//! `fanfold gateway`: serves REST, owns jobs, and schedules them on the executors that dial it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fanfold_gateway::{
    Gateway, Prices,
    cluster::{Executors, RemoteLane},
};
use fanfold_protocol::{Error, cluster::Role, link::ShardName};
use fanfold_store::members::{Members, View};
use serde_json::json;

use super::{Common, advertised, not_started};
use crate::{
    failure::Failure,
    output::Output,
    up::{
        self, Access, PriceList,
        platform::{ABORTED, RUNTIME_END, runtime, serve},
        signals::Signals,
    },
};

/// Time in which a gateway that was killed is no longer taken for alive: its announcement lasts three seconds, and this
/// process looks once a second.
const ANOTHER_EXPIRES: Duration = Duration::from_secs(5);

/// `gateway`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fanfold gateway --store s3://bucket/fanfold --name g1 --redis redis://127.0.0.1:6379"
)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Its name, and that of the journal it owns; no other gateway may have it
    #[arg(long, default_value = "g0")]
    name: ShardName,
    /// Address to serve REST on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Address that executors dial; port 0 takes a free one. Without --tls-cert it takes anybody: keep it private
    #[arg(long, default_value = "127.0.0.1:7071")]
    peer: SocketAddr,
    /// HOST:PORT that executors are told to dial [default: --peer]
    #[arg(long)]
    advertise: Option<String>,
    /// Where other gateways reach this one, as http://HOST:PORT [default: --listen]
    #[arg(long, value_name = "URL", value_parser = base_url)]
    advertise_url: Option<String>,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    prices: PriceList,
}

/// `http://HOST:PORT`.
fn base_url(text: &str) -> Result<String, String> {
    let authority = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let parts = authority.and_then(|authority| authority.rsplit_once(':'));
    match parts {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() => {
            Ok(format!("http://{host}:{port}"))
        }
        _ => Err("write http://HOST:PORT, as in http://10.0.0.1:7070".to_owned()),
    }
}

/// Runs a gateway until it is told to stop.
pub fn run(args: &Args, out: Output) -> Result<(), Failure> {
    args.common.check()?;
    up::start_log(&args.common.log)?;
    up::raise_open_files();
    let token = args.access.token(args.listen)?;
    let prices = args.prices.read()?;
    up::check_address(args.listen)?;
    let runtime = runtime("gateway")?;
    let ended: Result<Option<Error>, Failure> = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let gateway = tokio::select! {
            started = start(args, token, prices, out) => started?,
            signal = signals.next() => {
                tracing::info!(signal, "stopped before it was ready");
                return Ok(None);
            }
        };
        let failed = serve(&gateway, &mut signals).await;
        tokio::select! {
            () = gateway.shutdown() => Ok(failed),
            signal = signals.next() => {
                tracing::warn!(signal, "aborting");
                std::process::exit(ABORTED);
            }
        }
    });
    runtime.shutdown_timeout(RUNTIME_END);
    match ended? {
        None => Ok(()),
        Some(error) => Err(Failure::platform(&error).during("the gateway cannot go on")),
    }
}

async fn start(args: &Args, token: Option<String>, prices: Prices, out: Output) -> Result<Gateway, Failure> {
    let members = args.common.members().await.map_err(not_started)?;
    if let Some(members) = &members {
        be_alone(members, &args.name).await?;
    }
    let store = args.common.open_store().await.map_err(not_started)?;
    let config = fanfold_gateway::Config {
        shard: args.name.clone(),
        listen: args.listen,
        token,
        prices,
        mirror: args.common.mirror().map_err(not_started)?,
        ..fanfold_gateway::Config::default()
    };
    let executors = Executors::new(args.common.tls.security(args.peer)?);
    let lane = Arc::new(RemoteLane::new(executors.clone()));
    let started = Gateway::start(config, store, lane, Vec::new(), members).await;
    let mut gateway = started.map_err(not_started)?;
    let peer = gateway.listen(args.peer, executors).await.map_err(not_started)?;
    let peer = advertised(args.advertise.as_ref(), peer, "--advertise HOST:PORT")?;
    let here = gateway.local_addr();
    let url = match &args.advertise_url {
        Some(url) => url.clone(),
        // Alone, nobody needs to reach it but its clients, who know where it is.
        None if args.common.redis.is_none() => format!("http://{here}"),
        None => format!("http://{}", advertised(None, here, "--advertise-url http://HOST:PORT")?),
    };
    gateway.join(url.clone(), peer.clone());
    let told = json!({ "url": url, "peer": peer, "name": args.name, "pid": std::process::id() });
    out.print(&told, |_| format!("gateway {} is ready on {url}; executors dial {peer}", args.name.as_str()))?;
    Ok(gateway)
}

/// Waits until no live gateway has this name: it may have been killed a moment ago. Two of one name would take the journal
/// from each other.
async fn be_alone(members: &Members, name: &ShardName) -> Result<(), Failure> {
    let mut view = members.view();
    let other = |view: &View| {
        let mut gateways = view.members.iter().filter(|member| member.role == Role::Gateway);
        gateways.find(|member| member.name == name.as_str()).map(|member| member.url.clone())
    };
    let gone = async {
        // The view's keeper lives as long as `members`.
        while other(&view.borrow_and_update()).is_some() && view.changed().await.is_ok() {}
    };
    if tokio::time::timeout(ANOTHER_EXPIRES, gone).await.is_ok() {
        return Ok(());
    }
    let url = other(&view.borrow()).unwrap_or_default();
    Err(Failure::new(
        format!("a gateway called {} runs at {url}", name.as_str()),
        "give this one another --name, or stop that one first",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_has_a_host_and_a_port() {
        assert_eq!(base_url("http://10.0.0.1:7070/").unwrap(), "http://10.0.0.1:7070");
        assert_eq!(base_url("http://[::1]:80").unwrap(), "http://[::1]:80");
        for bad in ["10.0.0.1:7070", "https://h:1", "http://h", "http://:1", "http://h:x", "http://h/p:1", ""]
        {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }
}
