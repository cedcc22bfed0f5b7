//! How messages lie on the socket between executor and worker: length of the message, length of the data that follows it (4 bytes
//! each, little-endian), the message, the data. Either side takes the other's lengths for what they are: claims.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use fanfold_protocol::limit::{GPU_CHUNK_BYTES_MAX, GPU_MESSAGE_BYTES_MAX};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt as _};

const HEAD: usize = 8;

/// The beginning of a frame: both lengths and the message. The data follows.
pub(crate) fn encode<T: Serialize>(message: &T, data_length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    rmp_serde::encode::write(&mut bytes, message).map_err(io::Error::other)?;
    let length = bytes.len() - HEAD;
    if length > GPU_MESSAGE_BYTES_MAX || data_length > GPU_CHUNK_BYTES_MAX {
        return Err(io::Error::other(format!("a message of {length} and {data_length} bytes is too long")));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[4..HEAD].copy_from_slice(&(data_length as u32).to_le_bytes());
    Ok(bytes)
}

fn lengths(head: [u8; HEAD]) -> io::Result<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = head;
    let (message, data) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let (message, data) = (message as usize, data as usize);
    if message > GPU_MESSAGE_BYTES_MAX || data > GPU_CHUNK_BYTES_MAX {
        return Err(io::Error::other(format!("the other side claims {message} and {data} bytes")));
    }
    Ok((message, data))
}

/// Writes a frame, blocking.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, message: &T, data: &[u8]) -> io::Result<()> {
    to.write_all(&encode(message, data.len())?)?;
    to.write_all(data)
}

/// Reads a frame, blocking.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head)?;
    let (message_length, data_length) = lengths(head)?;
    let mut message = vec![0; message_length];
    from.read_exact(&mut message)?;
    let mut data = Vec::with_capacity(data_length);
    if from.take(data_length as u64).read_to_end(&mut data)? < data_length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((rmp_serde::from_slice(&message).map_err(io::Error::other)?, data))
}

/// Reads frames from an asynchronous source.
pub(crate) struct Frames<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::new() }
    }

    /// The next frame. May be dropped while it waits without losing anything.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<(T, Bytes)> {
        loop {
            if let Some((length, data_length)) = self.complete()? {
                self.buffer.advance(HEAD);
                let message = self.buffer.split_to(length);
                let data = self.buffer.split_to(data_length).freeze();
                return Ok((rmp_serde::from_slice(&message).map_err(io::Error::other)?, data));
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The lengths of the frame in front, once all of it is here; else makes room for what is missing.
    fn complete(&mut self) -> io::Result<Option<(usize, usize)>> {
        let Some(head) = self.buffer.first_chunk::<HEAD>() else {
            self.buffer.reserve(HEAD);
            return Ok(None);
        };
        let (length, data_length) = lengths(*head)?;
        let missing = (HEAD + length + data_length).saturating_sub(self.buffer.len());
        self.buffer.reserve(missing);
        Ok((missing == 0).then_some((length, data_length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn frames_survive_any_cut_and_claims_are_not_believed() {
        let mut bytes = Vec::new();
        write(&mut bytes, &(7u32, "seven"), b"data").expect("memory takes it");
        write(&mut bytes, &(8u32, "eight"), b"").expect("memory takes it");
        for cut in 0..bytes.len() {
            let (front, back) = bytes.split_at(cut);
            let mut frames = Frames::new(tokio::io::AsyncReadExt::chain(front, back));
            let first: ((u32, String), Bytes) = frames.next().await.expect("the first");
            assert_eq!(first, ((7, String::from("seven")), Bytes::from_static(b"data")));
            let second: ((u32, String), Bytes) = frames.next().await.expect("the second");
            assert_eq!(second.0.0, 8);
            assert!(frames.next::<u32>().await.is_err(), "there is no third");
        }
        assert!(read::<u32>(&mut &[255u8; 64][..]).is_err());
        assert!(Frames::new(&[255u8; 64][..]).next::<u32>().await.is_err());
    }
}
