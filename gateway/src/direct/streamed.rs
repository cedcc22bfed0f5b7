//! The body of a direct call's response on its way out.
//!
//! It holds the call's place and counts its bytes. When it ends, or is dropped because the client went away, the
//! place is free, the logs are kept and the call is no longer in flight.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, JobId, Kind,
    direct::{Body, Logs},
};
use http_body::{Body as _, Frame, SizeHint};

use super::admission::Permit;
use crate::metrics::InFlight;

/// A response body and what its call occupies.
pub(crate) struct Streamed {
    body: Body,
    bytes_max: u64,
    /// Bytes that may still pass.
    left: u64,
    _call: Call,
}

/// What a call occupies while its response is on its way.
pub(super) struct Call {
    flight: InFlight,
    id: JobId,
    logs: Logs,
    _permit: Permit,
}

impl Call {
    pub(super) fn new(flight: InFlight, id: JobId, logs: Logs, permit: Permit) -> Self {
        Self { flight, id, logs, _permit: permit }
    }
}

impl Streamed {
    /// `body` on behalf of `call`.
    ///
    /// # Errors
    /// `limit` / `output-too-large` where it says already that it is longer than `bytes_max`: better a clear error
    /// than a response that breaks off.
    pub(super) fn new(body: Body, bytes_max: u64, call: Call) -> Result<Self, Error> {
        if body.size_hint().lower() > bytes_max {
            return Err(too_long(bytes_max));
        }
        Ok(Self { body, bytes_max, left: bytes_max, _call: call })
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                // The head is out already: all that can be done is to break the response off.
                Poll::Ready(Some(Err(too_long(self.bytes_max))))
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn too_long(bytes_max: u64) -> Error {
    let why =
        format!("the function's response is longer than {bytes_max} bytes, the body_max of its manifest");
    Error::new(Kind::Limit, Code::OutputTooLarge, why)
}

impl Drop for Call {
    fn drop(&mut self) {
        self.flight.recent_logs.keep(self.id, &self.logs);
    }
}
