//! One connection's task: hyper, the server's orders, and a watchdog against clients that stand still.
//!
//! hyper's own header timeout makes and removes a timer for every request. The watchdog instead looks at the
//! connection's counts every few seconds, so a request costs it nothing and a timeout is late by at most half.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::FutureExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    time::{Instant, Sleep},
};

use super::{
    client::{Client, Counts, Order},
    io::Counting,
    service,
};
use crate::config::Config;

/// How long in all, how long without a byte, and for how many bytes a client that is being refused may go on sending.
/// Many clients read nothing before they have sent their whole body, over links of any speed.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_IDLE: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: u64 = 256 << 20;

/// Serves one connection until it closes.
pub(super) async fn serve(stream: TcpStream, client: Arc<Client>) {
    let config = &client.shared().config;
    let io = TokioIo::new(Counting::new(stream, Arc::clone(&client)));
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(config.header_bytes_max)
        .serve_connection(io, service::of(Arc::clone(&client)));
    let mut watchdog = Watchdog::new(config);
    let mut draining = false;
    let ended = poll_fn(|cx| {
        let order = client.ordered(cx.waker()).max(watchdog.poll(cx, &client));
        if order == Order::Abort {
            return Poll::Ready(false);
        }
        if order == Order::Drain && !draining {
            draining = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        // An error of one connection is its client's doing: it went away or wrote nonsense, and hyper answered that.
        Pin::new(&mut connection)
            .poll(cx)
            .map(|result| result.inspect_err(|e| tracing::debug!("{e}")).is_ok())
    })
    .await;
    if ended {
        let aborted = poll_fn(|cx| match client.ordered(cx.waker()) {
            Order::Abort => Poll::Ready(()),
            Order::Serve | Order::Drain => Poll::Pending,
        });
        tokio::select! {
            () = aborted => {}
            () = linger(connection.into_parts().io.into_inner()) => {}
        }
    }
}

/// Reads on, after the response and our end of the connection, until the client ends its own. A connection that is
/// closed with bytes unread is reset, and a client that was refused before it had sent its whole body would then
/// lose the answer that says why.
async fn linger(mut io: Counting) {
    let discard = async {
        let mut buffer = vec![0; 64 << 10];
        let mut total: u64 = 0;
        while total < LINGER_BYTES_MAX {
            match tokio::time::timeout(LINGER_IDLE, io.read(&mut buffer)).await {
                Ok(Ok(0) | Err(_)) | Err(_) => break,
                Ok(Ok(bytes)) => total += bytes as u64,
            }
        }
    };
    // A client that goes on sending has had time to read the answer.
    let _ = tokio::time::timeout(LINGER, discard).await;
}

/// Looks whether the client moves.
struct Watchdog {
    limits: Limits,
    timer: Pin<Box<Sleep>>,
    watch: Watch,
}

#[derive(Clone, Copy)]
struct Limits {
    header: Duration,
    idle: Duration,
    body: Duration,
}

impl Limits {
    /// Twice per shortest limit, so that a limit is late by at most half.
    fn period(&self) -> Duration {
        (self.header.min(self.idle).min(self.body) / 2).max(Duration::from_millis(1))
    }
}

impl Watchdog {
    fn new(config: &Config) -> Self {
        let limits =
            Limits { header: config.header_timeout, idle: config.idle_timeout, body: config.body_timeout };
        let now = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(now + limits.period()));
        Self { limits, timer, watch: Watch::new(now) }
    }

    fn poll(&mut self, cx: &mut Context<'_>, client: &Client) -> Order {
        let mut order = Order::Serve;
        while self.timer.poll_unpin(cx).is_ready() {
            let now = Instant::now();
            order = order.max(self.watch.look(now, client.counts(), self.limits));
            self.timer.as_mut().reset(now + self.limits.period());
        }
        order
    }
}

/// Since when the connection has been in its present state, as far as looks have shown.
struct Watch {
    seen: Counts,
    /// Since when it is between two requests, or in one whose response the client does not read.
    since: Instant,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self { seen: Counts::default(), since: now }
    }

    fn look(&mut self, now: Instant, counts: Counts, limits: Limits) -> Order {
        if counts != self.seen {
            self.seen = counts;
            self.since = now;
            return Order::Serve;
        }
        let stood = now - self.since;
        match counts {
            // The function may compute as long as its own timeout says; only an unread response is the client's fault.
            Counts { busy: true, write_blocked, .. } if write_blocked && stood >= limits.body => Order::Abort,
            Counts { busy: true, .. } => Order::Serve,
            // A response's last bytes may be unread after its request has ended.
            Counts { write_blocked: true, .. } if stood >= limits.body => Order::Abort,
            Counts { head_begun: true, .. } if stood >= limits.header => Order::Abort,
            Counts { head_begun: false, .. } if stood >= limits.idle => Order::Drain,
            _ => Order::Serve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        header: Duration::from_secs(10),
        idle: Duration::from_secs(120),
        body: Duration::from_secs(30),
    };

    fn check(counts: Counts, wanted: &[(u64, Order)]) {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        watch.look(start, counts, LIMITS);
        for (after, order) in wanted {
            assert_eq!(
                watch.look(start + Duration::from_secs(*after), counts, LIMITS),
                *order,
                "{counts:?} {after} s"
            );
        }
    }

    #[test]
    fn clients_that_stand_still_are_let_go() {
        let base = Counts { begun: 3, written: 900, ..Counts::default() };
        check(base, &[(5, Order::Serve), (119, Order::Serve), (120, Order::Drain)]);
        check(Counts { head_begun: true, ..base }, &[(5, Order::Serve), (10, Order::Abort)]);
        check(Counts { busy: true, head_begun: true, ..base }, &[(3600, Order::Serve)]);
        check(Counts { busy: true, write_blocked: true, ..base }, &[(29, Order::Serve), (30, Order::Abort)]);
    }

    #[test]
    fn whoever_moves_stays() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        for second in 0..100 {
            let counts =
                Counts { busy: true, write_blocked: true, written: second, begun: 1, ..Counts::default() };
            assert_eq!(watch.look(start + Duration::from_secs(second * 20), counts, LIMITS), Order::Serve);
        }
    }
}
