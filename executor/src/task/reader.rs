//! An open value: where its bytes are, its blocks, and reading ahead of a guest that reads in order.
//!
//! Bytes that are in memory are handed out as slices. Others come in windows of a mebibyte, and while the guest works
//! on one, the next is fetched. A reader does not recover what is lost; it says so, and `open` does.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::{Error, PartitionId, limit, value::StoredKey};
use fanfold_store::Account;
use tokio_util::task::AbortOnDropHandle;

use super::host::Environment;
use crate::cache::Partition;

/// Bytes fetched at once for a guest that reads in order.
const WINDOW: u64 = limit::HOST_CALL_BYTES_MAX as u64;

/// Where the bytes of a value are.
#[derive(Clone, Debug)]
pub enum Content {
    /// Here.
    Inline(Bytes),
    /// In a partition; the value begins at this offset.
    Partition {
        /// Its data.
        partition: Partition,
        /// Bytes of the partition before the value.
        start: u64,
    },
    /// In a user's object.
    Object {
        /// Its key.
        key: Arc<str>,
        /// As it was when the value was opened.
        etag: Arc<str>,
        /// Bytes of the object before the value.
        start: u64,
    },
}

/// A partition that a reader reads, for the case that it has to be made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Which.
    pub id: PartitionId,
    /// Where the copy is that is being read.
    pub key: StoredKey,
}

/// See the module.
#[derive(Debug)]
pub struct Reader {
    content: Content,
    size: u64,
    /// Lengths of its blocks.
    blocks: Vec<u64>,
    refs: Vec<PartitionId>,
    /// What it reads, if that is a stored partition.
    pub(super) made: Option<Made>,
    /// Where a guest that reads in order reads next.
    next: u64,
    /// Bytes fetched and where they begin.
    window: (u64, Bytes),
    ahead: Option<Ahead>,
}

/// A fetch that runs while the guest works.
#[derive(Debug)]
struct Ahead {
    range: Range<u64>,
    fetch: AbortOnDropHandle<Result<Bytes, Error>>,
    _room: Room,
}

/// A window's share of what one task may read ahead.
#[derive(Debug)]
struct Room(Arc<AtomicUsize>);

impl Room {
    fn take(used: &Arc<AtomicUsize>) -> Option<Self> {
        let fits = |now: usize| {
            (now + WINDOW as usize <= limit::READ_AHEAD_BYTES_MAX).then_some(now + WINDOW as usize)
        };
        used.fetch_update(Relaxed, Relaxed, fits).ok()?;
        Some(Self(used.clone()))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(WINDOW as usize, Relaxed);
    }
}

impl Reader {
    /// Of `size` bytes in blocks of the given lengths.
    pub fn new(
        content: Content,
        size: u64,
        blocks: Vec<u64>,
        refs: Vec<PartitionId>,
        made: Option<Made>,
    ) -> Self {
        Self { content, size, blocks, refs, made, next: 0, window: (0, Bytes::new()), ahead: None }
    }

    /// Of bytes that are at hand.
    pub fn inline(bytes: Bytes, refs: Vec<PartitionId>) -> Self {
        let size = bytes.len() as u64;
        Self::new(Content::Inline(bytes), size, whole(size), refs, None)
    }

    /// Of bytes `start..start + size` of an object.
    pub fn object(key: &str, etag: &str, start: u64, size: u64) -> Self {
        let content = Content::Object { key: key.into(), etag: etag.into(), start };
        Self::new(content, size, whole(size), Vec::new(), None)
    }

    /// Bytes in all.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Lengths of the blocks, in order.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Partitions named in the value.
    pub fn refs(&self) -> &[PartitionId] {
        &self.refs
    }

    /// Whether reading it counts as traffic.
    pub fn is_remote(&self) -> bool {
        !matches!(self.content, Content::Inline(_))
    }

    /// Reads on from another copy of the same partition.
    pub fn replace_partition(&mut self, copy: Partition, key: StoredKey) {
        if let (Content::Partition { partition, .. }, Some(made)) = (&mut self.content, &mut self.made) {
            (*partition, made.key) = (copy, key);
            self.ahead = None;
        }
    }

    /// Everything in memory, in order; `None` where it is elsewhere.
    pub fn chunks(&self) -> Option<Vec<Bytes>> {
        match &self.content {
            Content::Inline(bytes) => Some(vec![bytes.clone()]),
            Content::Partition { partition: Partition::Memory(cached), start: 0 }
                if self.size == cached.segments.bytes() =>
            {
                Some(cached.segments.chunks().to_vec())
            }
            _ => None,
        }
    }

    /// Up to `length` bytes from `offset`; fewer only at the end.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Lost`] where no copy can be read; the object store's others.
    pub async fn read(
        &mut self,
        env: &Arc<Environment>,
        ahead: &Arc<AtomicUsize>,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let start = offset.min(self.size);
        let range = start..start.saturating_add(u64::from(length)).min(self.size);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        match &self.content {
            Content::Inline(bytes) => return Ok(bytes.slice(range.start as usize..range.end as usize)),
            Content::Partition { partition: Partition::Memory(cached), start } => {
                return Ok(cached.segments.slice(start + range.start..start + range.end));
            }
            _ => {}
        }
        let in_order = range.start == self.next;
        let bytes = self.fetched(env, range.clone(), in_order).await?;
        self.next = range.end;
        if in_order {
            self.read_ahead(env, ahead);
        }
        Ok(bytes)
    }

    /// The bytes of a range, from the window, what was read ahead, and the store, in this order.
    async fn fetched(
        &mut self,
        env: &Arc<Environment>,
        range: Range<u64>,
        in_order: bool,
    ) -> Result<Bytes, Error> {
        let (mut at, mut parts) = (range.start, Vec::new());
        while at < range.end {
            if self.in_window(at).is_empty() {
                self.refill(env, at, range.end, in_order).await?;
            }
            let mut part = self.in_window(at);
            if part.is_empty() {
                return Err(Error::internal("the store answered a read with fewer bytes than there are"));
            }
            part.truncate((range.end - at) as usize);
            at += part.len() as u64;
            parts.push(part);
        }
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        let mut joined = BytesMut::with_capacity((range.end - range.start) as usize);
        parts.iter().for_each(|part| joined.extend_from_slice(part));
        Ok(joined.freeze())
    }

    /// What the window has from `at` on.
    fn in_window(&self, at: u64) -> Bytes {
        let (start, bytes) = &self.window;
        match at.checked_sub(*start) {
            Some(skip) if skip < bytes.len() as u64 => bytes.slice(skip as usize..),
            _ => Bytes::new(),
        }
    }

    /// Moves the window to `at`.
    async fn refill(
        &mut self,
        env: &Arc<Environment>,
        at: u64,
        end: u64,
        in_order: bool,
    ) -> Result<(), Error> {
        if let Some(ahead) = self.ahead.take().filter(|ahead| ahead.range.contains(&at)) {
            let bytes = ahead.fetch.await.map_err(|_| Error::internal("a read was stopped"))??;
            self.window = (ahead.range.start, bytes);
            return Ok(());
        }
        let wanted = if in_order { end.max(at + WINDOW) } else { end };
        let range = at..wanted.min(self.size);
        let bytes = fetch(env.clone(), self.content.clone(), range.clone()).await?;
        self.window = (range.start, bytes);
        Ok(())
    }

    /// Starts to fetch what follows the window, if there is something and the task has not read too far ahead.
    fn read_ahead(&mut self, env: &Arc<Environment>, used: &Arc<AtomicUsize>) {
        let begin = self.window.0 + self.window.1.len() as u64;
        if self.ahead.is_some() || begin >= self.size {
            return;
        }
        let Some(room) = Room::take(used) else { return };
        let range = begin..(begin + WINDOW).min(self.size);
        let (account, fetch) = (Account::current(), fetch(env.clone(), self.content.clone(), range.clone()));
        let fetch = env.reads.spawn(async move { account.charge(fetch).await });
        self.ahead = Some(Ahead { range, fetch: AbortOnDropHandle::new(fetch), _room: room });
    }
}

/// Bytes of a value that is not in memory.
async fn fetch(env: Arc<Environment>, content: Content, range: Range<u64>) -> Result<Bytes, Error> {
    match content {
        Content::Inline(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
        Content::Partition { partition, start } => {
            env.cache.read(&partition, start + range.start..start + range.end).await
        }
        Content::Object { key, etag, start } => {
            let wanted = range.end - range.start;
            let bytes =
                env.store.objects().read(&key, Some(&etag), start + range.start..start + range.end).await?;
            // The etag says that it is the same object, so it cannot have become shorter.
            if bytes.len() as u64 == wanted {
                Ok(bytes)
            } else {
                Err(Error::internal(format!("object `{key}` is cut")))
            }
        }
    }
}

/// Data that is one block; none if it is empty.
fn whole(size: u64) -> Vec<u64> {
    if size == 0 { Vec::new() } else { vec![size] }
}

#[cfg(test)]
mod tests;
