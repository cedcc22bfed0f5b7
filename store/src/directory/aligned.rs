//! Memory for reading and writing past the page cache: it begins on a page's border, and long pieces of it are used again.
//!
//! Memory that is fresh from the system has to be zeroed by it, and by us, which takes longer than the disk's own work on it.
//! So what is given back is kept, up to [`KEPT_BYTES`], with whatever was in it.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

/// What every disk that we know of can address: a page.
pub(super) const ALIGN: usize = 4 << 10;
/// Shorter memory is cheap to have.
const LONG_BYTES: usize = 256 << 10;
/// All that is kept: the windows of a few tasks.
const KEPT_BYTES: usize = 32 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { list: Vec::new(), bytes: 0 });

/// Memory that nobody uses, last given back last.
struct Kept {
    list: Vec<Vec<u8>>,
    bytes: usize,
}

impl Kept {
    /// Memory of `bytes` at least, and not much more.
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |memory: &Vec<u8>| (bytes..=bytes.saturating_mul(2)).contains(&memory.len());
        let memory = self.list.remove(self.list.iter().rposition(fits)?);
        self.bytes -= memory.len();
        Some(memory)
    }

    /// Keeps memory; what was given back longest ago makes room for it.
    fn put(&mut self, memory: Vec<u8>) {
        self.bytes += memory.len();
        self.list.push(memory);
        while self.bytes > KEPT_BYTES {
            self.bytes -= self.list.remove(0).len();
        }
    }
}

/// Memory that begins on a page's border. Nobody has written to it, or somebody has.
#[derive(Default, Debug)]
pub(super) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Of `length` bytes.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn new(length: usize) -> io::Result<Self> {
        let wanted = length.checked_add(ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
        let kept = if wanted < LONG_BYTES { None } else { kept().take(wanted) };
        let memory = match kept {
            Some(memory) => memory,
            None => zeroed(wanted)?,
        };
        let start = memory.as_ptr().addr().next_multiple_of(ALIGN) - memory.as_ptr().addr();
        Ok(Self { memory, start, length })
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.memory.len() >= LONG_BYTES {
            kept().put(std::mem::take(&mut self.memory));
        }
    }
}

fn kept() -> std::sync::MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn zeroed(bytes: usize) -> io::Result<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    memory.resize(bytes, 0);
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_fits() {
        let mut kept = Kept { list: Vec::new(), bytes: 0 };
        (1..=80).for_each(|_| kept.put(vec![0; 1 << 20]));
        kept.put(vec![0; 4 << 20]);
        assert_eq!(kept.bytes, KEPT_BYTES);
        assert_eq!(kept.list.iter().map(Vec::len).sum::<usize>(), KEPT_BYTES);
        assert_eq!(kept.take(3 << 20).map(|memory| memory.len()), Some(4 << 20));
        assert_eq!(kept.take(3 << 20), None);
        assert_eq!(kept.take(100), None, "a mebibyte for a hundred bytes");
        assert_eq!(kept.bytes, KEPT_BYTES - (4 << 20));
    }

    #[test]
    fn memory_begins_on_a_border_and_is_as_long_as_asked_for() {
        for length in [0, 1, ALIGN, LONG_BYTES, 1 << 20, (1 << 20) + 5] {
            let memory = Aligned::new(length).expect("there is memory");
            assert!(memory.bytes().as_ptr().addr().is_multiple_of(ALIGN));
            assert_eq!(memory.bytes().len(), length);
        }
    }
}
