//! Bodies on their way in and out of a guest, with their caps.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind, direct::Body};
use futures::task::noop_waker_ref;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use wasmtime_wasi_http::WasiBody;

use super::{
    call::{Call, Streaming},
    output_too_large, too_large,
};

/// A request's body on its way to a guest. One that is over `max` fails the call, and ends with an error for the guest.
pub(super) fn incoming<H: Send + 'static>(body: Body, max: u64, call: Arc<Call<H>>) -> WasiBody {
    if body.is_end_stream() {
        // Boxing nothing allocates nothing.
        return Empty::new().map_err(|never| match never {}).boxed_unsync();
    }
    Incoming { body, left: max, max, call }.boxed_unsync()
}

struct Incoming<H> {
    body: Body,
    left: u64,
    max: u64,
    call: Arc<Call<H>>,
}

impl<H> http_body::Body for Incoming<H> {
    type Data = Bytes;
    type Error = wasmtime_wasi_http::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                self.call.fail(error);
                return Poll::Ready(Some(Err(wasmtime_wasi_http::Error::ConnectionTerminated)));
            }
            None => return Poll::Ready(None),
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(left) = self.left.checked_sub(bytes) else {
            self.call.fail(too_large(self.max));
            return Poll::Ready(Some(Err(wasmtime_wasi_http::Error::HttpRequestBodySize(Some(self.max)))));
        };
        self.left = left;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a guest that has ended: what it wrote is all there, so its length is known.
///
/// # Errors
/// [`Code::OutputTooLarge`] over `max` bytes; [`Code::MalformedResponse`] where it is shorter than it said.
pub(super) fn written(mut body: WasiBody, max: u64) -> Result<(Body, u64), Error> {
    let mut frames = Vec::new();
    let mut cx = Context::from_waker(noop_waker_ref());
    let mut bytes = 0;
    // Its sender is gone: nothing is pending but the end.
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
        let frame = frame.map_err(|e| malformed(format_args!("its body is not what it announced ({e})")))?;
        bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        if bytes > max {
            return Err(output_too_large(max));
        }
        frames.push(frame);
    }
    let body = match frames.pop() {
        None => full(Bytes::new()),
        Some(only) if frames.is_empty() => only.into_data().map_or_else(trailers, full),
        Some(last) => {
            frames.push(last);
            StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok))).boxed_unsync()
        }
    };
    Ok((body, bytes))
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn trailers(frame: Frame<Bytes>) -> Body {
    StreamBody::new(futures::stream::iter([Ok(frame)])).boxed_unsync()
}

/// The body of a guest that still writes it. Its end is the guest's: a guest that fails ends it with its error.
struct Outgoing<H> {
    body: WasiBody,
    left: u64,
    max: u64,
    call: Arc<Call<H>>,
    guest: Streaming,
}

/// At most `max` bytes of what a running guest writes.
pub(super) fn outgoing<H: Send + 'static>(
    body: WasiBody,
    max: u64,
    call: Arc<Call<H>>,
    guest: Streaming,
) -> Body {
    Outgoing { body, left: max, max, call, guest }.boxed_unsync()
}

impl<H: Send + 'static> Outgoing<H> {
    /// After the last frame.
    fn end(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        let failure = self.call.failure();
        if failure.is_none() {
            self.guest.let_go();
        }
        failure.map(Err)
    }
}

impl<H: Send + 'static> http_body::Body for Outgoing<H> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                let malformed = || malformed(format_args!("its body is not what it announced ({error})"));
                return Poll::Ready(Some(Err(self.call.failure().unwrap_or_else(malformed))));
            }
            None => return Poll::Ready(self.end()),
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(left) = self.left.checked_sub(bytes) else {
            return Poll::Ready(Some(Err(output_too_large(self.max))));
        };
        self.left = left;
        Poll::Ready(Some(Ok(frame)))
    }
}

/// The error of a response that makes no sense.
pub(super) fn malformed(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Guest, Code::MalformedResponse, format!("the function gave no valid response: {why}"))
}
