//! The HTTP/1 server: accepts connections up to a cap, serves each on a task of its own, and drains in order.
//!
//! Calls go straight from hyper to [`crate::direct`]; every other path goes through the axum router.

mod client;
mod connection;
mod io;
mod service;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::Router;
use fanfold_protocol::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};
use tokio_util::task::TaskTracker;

use crate::shared::Shared;

pub(crate) use client::Client;
use client::Order;

/// Pause after an accept that failed for want of file descriptors or memory: time for some to come free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every connection serves.
pub(crate) struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) router: Router,
}

/// A running server.
pub(crate) struct Server {
    local_addr: SocketAddr,
    stop: oneshot::Sender<()>,
    acceptor: TaskTracker,
    clients: Arc<Clients>,
}

/// Open connections, so that they can be told to end.
#[derive(Default)]
struct Clients {
    open: Mutex<HashMap<u64, Arc<Client>>>,
    tasks: TaskTracker,
}

impl Server {
    /// Binds and starts accepting.
    ///
    /// # Errors
    /// `platform` / `internal` where the address cannot be had.
    pub(crate) async fn start(front: Front) -> Result<Self, Error> {
        let listen = front.shared.config.listen;
        let refused = |e: std::io::Error| Error::internal(format!("cannot listen on {listen}: {e}"));
        let listener = TcpListener::bind(listen).await.map_err(refused)?;
        let local_addr = listener.local_addr().map_err(refused)?;
        let clients = Arc::new(Clients::default());
        let acceptor = TaskTracker::new();
        let (stop, stopped) = oneshot::channel();
        acceptor.spawn(accept(listener, Arc::new(front), Arc::clone(&clients), stopped));
        acceptor.close();
        Ok(Self { local_addr, stop, acceptor, clients })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops accepting, lets requests finish for `drain`, then cancels those that have not. Returns once every
    /// connection is closed.
    pub(crate) async fn shutdown(self, drain: Duration) {
        // An acceptor that is gone already needs no telling.
        let _ = self.stop.send(());
        self.acceptor.wait().await;
        self.clients.tasks.close();
        self.clients.order(Order::Drain);
        if tokio::time::timeout(drain, self.clients.tasks.wait()).await.is_err() {
            self.clients.order(Order::Abort);
            self.clients.tasks.wait().await;
        }
    }
}

impl Clients {
    fn order(&self, order: Order) {
        for client in self.open.lock().unwrap_or_else(PoisonError::into_inner).values() {
            client.order(order);
        }
    }

    fn add(&self, number: u64, client: &Arc<Client>) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(client));
    }

    fn remove(&self, number: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

/// Accepts until told to stop. At the cap, connections wait in the kernel's queue.
async fn accept(
    listener: TcpListener,
    front: Arc<Front>,
    clients: Arc<Clients>,
    mut stop: oneshot::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(front.shared.config.connections_max));
    for number in 0.. {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            _ = &mut stop => return,
            next = next => next,
        };
        match (place, accepted) {
            (Ok(place), Ok((stream, _peer))) => {
                let client = Arc::new(Client::new(Arc::clone(&front)));
                clients.add(number, &client);
                clients.tasks.spawn(serve(stream, number, client, Arc::clone(&clients), place));
            }
            (_, Err(error)) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Err(_closed), _) => return,
        }
    }
}

async fn serve(
    stream: TcpStream,
    number: u64,
    client: Arc<Client>,
    clients: Arc<Clients>,
    _place: OwnedSemaphorePermit,
) {
    let connections = &client.shared().metrics.connections;
    connections.fetch_add(1, Relaxed);
    // Without it a response of two packets waits for the client's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection without TCP_NODELAY: {error}");
    }
    connection::serve(stream, Arc::clone(&client)).await;
    clients.remove(number);
    connections.fetch_sub(1, Relaxed);
}
