//! Bodies on their way in and out: byte caps, a limit on standing still, and no copies.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::{Code, Error, Kind, direct::Body};
use futures::FutureExt as _;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::{direct::Streamed, metrics::InFlight};

/// Bounds of a request's body.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Time without progress.
    pub(crate) idle: Duration,
}

/// Why a request's body broke off. It outlives the body, which is gone with whoever was reading it.
#[derive(Clone, Default)]
pub(crate) struct Fault(Option<Arc<OnceLock<Error>>>);

impl Fault {
    /// The body's own error, if it had one; else `other`. A reader that fails because of its input usually reports
    /// the consequence, not the cause.
    pub(crate) fn or(self, other: Error) -> Error {
        self.0.and_then(|cell| cell.get().cloned()).unwrap_or(other)
    }
}

/// A request's body within `bounds`. An empty one allocates nothing.
///
/// # Errors
/// `invalid` / `body-too-large` where the announced length is too much already.
pub(crate) fn bounded(incoming: Incoming, bounds: Bounds) -> Result<(Body, Fault), Error> {
    if incoming.is_end_stream() {
        return Ok((empty(), Fault::default()));
    }
    if incoming.size_hint().lower() > bounds.bytes {
        return Err(too_large(bounds.bytes));
    }
    let fault = Arc::new(OnceLock::new());
    let body = Inbound {
        incoming,
        left: bounds.bytes,
        bounds,
        timer: None,
        armed: false,
        fault: Arc::clone(&fault),
    };
    Ok((Body::new(body), Fault(Some(fault))))
}

/// A body of no bytes.
pub(crate) fn empty() -> Body {
    Body::new(Empty::new().map_err(|never: std::convert::Infallible| match never {}))
}

/// A body of these bytes.
pub(crate) fn whole(bytes: Bytes) -> Body {
    Body::new(Full::new(bytes).map_err(|never: std::convert::Infallible| match never {}))
}

/// A whole body in one piece. A body that arrived in one frame is not copied.
///
/// # Errors
/// The body's own, and `invalid` / `body-too-large`.
pub(crate) async fn collect<B>(mut body: B, bytes_max: u64) -> Result<Bytes, Error>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    let hint = body.size_hint();
    if hint.lower() > bytes_max {
        return Err(too_large(bytes_max));
    }
    let mut whole = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|e| cause(e.into().as_ref()))?.into_data() else { continue };
        if (whole.len() + joined.len() + data.len()) as u64 > bytes_max {
            return Err(too_large(bytes_max));
        }
        if joined.is_empty() && whole.is_empty() {
            whole = data;
            continue;
        }
        if joined.is_empty() {
            let known = hint.exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
            joined.reserve(known.max(whole.len() + data.len()));
            joined.extend_from_slice(&std::mem::take(&mut whole));
        }
        joined.extend_from_slice(&data);
    }
    Ok(if joined.is_empty() { whole } else { joined.freeze() })
}

/// The platform's error behind one that libraries have wrapped.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> Error {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<Error>().cloned())
        .unwrap_or_else(|| Error::invalid(format!("the request body cannot be read: {error}")))
}

fn too_large(bytes_max: u64) -> Error {
    let why = format!("the body is longer than {bytes_max} bytes: send less, or put it in as an object");
    Error::new(Kind::Invalid, Code::BodyTooLarge, why)
}

/// A request's body: capped, and ended when it stands still.
struct Inbound {
    incoming: Incoming,
    left: u64,
    bounds: Bounds,
    /// Made when the body first has to be waited for, then reused.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether `timer` runs for the present wait.
    armed: bool,
    fault: Arc<OnceLock<Error>>,
}

impl Inbound {
    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // The first fault is the cause; a second one cannot be set and need not be.
        let _ = self.fault.set(error.clone());
        Poll::Ready(Some(Err(error)))
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle = self.bounds.idle;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        if !self.armed {
            timer.as_mut().reset(Instant::now() + idle);
            self.armed = true;
        }
        timer.poll_unpin(cx)
    }
}

impl HttpBody for Inbound {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            ready!(self.poll_idle(cx));
            let seconds = self.bounds.idle.as_secs();
            let why = format!("no byte of the request body came for {seconds} s: send it faster");
            return self.fail(Error::new(Kind::Invalid, Code::RequestTimeout, why));
        };
        self.armed = false;
        match frame {
            None => Poll::Ready(None),
            Some(Err(_)) => self.fail(Error::invalid("the request body broke off before its end")),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = self.left.checked_sub(bytes) else {
                    let cap = self.bounds.bytes;
                    return self.fail(too_large(cap));
                };
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// A response's body, by where it comes from.
pub(crate) enum Outbound {
    /// All of it, at most once.
    Whole(Option<Bytes>),
    /// A direct call's.
    Direct(Box<Streamed>),
    /// An axum handler's.
    Routed {
        body: axum::body::Body,
        /// The request it answers, which lasts as long.
        _flight: InFlight,
    },
}

impl From<Bytes> for Outbound {
    fn from(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl HttpBody for Outbound {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Direct(body) => {
                body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Routed { body, .. } => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Direct(body) => body.is_end_stream(),
            Self::Routed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Direct(body) => body.size_hint(),
            Self::Routed { body, .. } => body.size_hint(),
        }
    }
}
