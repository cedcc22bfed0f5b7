//! A proxy on the link between an executor and its gateway that knows where messages begin and end, and of which kind they are.
//!
//! It loses one message that it was told to lose, with the connection, as networks lose them: before it has left, halfway, or
//! after it has arrived but before anybody can say so. Everything else passes.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    task::JoinSet,
};

/// When a connection is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before the message has left.
    Request,
    /// With half of it on the other side.
    InFlight,
    /// When it has arrived whole, before any answer passes.
    Response,
}

/// Which message, at which moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The name of the message in `fanfold_protocol::message`.
    pub kind: &'static str,
    /// When.
    pub moment: Moment,
}

/// A running proxy. Dropping it ends its connections.
pub struct RpcProxy {
    address: SocketAddr,
    armed: Arc<Armed>,
    _accepting: JoinSet<()>,
}

#[derive(Default)]
struct Armed(Mutex<Option<Fault>>);

impl RpcProxy {
    /// A proxy to `to` (`host:port`) on a free port of the loopback interface.
    pub async fn start(to: &str) -> Self {
        let to: SocketAddr = to.parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let armed = Arc::<Armed>::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, to, armed.clone()));
        Self { address, armed, _accepting: accepting }
    }

    /// `host:port` of it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Has this happen once.
    pub fn arm(&self, fault: Fault) {
        *self.armed.fault() = Some(fault);
    }

    /// Whether what it was armed with has yet to happen. It is disarmed.
    pub fn disarm(&self) -> bool {
        self.armed.fault().take().is_some()
    }
}

impl Armed {
    fn fault(&self) -> MutexGuard<'_, Option<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment at which this message is lost, if it is the one.
    fn take(&self, kind: &str) -> Option<Moment> {
        self.fault().take_if(|fault| fault.kind == kind).map(|fault| fault.moment)
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, armed: Arc<Armed>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connect(near, to, armed.clone()));
    }
}

/// One connection, until either side ends it or a message is lost.
async fn connect(mut near: TcpStream, to: SocketAddr, armed: Arc<Armed>) {
    let Ok(mut far) = TcpStream::connect(to).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true), near.set_zero_linger(), far.set_zero_linger());
    // What every link begins with is no message.
    let mut magic = [0; 8];
    if near.read_exact(&mut magic).await.is_err() || far.write_all(&magic).await.is_err() {
        return;
    }
    let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
    tokio::select! {
        () = forward(near_in, far_out, &armed) => {}
        () = forward(far_in, near_out, &armed) => {}
    }
}

/// Passes messages on until the end of the connection, or until one is lost.
async fn forward(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, armed: &Armed) {
    let mut frame = Vec::new();
    while let Ok(length) = from.read_u32_le().await {
        frame.clear();
        frame.extend_from_slice(&length.to_le_bytes());
        frame.resize(frame.len() + length as usize, 0);
        if from.read_exact(&mut frame[4..]).await.is_err() {
            return;
        }
        let moment = kind(&frame[4..]).and_then(|kind| armed.take(kind));
        let passes = match moment {
            None | Some(Moment::Response) => frame.len(),
            Some(Moment::InFlight) => frame.len() / 2,
            Some(Moment::Request) => 0,
        };
        if to.write_all(&frame[..passes]).await.is_err() || moment.is_some() {
            return;
        }
    }
}

/// The name of a message: a variant in MessagePack, which is a text, or a map from one to its fields.
fn kind(message: &[u8]) -> Option<&str> {
    const MAP_OF_ONE: u8 = 0x81;
    const SHORT_TEXT: std::ops::RangeInclusive<u8> = 0xa0..=0xbf;
    let message = message.strip_prefix(&[MAP_OF_ONE]).unwrap_or(message);
    let (head, rest) = message.split_first().filter(|(head, _)| SHORT_TEXT.contains(head))?;
    str::from_utf8(rest.get(..usize::from(head & 0x1f))?).ok()
}
