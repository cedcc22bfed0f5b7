//! The head of a call's response: which version ran, cold or warm, how long each step took, and its id.

use std::fmt::Write as _;

use fanfold_protocol::{JobId, direct::Timing};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::registry::Callable;

const VERSION: HeaderName = HeaderName::from_static("fanfold-version");
const START: HeaderName = HeaderName::from_static("fanfold-start");
const INVOCATION: HeaderName = HeaderName::from_static("fanfold-invocation");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Adds what every response of a call carries. A guest's own `server-timing` entries stay.
pub(super) fn complete(headers: &mut HeaderMap, callable: &Callable, id: JobId, steps: &Steps) {
    headers.reserve(4);
    headers.insert(VERSION, callable.version_header.clone());
    headers.insert(START, HeaderValue::from_static(if steps.timing.cold { "cold" } else { "warm" }));
    headers.append(SERVER_TIMING, steps.header());
    invocation(headers, id);
}

/// Adds the id alone: for calls whose steps are not known (yet).
pub(super) fn invocation(headers: &mut HeaderMap, id: JobId) {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    if let Ok(value) = HeaderValue::from_str(id.0.as_hyphenated().encode_lower(&mut text)) {
        headers.insert(INVOCATION, value);
    }
}

/// Adds the version alone.
pub(super) fn version(headers: &mut HeaderMap, callable: &Callable) {
    headers.insert(VERSION, callable.version_header.clone());
}

/// The caller's `traceparent`, to be given back with the response.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(TRACEPARENT).cloned()
}

/// Gives `traceparent` back.
pub(super) fn trace(headers: &mut HeaderMap, traceparent: Option<HeaderValue>) {
    if let Some(value) = traceparent {
        headers.insert(TRACEPARENT, value);
    }
}

/// Times of a call's steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    /// Microseconds in the queue.
    pub(super) queue_us: u64,
    /// What the executor measured.
    pub(super) timing: Timing,
}

impl Steps {
    /// `Server-Timing` of the four steps, in milliseconds with three digits.
    fn header(&self) -> HeaderValue {
        let Timing { compile_us, instantiate_us, run_us, .. } = self.timing;
        let mut text = String::with_capacity(96);
        let steps = [
            ("queue", self.queue_us),
            ("compile", compile_us),
            ("instantiate", instantiate_us),
            ("run", run_us),
        ];
        for (name, us) in steps {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{name};dur={}.{:03}", us / 1000, us % 1000);
        }
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_milliseconds_to_the_microsecond() {
        let timing = Timing { cold: true, compile_us: 0, instantiate_us: 6, run_us: 1_234_567 };
        let header = Steps { queue_us: 1000, timing }.header();
        assert_eq!(header, "queue;dur=1.000, compile;dur=0.000, instantiate;dur=0.006, run;dur=1234.567");
    }
}
