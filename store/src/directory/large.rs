//! Large files, written and read past the kernel's page cache.
//!
//! An object of some mebibytes is mostly written once and read once, in order: the page cache would only push out what is
//! read often, and copying into pages that have to be found first costs more processor time than sorting the data does
//! (`docs/adr/0005`). So such bytes go between the disk and our own memory, but for those that the page cache has. Memory,
//! offsets and lengths are multiples of [`ALIGN`]; what is not, at the end of a file, goes through the page cache. A file
//! system that does not know how (`tmpfs` of some kernels) is used as usual.
//!
//! Every function here blocks.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    ops::Range,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use bytes::Bytes;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, pwritev},
};

use super::cached::is_cached;
use crate::memory::{Pooled, READS};

/// A file of so many bytes is large to read.
pub(crate) const LARGE_BYTES: u64 = 8 << 20;
/// What every disk that we know of can address: a page.
const ALIGN: usize = 4 << 10;
/// Bytes that are gathered where they do not come in aligned memory. A file that is not longer goes through the page
/// cache.
const GATHER_BYTES: usize = 1 << 20;
/// Gathering begins with so much memory: most files are short.
const GATHER_BYTES_FIRST: usize = 64 << 10;
/// Reads shorter than this go through the page cache: they are repeated more often than long ones, and a disk takes as
/// long for them as for some more.
const READ_BYTES_MIN: u64 = 128 << 10;

/// A new file that is written from its start to its end, past the page cache where that can be.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    /// Whether the page cache is passed by.
    direct: bool,
    /// Memory of pages for what is gathered, once there is something.
    gathered: Option<Pooled>,
    /// Bytes that are gathered.
    length: usize,
    /// Bytes in the file.
    at: u64,
}

impl FileWriter {
    /// Creates `file`, which must not be there yet, with these permissions.
    ///
    /// # Errors
    /// Of the file system.
    pub fn create(file: &Path, mode: u32) -> io::Result<Self> {
        let mut options = new_file(mode);
        let (file, direct) = match options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(file) {
            Ok(file) => (file, true),
            Err(e) if is_refusal(&e) => {
                // Where the flag is looked at late, the file is there by now.
                let file = options.create_new(false).create(true).truncate(true).open(file)?;
                (file, false)
            }
            Err(e) => return Err(e),
        };
        Ok(Self::new(file, direct))
    }

    /// The same through the page cache.
    ///
    /// # Errors
    /// Of the file system.
    pub fn create_cached(file: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self::new(new_file(mode).open(file)?, false))
    }

    fn new(file: File, direct: bool) -> Self {
        Self { file, direct, gathered: None, length: 0, at: 0 }
    }

    /// Appends pieces. They are copied unless they lie on pages' borders and are whole pages, as the segments of a
    /// partition are; those go to the disk together.
    ///
    /// # Errors
    /// Of the file system. The file is of no use then.
    pub fn write<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut whole = Vec::new();
        for piece in pieces {
            if self.length == 0 && is_aligned(piece) {
                whole.push(piece);
                continue;
            }
            self.put(&mut whole)?;
            let mut left = piece;
            while !left.is_empty() {
                left = &left[self.gather(left)?..];
            }
        }
        self.put(&mut whole)
    }

    /// Copies as much as there is room for, and writes what is full.
    fn gather(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(GATHER_BYTES - self.length);
        let place = self.length..self.length + taken;
        let wanted = if place.end > GATHER_BYTES_FIRST { GATHER_BYTES } else { GATHER_BYTES_FIRST };
        self.gathering(wanted)?[place].copy_from_slice(&bytes[..taken]);
        self.length += taken;
        if self.length == GATHER_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    /// Memory for gathering, of at least `wanted` bytes, with what is gathered.
    fn gathering(&mut self, wanted: usize) -> io::Result<&mut [u8]> {
        let memory = match self.gathered.take() {
            Some(memory) if memory.as_ref().len() >= wanted => memory,
            less => {
                let mut more = READS.take(wanted)?;
                if let Some(less) = less {
                    more.as_mut()[..self.length].copy_from_slice(&less.as_ref()[..self.length]);
                }
                more
            }
        };
        Ok(self.gathered.insert(memory).as_mut())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(gathered) = self.gathered.take() else { return Ok(()) };
        let written = self.put(&mut vec![&gathered.as_ref()[..self.length]]);
        (self.gathered, self.length) = (Some(gathered), 0);
        written
    }

    /// Writes pieces, and forgets them. But for the last of a file they are whole pages.
    fn put(&mut self, pieces: &mut Vec<&[u8]>) -> io::Result<()> {
        let mut slices: Vec<_> = pieces.drain(..).map(IoSlice::new).collect();
        let mut left = slices.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match pwritev(&self.file, left, self.at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(e) if self.direct && is_refusal(&e.into()) => self.pass_by(false)?,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn pass_by(&mut self, direct: bool) -> io::Result<()> {
        pass_by(&self.file, direct)?;
        self.direct = direct;
        Ok(())
    }

    /// Writes what is left, and hands over the file, which nothing has synced yet.
    ///
    /// # Errors
    /// Of the file system.
    pub fn finish(mut self) -> io::Result<File> {
        let gathered = self.gathered.take();
        let gathered = gathered.as_ref().map_or(&[][..], |memory| &memory.as_ref()[..self.length]);
        let (whole, rest) = gathered.split_at(self.length - self.length % ALIGN);
        if self.at == 0 && self.direct {
            self.pass_by(false)?;
        }
        self.put(&mut vec![whole])?;
        if self.direct {
            self.pass_by(false)?;
        }
        self.put(&mut vec![rest])?;
        Ok(self.file)
    }
}

fn new_file(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options
}

/// The bytes of `range` of a large file, fewer where it ends before. Where the range is long, past the page cache, unless
/// that has it already. `file` must not be in use by another thread meanwhile: its flags change.
///
/// # Errors
/// Of the file system; `OutOfMemory` where there is none for the range.
pub fn read_large_at(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let long = range.end.saturating_sub(range.start) >= READ_BYTES_MIN;
    // An earlier read may have left it passing by.
    let passed = pass_by(file, long && !is_cached(file, &range));
    if !long {
        return super::read::read_at(file, range);
    }
    match passed.and_then(|()| read_pages(file, &range)) {
        Err(e) if is_refusal(&e) => {
            pass_by(file, false)?;
            read_pages(file, &range)
        }
        read => read,
    }
}

/// Reads whole pages into memory that was used before.
fn read_pages(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let begin = range.start - range.start % ALIGN as u64;
    let wanted = usize::try_from(range.end - begin).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut memory = READS.take(wanted.checked_next_multiple_of(ALIGN).ok_or(io::ErrorKind::OutOfMemory)?)?;
    let mut length = 0;
    while length < wanted {
        // A read that ended within a page has reached the end of the file.
        if !length.is_multiple_of(ALIGN) {
            break;
        }
        match file.read_at(&mut memory.as_mut()[length..], begin + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let from = ((range.start - begin) as usize).min(length);
    Ok(Bytes::from_owner(memory).slice(from..length.min(wanted)))
}

fn pass_by(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// Whether the file system says that it does not know how to pass by the page cache.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::INVAL | Errno::NOTSUP))
}

/// Whether they are whole pages, from a page's border.
fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGN) && bytes.len().is_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from place to place.
    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
    }

    #[test]
    fn what_is_written_in_any_pieces_is_read_back_at_any_range() {
        let dir = tempfile::tempdir().expect("a directory");
        for (number, (total, piece)) in [
            (0, 1),
            (5, 5),
            (ALIGN, ALIGN),
            (3 * GATHER_BYTES + 77, 300_001),
            (GATHER_BYTES * 2, GATHER_BYTES),
        ]
        .into_iter()
        .enumerate()
        {
            let (file, data) = (dir.path().join(number.to_string()), pattern(total));
            let mut writer = FileWriter::create(&file, 0o600).expect("a file");
            data.chunks(piece).for_each(|piece| writer.write([piece]).expect("a write"));
            assert_eq!(writer.finish().expect("an end").metadata().expect("its size").len(), total as u64);
            assert_eq!(std::fs::read(&file).expect("it is there"), data);
            let file = File::open(&file).expect("it is there");
            for range in
                [0..total, 1..total, 4_095..300_000, total / 2..total + 999, total + 1..total + 400_000, 1..5]
            {
                let read = read_large_at(&file, range.start as u64..range.end as u64).expect("a read");
                let wanted = data.get(range.start.min(total)..range.end.min(total)).unwrap_or_default();
                assert!(read == wanted, "{range:?} of {total}");
            }
        }
    }

    #[test]
    fn a_file_that_is_there_is_not_written_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("it");
        std::fs::write(&file, "before").expect("a file");
        let error = FileWriter::create(&file, 0o600).expect_err("it is there");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&file).expect("it is there"), b"before");
    }
}
