//! Memory for reading and writing past the page cache: it begins on a page's border, and long pieces of it are used again.

use std::{io, mem};

use crate::memory::Pool;

/// What every disk that we know of can address: a page.
pub(super) const ALIGN: usize = 4 << 10;
/// Shorter memory is cheap to have.
const LONG_BYTES: usize = 256 << 10;

/// The windows of a few tasks.
static POOL: Pool = Pool::new(32 << 20);

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
        let kept = if wanted < LONG_BYTES { None } else { POOL.take(wanted) };
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
            POOL.put(mem::take(&mut self.memory));
        }
    }
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
    fn memory_begins_on_a_border_and_is_as_long_as_asked_for() {
        for length in [0, 1, ALIGN, LONG_BYTES, 1 << 20, (1 << 20) + 5] {
            let memory = Aligned::new(length).expect("there is memory");
            assert!(memory.bytes().as_ptr().addr().is_multiple_of(ALIGN));
            assert_eq!(memory.bytes().len(), length);
        }
    }
}
