//! An open value: where its bytes are, its blocks, and reading ahead of a guest that reads in order.
//!
//! Bytes that are in memory are handed out as slices. Others come in windows: the first is fetched when a partition is opened, and while
//! the guest works on one, the next ones are on their way. A window is a mebibyte; it grows while the guest reads on in an object,
//! and most where each is a request to a server of objects, which has its price. What windows take is bounded ([`Fetched`]): many readers
//! have small ones, and nothing ahead. A reader does not recover what is lost; it says so, and `open` does.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use fanfold_protocol::{Digest, Error, PartitionId, limit, value::StoredKey};
use fanfold_store::Account;
use tokio_util::task::AbortOnDropHandle;

pub use self::room::Fetched;
use self::room::{Open, Room};
use super::host::Environment;
use crate::cache::Partition;

/// Bytes fetched at once for a guest that reads in order.
const WINDOW: u64 = limit::HOST_CALL_BYTES_MAX as u64;
/// The largest window of a long object in a directory: a disk is at its fastest when it is asked for so much.
const OBJECT_WINDOW_MAX: u64 = 8 << 20;
/// The first and the largest window where each costs a request: a block of a shuffle is one or two, a long object 1,300 a
/// terabyte and not 10^6.
const BILLED_WINDOW: u64 = 2 << 20;
const BILLED_WINDOW_MAX: u64 = 8 << 20;
/// Windows on their way to a guest that reads on. A disk, like a server, is faster when it is asked for several.
const AHEAD_MAX: usize = 3;
/// The shortest window, however many readers share the room, or if there is none.
const SMALL_WINDOW: u64 = 128 << 10;
/// A rest that is shorter is read with the window before it.
const SHORT_REST: u64 = 128 << 10;

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
    /// Of the window, if there was some.
    room: Option<Room>,
    /// The windows after it, in order.
    ahead: VecDeque<Ahead>,
    /// Bytes of the next window.
    step: u64,
    /// Windows that were read in order, one after the other.
    windows: usize,
    /// Once it reads ahead.
    open: Option<Open>,
}

/// A fetch that runs while the guest works.
#[derive(Debug)]
struct Ahead {
    range: Range<u64>,
    fetch: AbortOnDropHandle<Result<Bytes, Error>>,
    room: Room,
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
        let window = (0, Bytes::new());
        let ahead = VecDeque::new();
        let (room, open) = (None, None);
        Self { content, size, blocks, refs, made, next: 0, window, room, ahead, step: 0, windows: 0, open }
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

    /// Says which bytes these are, where something but the bytes does: within a job, a value with the same identity has the same
    /// ones. A partition that is made again is the same.
    pub fn identity(&self) -> Option<Digest> {
        let said = match &self.content {
            Content::Inline(_) => return None,
            Content::Partition { start, .. } => format!("partition {} {start}", self.made?.id),
            Content::Object { key, etag, start } => format!("object {etag:?} {start} {key}"),
        };
        Some(Digest::of(said.as_bytes()))
    }

    /// Whether reading it counts as traffic.
    pub fn is_remote(&self) -> bool {
        !matches!(self.content, Content::Inline(_))
    }

    /// Reads on from another copy of the same partition.
    pub fn replace_partition(&mut self, copy: Partition, key: StoredKey) {
        if let (Content::Partition { partition, .. }, Some(made)) = (&mut self.content, &mut self.made) {
            (*partition, made.key) = (copy, key);
            self.ahead.clear();
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
        fetched: &Fetched,
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
        let bytes = self.windowed(env, fetched, range.clone(), in_order).await?;
        self.next = range.end;
        if in_order {
            self.read_ahead(env, fetched);
        }
        Ok(bytes)
    }

    /// The bytes of a range, from the window, what was read ahead, and the store, in this order.
    async fn windowed(
        &mut self,
        env: &Arc<Environment>,
        fetched: &Fetched,
        range: Range<u64>,
        in_order: bool,
    ) -> Result<Bytes, Error> {
        let (mut at, mut parts) = (range.start, Vec::new());
        while at < range.end {
            if self.in_window(at).is_empty() {
                self.refill(env, fetched, at..range.end, in_order).await?;
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

    /// Moves the window to the start of `wanted`.
    async fn refill(
        &mut self,
        env: &Arc<Environment>,
        fetched: &Fetched,
        wanted: Range<u64>,
        in_order: bool,
    ) -> Result<(), Error> {
        // What was in it has been read.
        (self.window, self.room) = ((0, Bytes::new()), None);
        self.windows = if in_order { self.windows + 1 } else { 0 };
        // What is before it is not wanted any more.
        while let Some(ahead) = self.ahead.pop_front() {
            if !ahead.range.contains(&wanted.start) {
                continue;
            }
            let bytes = ahead.fetch.await.map_err(|_| Error::internal("a read was stopped"))??;
            (self.window, self.room) = ((ahead.range.start, bytes), Some(ahead.room));
            return Ok(());
        }
        let range = if in_order {
            let (step, least) = self.next_step(env, fetched, wanted.start);
            self.room = fetched.room(step, least);
            let step = self.room.as_ref().map_or(least, Room::bytes);
            self.range(wanted.start, step.max(wanted.end - wanted.start))
        } else {
            wanted
        };
        let bytes = fetch(env.clone(), self.content.clone(), range.clone()).await?;
        self.window = (range.start, bytes);
        Ok(())
    }

    /// `bytes` from `begin` on, and what is under the same checksum as their last: it would be read twice.
    fn range(&self, begin: u64, bytes: u64) -> Range<u64> {
        let end = match &self.content {
            Content::Partition { partition, start } => {
                partition.index().units_around(start + begin..start + begin + bytes).end - start
            }
            _ => begin + bytes,
        };
        begin..end.min(self.size)
    }

    /// Whether each read is a request to a server, which has its price.
    fn is_billed(&self, env: &Environment) -> bool {
        let in_store = match &self.content {
            Content::Inline(_) => false,
            Content::Partition { partition, .. } => partition.is_in_store(),
            Content::Object { .. } => true,
        };
        in_store && env.store.is_shared()
    }

    /// Bytes of the next window of a guest that reads on, which begins at `begin`; and how few are worth a read.
    fn next_step(&mut self, env: &Environment, fetched: &Fetched, begin: u64) -> (u64, u64) {
        let is_object = matches!(self.content, Content::Object { .. });
        let billed = self.is_billed(env);
        self.step = match (billed, self.step) {
            (true, 0) => BILLED_WINDOW,
            (true, step) => (step * 2).min(BILLED_WINDOW_MAX),
            (false, step @ 1..) if is_object => (step * 2).min(OBJECT_WINDOW_MAX),
            (false, _) => WINDOW,
        };
        self.open.get_or_insert_with(|| fetched.opened());
        let (step, least) =
            if billed { (self.step, WINDOW) } else { (self.step.min(self.share(fetched)), SMALL_WINDOW) };
        let left = self.size - begin;
        (if left < step + SHORT_REST { left } else { step }, least)
    }

    /// What a window may have where all readers of the task have one and as much on its way; less while they are opened, since
    /// nobody knows how many there will be.
    fn share(&self, fetched: &Fetched) -> u64 {
        let parts = if self.windows == 0 { 8 } else { 2 };
        (fetched.share() / parts).max(SMALL_WINDOW)
    }

    /// Starts to fetch what follows the window, if that is elsewhere and the task has not read too far ahead: one window before
    /// anything was read, more of them while the guest reads on.
    pub(super) fn read_ahead(&mut self, env: &Arc<Environment>, fetched: &Fetched) {
        if let Content::Inline(_) | Content::Partition { partition: Partition::Memory(_), .. } = self.content
        {
            return;
        }
        let window_end = self.window.0 + self.window.1.len() as u64;
        let mut begin = self.ahead.back().map_or(window_end, |last| last.range.end);
        while begin < self.size && self.ahead.len() < self.windows.clamp(1, AHEAD_MAX) {
            let (step, least) = self.next_step(env, fetched, begin);
            let Some(room) = fetched.room(step, least) else { return };
            let range = self.range(begin, room.bytes());
            begin = range.end;
            let (account, fetch) =
                (Account::current(), fetch(env.clone(), self.content.clone(), range.clone()));
            let fetch = env.reads.spawn(async move { account.charge(fetch).await });
            self.ahead.push_back(Ahead { range, fetch: AbortOnDropHandle::new(fetch), room });
        }
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

mod room;
#[cfg(test)]
mod tests;
