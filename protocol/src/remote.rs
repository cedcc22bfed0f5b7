//! How a gateway runs a direct call on an executor of another process, over HTTP/1.1.
//!
//! The request is the call's own: its method, headers and body; what it means is in the path ([`CALL`], [`HTTP`],
//! [`PREPARE`]) and, for an HTTP function, in the header [`URI`]. The answer has the function's status and headers, the
//! times of its steps in [`TIMING`], and a body of frames: a kind, a length, bytes. A call that failed before it had an
//! answer is [`FAILED`] with a JSON [`Failure`] as its body.

use serde::{Deserialize, Serialize};

use crate::{Error, direct::Timing};

/// Path before the version of a program or task function, all in lower case hexadecimal.
pub const CALL: &str = "/peer/v1/call/";
/// Path before the version of an HTTP function.
pub const HTTP: &str = "/peer/v1/http/";
/// Path before the digest of a component.
pub const PREPARE: &str = "/peer/v1/prepare/";
/// Header: the URI that an HTTP function shall see.
pub const URI: &str = "fanfold-uri";
/// Header: the times of a call's steps, as [`timing`] writes them.
pub const TIMING: &str = "fanfold-timing";
/// Header of an answer that is a [`Failure`].
pub const FAILED: &str = "fanfold-failed";

/// Bytes of a frame's head: kind (1) and length (4, little-endian).
pub const HEAD_BYTES: usize = 5;
/// Frame: bytes of the function's response.
pub const DATA: u8 = 0;
/// Frame, the last one: what the function wrote to its log, as NDJSON lines.
pub const LOGS: u8 = 1;
/// Frame, the last one: a JSON [`Failure`]; the response broke off.
pub const BROKEN: u8 = 2;

/// A call that failed, and what it wrote to its log before.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Why.
    pub error: Error,
    /// NDJSON lines.
    pub logs: String,
}

/// A frame's head.
pub fn head(kind: u8, length: usize) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    [kind, a, b, c, d]
}

/// Times as a header's value.
pub fn timing(timing: &Timing) -> String {
    let Timing { cold, compile_us, instantiate_us, run_us } = timing;
    format!("{} {compile_us} {instantiate_us} {run_us}", u8::from(*cold))
}

/// The inverse of [`timing`]; zeros where it is something else.
pub fn parse_timing(text: &str) -> Timing {
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    Timing { cold: next() == 1, compile_us: next(), instantiate_us: next(), run_us: next() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        let times = Timing { cold: true, compile_us: 9, instantiate_us: 8, run_us: 7 };
        assert_eq!(parse_timing(&timing(&times)), times);
        assert_eq!(parse_timing("nonsense"), Timing::default());
    }
}
