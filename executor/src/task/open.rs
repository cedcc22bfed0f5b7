//! Opening values, and reading on when a copy is lost.
//!
//! Promises: a partition whose copy cannot be read, or is not what its checksum says, is made again behind the guest's
//! back, up to [`limit::RECOVERIES_MAX`] times per read; the guest sees the same bytes or an error, never others.

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind, PartitionId, limit,
    message::FromExecutor,
    value::{ObjectRange, Output, Payload, Stored, StoredKey, Value},
};

use super::{
    host::{TaskHost, stale},
    reader::{Content, Made, Reader},
};
use crate::cache::Partition;

/// Outputs that stand for another output, one after the other, before we call it a circle.
const ALIASES_MAX: u32 = 16;

/// Blocks of a partition; `None`: all of them.
type Blocks = Option<(u32, u32)>;

impl TaskHost {
    /// Opens a value that the task may name, waiting for it if need be.
    pub(super) async fn open_value(&mut self, value: Value) -> Result<Box<Reader>, Error> {
        self.check_value(&value)?;
        let (id, blocks) = match value {
            Value::Inline(payload) => return Ok(Box::new(Reader::inline(payload.bytes, payload.refs))),
            Value::Object(range) => return self.open_object(&range).await,
            Value::Partition(id) => (id, None),
            Value::Blocks { partition, first, count } => (partition, Some((first, count))),
        };
        self.open_partition(id, blocks).await
    }

    async fn open_partition(
        &mut self,
        mut id: PartitionId,
        mut blocks: Blocks,
    ) -> Result<Box<Reader>, Error> {
        for _ in 0..ALIASES_MAX {
            match self.output_of(id).await? {
                Output::Inline(payload) => return one_block(payload, blocks),
                Output::Stored(stored) => return self.open_stored(id, stored, blocks).await,
                Output::Alias(value) => match *value {
                    Value::Inline(payload) => return one_block(payload, blocks),
                    Value::Object(range) if blocks.is_none_or(|blocks| blocks == (0, 1)) => {
                        return self.open_object(&range).await;
                    }
                    Value::Object(_) => return Err(no_blocks(blocks, 1)),
                    Value::Partition(other) => id = other,
                    Value::Blocks { partition, first, count } => {
                        blocks = Some(within(first, count, blocks)?);
                        id = partition;
                    }
                },
            }
        }
        Err(Error::internal(format!("partition {id} stands for another one {ALIASES_MAX} times over")))
    }

    async fn open_stored(
        &mut self,
        id: PartitionId,
        stored: Stored,
        blocks: Blocks,
    ) -> Result<Box<Reader>, Error> {
        let refs = stored.refs.clone();
        let whole_max = limit::load_bytes_max(blocks.is_some());
        let (partition, key) = self.present(id, stored, whole_max).await?;
        let index = partition.index();
        let (first, count) = blocks.unwrap_or((0, index.len() as u32));
        let range = match index.blocks_range(first, count) {
            Some(range) => range,
            None if blocks.is_none() => 0..0,
            None => return Err(no_blocks(blocks, index.len())),
        };
        let lengths = (first..first + count).filter_map(|block| index.block_range(block as usize));
        let lengths = lengths.map(|block| block.end - block.start).collect();
        let content = Content::Partition { start: range.start, partition };
        let size = range.end - range.start;
        let mut reader = Box::new(Reader::new(content, size, lengths, refs, Some(Made { id, key })));
        reader.read_ahead(&self.env, &self.fetched);
        Ok(reader)
    }

    /// Opens what this task has stored itself.
    pub(super) async fn open_own(&mut self, stored: &Stored) -> Result<Box<Reader>, Error> {
        self.open_stored(stored.key.partition, stored.clone(), None).await
    }

    /// A copy of a partition that can be read, made again if need be.
    async fn present(
        &mut self,
        id: PartitionId,
        mut stored: Stored,
        whole_max: u64,
    ) -> Result<(Partition, StoredKey), Error> {
        for _ in 0..limit::RECOVERIES_MAX {
            match self.env.cache.open(&stored, whole_max).await {
                Ok(partition) => return Ok((partition, stored.key)),
                Err(error) if error.kind == Kind::Lost => stored = self.recover(id, &stored, error).await?,
                Err(error) => return Err(error),
            }
        }
        Err(given_up(id))
    }

    /// Has a lost partition made again and waits for it.
    async fn recover(&mut self, id: PartitionId, lost: &Stored, error: Error) -> Result<Stored, Error> {
        let Some(owner) = &self.owner else { return Err(error) };
        tracing::warn!(partition = %id, %error, "a partition is lost and will be made again");
        self.futures.forget(id);
        owner.send(FromExecutor::Lost { attempt: owner.attempt(), key: lost.key }).await?;
        match self.output_of(id).await? {
            Output::Stored(again) if again.meta == lost.meta => Ok(again),
            _ => Err(Error::new(
                Kind::Guest,
                Code::NonDeterministic,
                format!("partition {id} was lost and came out different when it was made again"),
            )),
        }
    }

    async fn open_object(&self, range: &ObjectRange) -> Result<Box<Reader>, Error> {
        let object = self.env.store.objects().head(&range.key).await?;
        if let Some(etag) = range.etag.as_deref().filter(|etag| *etag != object.etag) {
            let message =
                format!("object `{}` has etag {}, not {etag}: it was replaced", range.key, object.etag);
            return Err(Error::new(Kind::Conflict, Code::Precondition, message));
        }
        let start = range.offset.min(object.bytes);
        let size = range.length.unwrap_or(u64::MAX).min(object.bytes - start);
        Ok(Box::new(Reader::object(&range.key, &object.etag, start, size)))
    }

    /// Reads from an open value of the guest's.
    pub(super) async fn read(&mut self, handle: u32, offset: u64, length: u32) -> Result<Bytes, Error> {
        if length as usize > limit::HOST_CALL_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a read of {length} bytes: read at most {} at a time",
                limit::HOST_CALL_BYTES_MAX
            )));
        }
        // Taken out while it is read, so that what is lost can be recovered through `self`.
        let slot = self.readers.get_mut(handle as usize).ok_or_else(stale)?;
        let reader = std::mem::replace(slot, Box::new(Reader::inline(Bytes::new(), Vec::new())));
        let (reader, result) = self.read_from(reader, offset, length).await;
        if let Some(slot) = self.readers.get_mut(handle as usize) {
            *slot = reader;
        }
        result
    }

    /// Reads; where the copy turns out to be lost, from the next one.
    pub(super) async fn read_from(
        &mut self,
        mut reader: Box<Reader>,
        offset: u64,
        length: u32,
    ) -> (Box<Reader>, Result<Bytes, Error>) {
        for _ in 0..limit::RECOVERIES_MAX {
            let error = match reader.read(&self.env, &self.fetched, offset, length).await {
                Ok(bytes) => {
                    if reader.is_remote() {
                        self.bytes_read += bytes.len() as u64;
                    }
                    return (reader, Ok(bytes));
                }
                Err(error) => error,
            };
            let Some(made) = reader.made.filter(|_| error.kind == Kind::Lost) else {
                return (reader, Err(error));
            };
            if let Err(error) = self.reopen(&mut reader, made, error).await {
                return (reader, Err(error));
            }
        }
        let error = reader.made.map_or_else(stale, |made| given_up(made.id));
        (reader, Err(error))
    }

    /// Points a reader to another copy of what it reads.
    async fn reopen(&mut self, reader: &mut Reader, made: Made, error: Error) -> Result<(), Error> {
        let Output::Stored(known) = self.output_of(made.id).await? else { return Err(error) };
        // Another reader of this task may have found out before.
        let stored = if known.key == made.key { self.recover(made.id, &known, error).await? } else { known };
        let (partition, key) = self.present(made.id, stored, limit::LOAD_FOR_BLOCKS_BYTES_MAX).await?;
        reader.replace_partition(partition, key);
        Ok(())
    }

    /// Keeps an open value for the guest; its handle.
    pub(super) fn keep(&mut self, reader: Box<Reader>) -> Result<u32, Error> {
        if self.readers.len() >= limit::READERS_MAX {
            return Err(Error::invalid(format!(
                "the task has {} open readers: drop some first",
                limit::READERS_MAX
            )));
        }
        Ok(self.readers.insert(reader) as u32)
    }
}

/// An inline output has one block, or none if it is empty.
fn one_block(payload: Payload, blocks: Blocks) -> Result<Box<Reader>, Error> {
    let has = usize::from(!payload.bytes.is_empty());
    match blocks {
        Some(blocks) if blocks != (0, 1) || has == 0 => Err(no_blocks(Some(blocks), has)),
        _ => Ok(Box::new(Reader::inline(payload.bytes, payload.refs))),
    }
}

/// Blocks `inner` of the range `first..first + count`.
fn within(first: u32, count: u32, inner: Blocks) -> Result<(u32, u32), Error> {
    match inner {
        None => Ok((first, count)),
        Some((skip, take)) if skip.checked_add(take).is_some_and(|end| end <= count) => {
            Ok((first + skip, take))
        }
        Some(_) => Err(no_blocks(inner, count as usize)),
    }
}

fn no_blocks(blocks: Blocks, has: usize) -> Error {
    let (first, count) = blocks.unwrap_or_default();
    Error::invalid(format!(
        "blocks {first}..{} of a partition that has {has}",
        u64::from(first) + u64::from(count)
    ))
}

fn given_up(id: PartitionId) -> Error {
    let message = format!("partition {id} was made again {} times and lost each time", limit::RECOVERIES_MAX);
    Error::new(Kind::Lost, Code::PartitionLost, message)
}
