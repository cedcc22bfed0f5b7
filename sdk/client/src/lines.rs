//! Lines out of a stream of bytes: the framing of NDJSON and of server-sent events.

use bytes::{Bytes, BytesMut};
use futures::{Stream, TryStreamExt as _, stream};

use crate::{ByteStream, Error};

/// Bytes of one line; a server that sends longer ones is none of ours.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The lines of `body` without their ends. A last line without an end counts.
pub(crate) fn lines(body: ByteStream) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let state = Lines { body, buffer: BytesMut::new(), searched: 0, ended: false };
    stream::try_unfold(state, |mut lines| async move {
        let line = lines.next().await?;
        Ok(line.map(|line| (line, lines)))
    })
}

/// The `data` of each server-sent event in `body`.
pub(crate) fn events(body: ByteStream) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let lines = Box::pin(lines(body));
    stream::try_unfold((lines, BytesMut::new()), |(mut lines, mut data)| async move {
        while let Some(line) = lines.try_next().await? {
            if line.is_empty() && !data.is_empty() {
                return Ok(Some((data.split().freeze(), (lines, data))));
            }
            // Comments (keep-alives), names and ids are of no interest: every event says the same kind of thing.
            if let Some(more) = line.strip_prefix(b"data:") {
                if !data.is_empty() {
                    data.extend_from_slice(b"\n");
                }
                data.extend_from_slice(more.strip_prefix(b" ").unwrap_or(more));
            }
        }
        Ok(None)
    })
}

struct Lines {
    body: ByteStream,
    buffer: BytesMut,
    /// Bytes of `buffer` known to hold no line end, so that a long line is not searched again for every chunk.
    searched: usize,
    ended: bool,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                line.truncate(line.len() - 1);
                if line.last() == Some(&b'\r') {
                    line.truncate(line.len() - 1);
                }
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.ended {
                let rest = self.buffer.split().freeze();
                self.searched = 0;
                return Ok((!rest.is_empty()).then_some(rest));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        match self.body.try_next().await? {
            Some(chunk) => self.buffer.extend_from_slice(&chunk),
            None => self.ended = true,
        }
        if self.buffer.len() > LINE_BYTES_MAX {
            return Err(Error::Request(format!("a line of the answer has over {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    fn body(chunks: &'static [&'static str]) -> ByteStream {
        stream::iter(chunks.iter().map(|c| Ok(Bytes::from_static(c.as_bytes())))).boxed()
    }

    fn texts(stream: impl Stream<Item = Result<Bytes, Error>>) -> Vec<String> {
        let all: Vec<Bytes> = stream.try_collect().now_or_never().unwrap().unwrap();
        all.iter().map(|b| String::from_utf8_lossy(b).into_owned()).collect()
    }

    #[test]
    fn lines_do_not_care_about_chunks() {
        assert_eq!(texts(lines(body(&["a\nb", "c\r", "\n", "\nd"]))), ["a", "bc", "", "d"]);
        assert!(texts(lines(body(&[]))).is_empty());
    }

    #[test]
    fn events_are_their_data() {
        let chunks =
            &[": hello\n\nevent: progress\nda", "ta: {\"a\":1}\n\n", "data: x\ndata: y\n\ndata: cut off"];
        assert_eq!(texts(events(body(chunks))), ["{\"a\":1}", "x\ny"]);
    }
}
