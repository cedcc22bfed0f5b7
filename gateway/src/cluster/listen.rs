//! Where executors dial: each link is checked, welcomed and handed to the owner of the shard it asks for.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fanfold_peer::{Answered, answer};
use fanfold_protocol::{
    Code, Error, Kind,
    limit::MESSAGE_QUEUE_MAX,
    link::{PROTOCOL, Welcome, check_protocol},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::Executors;
use crate::{
    owner::ExecutorLink,
    owners::{Owners, Shard},
};

/// Before the next try after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening address for executors.
pub struct Listener {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// `platform` / `unreachable` where the address cannot be had.
    pub(crate) async fn start(
        address: SocketAddr,
        owners: Arc<Owners>,
        executors: Executors,
    ) -> Result<Self, Error> {
        let failed = |e: std::io::Error| {
            let message =
                format!("cannot listen for executors on {address}: {e}; choose another --peer address");
            Error::new(Kind::Platform, Code::Unreachable, message)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accept = Accept { owners, executors, stop: stop.clone(), tasks: tasks.clone() };
        tasks.spawn(accept.run(listener));
        tasks.close();
        Ok(Self { address, stop, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no further links and cuts those there are.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

struct Accept {
    owners: Arc<Owners>,
    executors: Executors,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Accept {
    async fn run(self, listener: TcpListener) {
        let accept = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = accept.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, from)) => {
                    let this = Arc::clone(&accept);
                    accept.tasks.spawn(async move {
                        tokio::select! {
                            () = this.link(stream, from) => {}
                            () = this.stop.cancelled() => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "an executor's connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn link(&self, stream: TcpStream, from: SocketAddr) {
        match answer(self.executors.security(), stream).await {
            Ok(answered) => match self.wanted(&answered) {
                Ok(shard) => self.take(answered, shard).await,
                Err(error) => {
                    tracing::warn!(name = answered.hello.name, %from, %error, "an executor was refused");
                    answered.refuse(error).await;
                }
            },
            Err(error) => tracing::warn!(%from, %error, "a link was not begun"),
        }
    }

    /// The shard that an executor wants to work for.
    fn wanted(&self, answered: &Answered) -> Result<Shard, Error> {
        let hello = &answered.hello;
        check_protocol(&format!("executor `{}`", hello.name), hello.protocol)?;
        let Some(wanted) = &hello.shard else { return Ok(self.owners.home().clone()) };
        self.owners.named(wanted).ok_or_else(|| {
            let why = format!("this gateway does not own shard `{}`", wanted.as_str());
            Error::new(Kind::Conflict, Code::Precondition, why).retryable(true)
        })
    }

    async fn take(&self, answered: Answered, shard: Shard) {
        let Shard { name, epoch, owner, .. } = shard;
        let tag = name.tag();
        let welcome = Welcome { protocol: PROTOCOL, shard: name, epoch };
        let (hello, link) = match answered.welcome(&welcome).await {
            Ok(begun) => begun,
            Err(error) => return tracing::debug!(%error, "an executor went away"),
        };
        let (to, outgoing) = mpsc::channel(MESSAGE_QUEUE_MAX);
        let (incoming, from) = mpsc::channel(MESSAGE_QUEUE_MAX);
        let (name, executor) = (hello.name, hello.offer.executor);
        let target = self.executors.add(&hello.offer, hello.peer.clone());
        let held = hello.held.into_iter().filter(|held| held.key.job.shard() == tag).collect();
        let peer = Some(hello.peer);
        let joined = ExecutorLink { offer: hello.offer, held, name: name.clone(), peer, to, from };
        if owner.join(joined).await.is_ok() {
            tracing::info!(name, %executor, "an executor joined");
            let ended = link.run(outgoing, incoming).await;
            tracing::info!(name, %executor, "an executor's link ended: {ended}");
        }
        self.executors.remove(&target);
    }
}
