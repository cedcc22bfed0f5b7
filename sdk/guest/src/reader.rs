//! Reading a value: as a stream, by byte range, or by block.

use std::{
    io::{self, BufRead, Read},
    ops::Range,
};

use crate::{
    Error, ErrorKind, Result, host,
    raw::{PartitionId, Payload, Value},
};

/// Bytes of one read from the host: its limit.
pub(crate) const READ_BYTES: u32 = 1 << 20;
/// Bytes that a stream reads at a time: they are still in the processor's cache when they are looked at, a merge of many
/// readers holds little, and a host call is lost in the time it takes to look at them.
const STREAM_BYTES: u64 = 256 << 10;

/// Reads one value: a partition, some blocks of one, a range of an object, or a small value that came along.
///
/// As [`Read`] and [`BufRead`] it is a stream from the start to the end; [`Reader::range`] and [`Reader::block`] read
/// anywhere, and do not move the stream. The host verifies checksums. Each byte is copied once, into this instance
/// ([`BufRead::fill_buf`] lends that copy).
#[derive(Debug)]
pub struct Reader {
    source: Source,
    /// Bytes in all.
    size: u64,
    /// Where the stream goes on after `chunk`.
    position: u64,
    chunk: Vec<u8>,
    consumed: usize,
}

#[derive(Debug)]
enum Source {
    Inline(Payload),
    Host(host::Reader),
}

impl Reader {
    pub(crate) fn open(value: Value) -> Result<Self> {
        let source = match value {
            Value::Inline(payload) => Source::Inline(payload),
            reference => Source::Host(host::open(&reference)?),
        };
        let size = match &source {
            Source::Inline(payload) => payload.bytes.len() as u64,
            Source::Host(reader) => reader.size(),
        };
        Ok(Self { source, size, position: 0, chunk: Vec::new(), consumed: 0 })
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where its blocks are, in order, relative to its start. Empty data has none.
    pub fn blocks(&self) -> Vec<Range<u64>> {
        match &self.source {
            Source::Inline(_) if self.size == 0 => Vec::new(),
            Source::Inline(_) => std::iter::once(0..self.size).collect(),
            Source::Host(reader) => {
                reader.blocks().into_iter().map(|b| b.offset..b.offset.saturating_add(b.length)).collect()
            }
        }
    }

    /// The partitions that are named in it.
    pub fn refs(&self) -> Vec<PartitionId> {
        match &self.source {
            Source::Inline(payload) => payload.refs.clone(),
            Source::Host(reader) => reader.refs(),
        }
    }

    /// The bytes of a range, cut at the end of the value.
    ///
    /// # Errors
    /// `limit` if the range does not fit into this instance's memory, `lost` where data is gone for good.
    pub fn range(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let length = range.end.min(self.size).saturating_sub(range.start);
        if length <= u64::from(READ_BYTES) {
            return self.read_at(range.start, length);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX)).map_err(|_| {
            Error::new(ErrorKind::Limit, format!("{length} bytes do not fit into this instance's memory"))
        })?;
        while (bytes.len() as u64) < length {
            let at = bytes.len() as u64;
            let chunk = self.read_at(range.start + at, length - at)?;
            if chunk.is_empty() {
                return Err(Error::new(ErrorKind::Lost, "the value ended before its size"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// The bytes of block `index`.
    ///
    /// # Errors
    /// `invalid` if there is no such block, and as [`Reader::range`].
    pub fn block(&self, index: usize) -> Result<Vec<u8>> {
        let blocks = self.blocks();
        let range = blocks.get(index).cloned().ok_or_else(|| {
            Error::invalid(format!("there is no block {index} among {} blocks", blocks.len()))
        })?;
        self.range(range)
    }

    /// All bytes. An inline value is not copied.
    ///
    /// # Errors
    /// As [`Reader::range`].
    pub fn bytes(self) -> Result<Vec<u8>> {
        match self.source {
            Source::Inline(payload) => Ok(payload.bytes),
            Source::Host(_) => self.range(0..self.size),
        }
    }

    /// The host's side of it, where its bytes are not here already.
    pub(crate) fn host(&self) -> Option<&host::Reader> {
        match &self.source {
            Source::Inline(_) => None,
            Source::Host(reader) => Some(reader),
        }
    }

    pub(crate) fn into_payload(self) -> Result<Payload> {
        match self.source {
            Source::Inline(payload) => Ok(payload),
            Source::Host(_) => Ok(Payload { refs: self.refs(), bytes: self.range(0..self.size)? }),
        }
    }

    /// Up to `length` bytes from `offset`, at most one host read.
    fn read_at(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let length = length.min(u64::from(READ_BYTES)) as u32;
        match &self.source {
            Source::Inline(payload) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(payload.bytes.len());
                let end = start.saturating_add(length as usize).min(payload.bytes.len());
                Ok(payload.bytes[start..end].to_vec())
            }
            Source::Host(_) if length == 0 => Ok(Vec::new()),
            Source::Host(reader) => Ok(reader.read(offset, length)?),
        }
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.consumed == self.chunk.len() && self.position < self.size {
            self.chunk = self.read_at(self.position, STREAM_BYTES.min(self.size - self.position))?;
            self.position += self.chunk.len() as u64;
            self.consumed = 0;
            if self.chunk.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&self.chunk[self.consumed..])
    }

    fn consume(&mut self, amount: usize) {
        self.consumed = self.chunk.len().min(self.consumed + amount);
    }
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let n = available.len().min(out.len());
        out[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }
}
