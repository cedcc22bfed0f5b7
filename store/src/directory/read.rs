//! Reading files: one open, one `pread`, no further copy; large ones past the page cache ([`super::large`]).

use std::{
    fs::{File, Metadata},
    io,
    ops::Range,
    path::Path,
    time::UNIX_EPOCH,
};

use bytes::Bytes;
use rustix::buffer::spare_capacity;

use super::large::{LARGE_BYTES, read_large_at};

/// What is known of a file without reading it.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) bytes: u64,
    pub(crate) etag: String,
    pub(crate) modified_at_ms: u64,
}

impl From<&Metadata> for Meta {
    fn from(metadata: &Metadata) -> Self {
        let modified =
            metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let inode = std::os::unix::fs::MetadataExt::ino(metadata);
        // The same text as the local object store's, so that a put's etag equals a later head's.
        let etag = format!("{inode:x}-{:x}-{:x}", modified.as_micros(), metadata.len());
        Self { bytes: metadata.len(), etag, modified_at_ms: modified.as_millis() as u64 }
    }
}

/// Opens a file for reading; `None` where there is none.
pub(crate) fn open(file: &Path) -> io::Result<Option<(File, Metadata)>> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    let metadata = opened.metadata()?;
    Ok(metadata.is_file().then_some((opened, metadata)))
}

/// The bytes of `range` of a file that nobody else reads from meanwhile, fewer where it ends before. Blocks.
pub(crate) fn read(file: &File, meta: &Meta, range: Range<u64>) -> io::Result<Bytes> {
    if meta.bytes >= LARGE_BYTES { read_large_at(file, range) } else { read_at(file, range) }
}

/// The bytes of `range` of a file, fewer where it ends before, in memory that was not zeroed first. Blocks.
///
/// # Errors
/// Of the file system; `OutOfMemory` where there is none for the range.
pub fn read_at(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let length =
        usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    while bytes.len() < length {
        let at = range.start + bytes.len() as u64;
        // The reserved memory may be larger than asked for: what was read beyond the range is cut below.
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    bytes.truncate(length);
    Ok(bytes.into())
}
