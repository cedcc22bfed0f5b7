//! Frames: a length of four bytes, little-endian, and as many bytes of MessagePack. A frame of no bytes is a heartbeat.

use bytes::{Buf as _, BufMut as _, BytesMut};
use fanfold_protocol::{Code, Error, Kind};
use serde::{Serialize, de::DeserializeOwned};

/// Bytes of one frame: what a wait for very many small outputs may be answered with.
pub const FRAME_BYTES_MAX: usize = 256 << 20;

const HEAD_BYTES: usize = 4;

/// What a buffer begins with.
#[derive(Debug, PartialEq)]
pub enum Next<T> {
    /// A message, taken off the buffer.
    Message(T),
    /// A heartbeat, taken off the buffer.
    Heartbeat,
    /// Not a whole frame yet; the whole has this many bytes as far as is known.
    Partial(usize),
}

/// Appends a message. `named`: with field names, which other versions can read.
///
/// # Errors
/// `limit` / `message-too-large` over [`FRAME_BYTES_MAX`]; the buffer is as before.
pub fn encode<T: Serialize>(buffer: &mut BytesMut, message: &T, named: bool) -> Result<(), Error> {
    let begin = buffer.len();
    buffer.put_u32_le(0);
    let mut writer = (&mut *buffer).writer();
    let written = if named {
        rmp_serde::encode::write_named(&mut writer, message)
    } else {
        rmp_serde::encode::write(&mut writer, message)
    };
    let bytes = buffer.len() - begin - HEAD_BYTES;
    let problem = match written {
        Ok(()) if bytes <= FRAME_BYTES_MAX => None,
        Ok(()) => {
            Some(format!("a message to another process has {bytes} bytes and may have {FRAME_BYTES_MAX}"))
        }
        Err(error) => Some(format!("a message to another process cannot be written: {error}")),
    };
    match (problem, u32::try_from(bytes)) {
        (None, Ok(length)) => {
            buffer[begin..begin + HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
            Ok(())
        }
        (problem, _) => {
            buffer.truncate(begin);
            Err(Error::new(Kind::Limit, Code::BodyTooLarge, problem.unwrap_or_default()))
        }
    }
}

/// Appends a heartbeat.
pub fn heartbeat(buffer: &mut BytesMut) {
    buffer.put_u32_le(0);
}

/// Takes the next frame off a buffer.
///
/// # Errors
/// `invalid` / `protocol` where it is none: the peer speaks something else, or another version.
pub fn next<T: DeserializeOwned>(buffer: &mut BytesMut) -> Result<Next<T>, Error> {
    let Some(head) = buffer.first_chunk::<HEAD_BYTES>() else { return Ok(Next::Partial(HEAD_BYTES)) };
    let length = u32::from_le_bytes(*head) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(no_frame(format!("it announces {length} bytes")));
    }
    if buffer.len() < HEAD_BYTES + length {
        return Ok(Next::Partial(HEAD_BYTES + length));
    }
    buffer.advance(HEAD_BYTES);
    if length == 0 {
        return Ok(Next::Heartbeat);
    }
    let frame = buffer.split_to(length);
    rmp_serde::from_slice(&frame).map(Next::Message).map_err(|e| no_frame(e.to_string()))
}

fn no_frame(why: String) -> Error {
    let message = format!("the other process sent what is no message of ours: {why}");
    Error::new(Kind::Invalid, Code::Protocol, message)
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::{TaskId, message::FromExecutor};

    use super::*;

    fn message(n: u64) -> FromExecutor {
        let attempt = fanfold_protocol::AttemptId { task: TaskId([7; 16]), epoch: 3, number: 1 };
        FromExecutor::Wait { attempt, wait: n, on: Vec::new(), count: 1, timeout_ms: None }
    }

    #[test]
    fn frames_come_back_whole_in_order_and_only_when_complete() {
        for named in [false, true] {
            let mut wire = BytesMut::new();
            encode(&mut wire, &message(1), named).unwrap();
            heartbeat(&mut wire);
            encode(&mut wire, &message(2), named).unwrap();
            let mut seen = Vec::new();
            let mut buffer = BytesMut::new();
            for byte in wire {
                buffer.put_u8(byte);
                match next::<FromExecutor>(&mut buffer).unwrap() {
                    Next::Message(message) => seen.push(Some(message)),
                    Next::Heartbeat => seen.push(None),
                    Next::Partial(bytes) => assert!(bytes > buffer.len()),
                }
            }
            assert_eq!(seen, [Some(message(1)), None, Some(message(2))]);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let mut http = BytesMut::from(&b"GET / HTTP/1.1\r\n\r\n"[..]);
        assert_eq!(next::<FromExecutor>(&mut http).unwrap_err().code, Code::Protocol);
        let mut garbage = BytesMut::from(&[3, 0, 0, 0, 0xc1, 0xc1, 0xc1][..]);
        assert_eq!(next::<FromExecutor>(&mut garbage).unwrap_err().code, Code::Protocol);
    }
}
