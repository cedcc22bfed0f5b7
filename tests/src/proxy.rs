//! A TCP proxy that does to connections what networks do: delay, silence, cuts in one direction, resets.
//!
//! It stands between any two processes of a cluster: an executor and a gateway, a member and Redis, anybody and the object
//! store. How it treats connections is said for all of them, also those to come, or for one.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// How a connection is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// Bytes pass.
    Pass,
    /// Bytes pass so much later.
    Delay(Duration),
    /// Nothing passes, and nobody is told: the other side is gone without a word, or a firewall has forgotten the connection.
    /// What was sent meanwhile passes when bytes pass again.
    HalfOpen,
    /// Nothing passes from the one that dialled; the other direction is sound.
    CutRequests,
    /// Nothing passes to the one that dialled; the other direction is sound.
    CutAnswers,
    /// Both sides get a reset. A new connection gets one as soon as it is there.
    Reset,
}

/// A running proxy. Dropping it ends its connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

struct Shared {
    to: SocketAddr,
    state: Mutex<State>,
}

struct State {
    /// Of new connections.
    treatment: Treatment,
    /// Of each connection there ever was.
    connections: Vec<watch::Sender<Treatment>>,
}

impl Proxy {
    /// A proxy to `to` on a free port of the loopback interface.
    pub async fn start(to: &str) -> Self {
        Self::start_on("127.0.0.1:0", to).await
    }

    /// The same on an address. `to` may be a URL.
    pub async fn start_on(listen: &str, to: &str) -> Self {
        let to = to.split_once("://").map_or(to, |(_, rest)| rest).trim_end_matches('/');
        let to = to.parse().expect("an address");
        let listener = TcpListener::bind(listen).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = State { treatment: Treatment::Pass, connections: Vec::new() };
        let shared = Arc::new(Shared { to, state: Mutex::new(state) });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, shared.clone()));
        Self { address, shared, _accepting: accepting }
    }

    /// `host:port` of it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Treats every connection so from now on, those that come included.
    pub fn treat(&self, treatment: Treatment) {
        let mut state = self.shared.state();
        state.treatment = treatment;
        for connection in &state.connections {
            connection.send_replace(treatment);
        }
    }

    /// Treats one connection so, the first being 0.
    pub fn treat_one(&self, connection: usize, treatment: Treatment) {
        self.shared.state().connections[connection].send_replace(treatment);
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.shared.state().connections.len()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> watch::Receiver<Treatment> {
        let mut state = self.state();
        let (told, treatment) = watch::channel(state.treatment);
        state.connections.push(told);
        treatment
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connect(near, shared.to, shared.begin()));
    }
}

/// One connection, from its dialling to its end.
async fn connect(mut near: TcpStream, to: SocketAddr, mut treatment: watch::Receiver<Treatment>) {
    // Nobody there: the one that dialled sees its connection close, as from a proxy.
    let Ok(mut far) = TcpStream::connect(to).await else { return };
    // A reset is what a socket sends that is closed without lingering. An orderly end comes before, by a shutdown.
    let _ = (near.set_nodelay(true), far.set_nodelay(true), near.set_zero_linger(), far.set_zero_linger());
    // Borrowed halves: those that own their socket would end it in order when they are dropped.
    let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
    let requests = forward(near_in, far_out, treatment.clone(), Treatment::CutRequests);
    let answers = forward(far_in, near_out, treatment.clone(), Treatment::CutAnswers);
    tokio::select! {
        _ = async { tokio::join!(requests, answers) } => {}
        _ = treatment.wait_for(|treatment| *treatment == Treatment::Reset) => {}
    }
}

/// Passes bytes on until their end; `cut` is the treatment that holds this direction up.
async fn forward(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut treatment: watch::Receiver<Treatment>,
    cut: Treatment,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await;
        let passes = |now: &Treatment| *now != cut && !matches!(now, Treatment::HalfOpen | Treatment::Reset);
        // The proxy's end is the connection's, too.
        let Ok(now) = treatment.wait_for(passes).await.map(|now| *now) else { return };
        if let Treatment::Delay(delay) = now {
            tokio::time::sleep(delay).await;
        }
        let count = read.unwrap_or(0);
        if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what comes.
    async fn echo() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                connections.spawn(async move {
                    let (mut from, mut to) = socket.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        (address, serving)
    }

    async fn answers(socket: &mut TcpStream) -> bool {
        socket.write_all(b"ping").await.expect("the proxy takes it");
        let mut answer = [0; 4];
        let read = tokio::time::timeout(Duration::from_millis(100), socket.read_exact(&mut answer));
        read.await.is_ok_and(|read| read.is_ok())
    }

    #[tokio::test]
    async fn each_treatment_does_what_it_says() {
        let (to, _serving) = echo().await;
        let proxy = Proxy::start(&to.to_string()).await;
        let mut one = TcpStream::connect(proxy.address()).await.expect("it listens");
        let mut two = TcpStream::connect(proxy.address()).await.expect("it listens");
        assert!(answers(&mut one).await && answers(&mut two).await);
        for silent in [Treatment::HalfOpen, Treatment::CutRequests, Treatment::CutAnswers] {
            proxy.treat_one(0, silent);
            assert!(!answers(&mut one).await, "{silent:?}");
            assert!(answers(&mut two).await, "{silent:?} is for the other one");
            proxy.treat(Treatment::Pass);
            let mut late = [0; 4];
            one.read_exact(&mut late).await.expect("what was held up comes now");
        }
        proxy.treat(Treatment::Reset);
        let reset = one.read(&mut [0; 4]).await.expect_err("no orderly end");
        assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(proxy.connections(), 2);
    }
}
