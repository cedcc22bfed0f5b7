//! Bytes between partitions and buffers: from the cache's memory to the session's socket and back, never through the guest.

use fanfold_gpu::{
    KeptKey,
    message::{Handle, Usage},
};
use fanfold_protocol::{Code, Error, Kind, limit};
use futures::stream;

use super::{Buffer, GpuHost};
use crate::task::host::{TaskHost, stale};

/// One step of either direction.
const STEP: u64 = limit::HOST_CALL_BYTES_MAX as u64;

/// A part of an open value.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The reader.
    pub source: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl TaskHost {
    /// Writes a part of an open value into a buffer.
    pub(super) async fn load_buffer(&mut self, buffer: u32, offset: u64, part: Part) -> Result<(), Error> {
        let buffer = self.gpu().await?.buffer(buffer)?.handle;
        self.load(buffer, offset, part).await
    }

    /// A buffer with a part of an open value, for reading only: what an earlier attempt of the job has left here, or a new one that
    /// stays for later ones.
    pub(super) async fn kept_buffer(
        &mut self,
        label: &str,
        part: Part,
        usage: Usage,
    ) -> Result<Buffer, Error> {
        let Part { source, offset, length } = part;
        let identity = self.readers.get(source as usize).ok_or_else(stale)?.identity();
        let key = identity.map(|source| KeptKey { source, offset, length, usage });
        if usage.copy_dst {
            let message =
                format!("the kept buffer `{label}` cannot have the usage copy-dst: it is for reading");
            return Err(Error::new(Kind::Invalid, Code::Gpu, message));
        }
        let size = length.checked_next_multiple_of(4).ok_or_else(|| short(u64::MAX, length))?;
        let session = &mut self.gpu().await?.session;
        if let Some(key) = &key
            && let Some(handle) = session.kept(key, label).await?
        {
            return Ok(Buffer { handle, size });
        }
        let handle = session.create_buffer(label, size, Usage { copy_dst: true, ..usage }).await?;
        let made = match (self.load(handle, 0, part).await, key) {
            (Ok(()), Some(key)) => self.gpu().await?.session.keep(handle, key).await,
            (loaded, _) => loaded,
        };
        if made.is_err() {
            // Where this fails as well, the session has ended and everything with it.
            self.gpu().await?.session.drop_handle(handle).await.ok();
        }
        made.map(|()| Buffer { handle, size })
    }

    async fn load(&mut self, buffer: Handle, offset: u64, part: Part) -> Result<(), Error> {
        let Part { source, offset: source_offset, length } = part;
        // Both are this host's: the session is taken out while the other is read.
        let mut gpu = self.gpu.take().ok_or_else(stale)?;
        let end = source_offset.saturating_add(length);
        let pieces = stream::unfold((&mut *self, source_offset), |(host, at)| async move {
            if at >= end {
                return None;
            }
            let piece = host.read(source, at, (end - at).min(STEP) as u32).await;
            let piece =
                piece.and_then(|piece| if piece.is_empty() { Err(short(end, at)) } else { Ok(piece) });
            // What follows an error is not asked for.
            let next = piece.as_ref().map_or(end, |piece| at + piece.len() as u64);
            Some((piece, (host, next)))
        });
        let mut pieces = Box::pin(pieces);
        let loaded = gpu.session.load(buffer, offset, &mut pieces).await;
        drop(pieces);
        self.gpu = Some(gpu);
        loaded.map(drop)
    }

    /// Appends a part of a buffer to a partition that is being written.
    pub(super) async fn store_buffer(
        &mut self,
        buffer: u32,
        offset: u64,
        length: u64,
        target: u32,
    ) -> Result<(), Error> {
        let handle = self.gpu().await?.buffer(buffer)?.handle;
        let mut gpu = self.gpu.take().ok_or_else(stale)?;
        let stored = self.store_from(&mut gpu, handle, offset, length, target).await;
        self.gpu = Some(gpu);
        stored
    }

    async fn store_from(
        &mut self,
        gpu: &mut GpuHost,
        buffer: u64,
        offset: u64,
        length: u64,
        target: u32,
    ) -> Result<(), Error> {
        let end = offset.checked_add(length).ok_or_else(|| {
            Error::new(Kind::Invalid, Code::Gpu, format!("{length} bytes at {offset} do not fit a buffer"))
        })?;
        let cache = self.env.cache.clone();
        let writer = self.writers.get_mut(target as usize).ok_or_else(stale)?;
        let mut at = offset;
        while at < end {
            let step = (end - at).min(STEP);
            let bytes = gpu.session.read(buffer, at, step).await?;
            writer.reserve(&cache, bytes.len()).await?;
            writer.append(&bytes);
            at += step;
        }
        Ok(())
    }
}

fn short(end: u64, size: u64) -> Error {
    let message = format!("bytes up to {end} of a value that has {size}");
    Error::new(Kind::Invalid, Code::Gpu, message)
}
