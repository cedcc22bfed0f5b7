//! Memory that is used again.
//!
//! Memory that is fresh from the system has to be found and zeroed by it, page by page, which for bytes that only pass through takes
//! longer than everything else that is done with them. So it comes in huge pages where it is long, is given back whole, and is kept, up to
//! a bound, with whatever was in it. A disk also takes huge pages in fewer and larger requests (`docs/adr/0005`).

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memmap2::{Advice, MmapMut};

/// A huge page of most processors. Memory of whole ones is a huge page each, where the system has one.
pub const HUGE_BYTES: usize = 2 << 20;

/// Memory that nobody uses.
#[derive(Debug)]
pub struct Pool {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

/// Last given back last.
#[derive(Debug)]
struct Kept {
    list: Vec<MmapMut>,
    bytes: usize,
}

impl Pool {
    /// One that keeps at most `bytes_max` bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self { kept: Mutex::new(Kept { list: Vec::new(), bytes: 0 }), bytes_max }
    }

    /// Memory of `bytes`, from a page's border: what is kept, with what was in it, or fresh.
    ///
    /// # Errors
    /// Of the system, which has no more.
    pub fn take(&'static self, bytes: usize) -> io::Result<Pooled> {
        let memory = match self.take_kept(bytes) {
            Some(memory) => memory,
            None => fresh(bytes)?,
        };
        Ok(Pooled { memory: Some(memory), length: bytes, pool: self })
    }

    /// Not what has more than twice as many.
    fn take_kept(&self, bytes: usize) -> Option<MmapMut> {
        let fits = |memory: &MmapMut| (bytes..=bytes.saturating_mul(2)).contains(&memory.len());
        let mut kept = self.kept();
        let number = kept.list.iter().rposition(fits)?;
        let memory = kept.list.remove(number);
        kept.bytes -= memory.len();
        Some(memory)
    }

    /// Keeps memory; what was given back longest ago makes room for it.
    fn put(&self, memory: MmapMut) {
        let mut kept = self.kept();
        kept.bytes += memory.len();
        kept.list.push(memory);
        let (mut left, mut gone) = (kept.bytes, 0);
        while left > self.bytes_max {
            left -= kept.list[gone].len();
            gone += 1;
        }
        kept.bytes = left;
        let gone: Vec<_> = kept.list.drain(..gone).collect();
        // What takes the system long is not done under the lock.
        drop(kept);
        drop(gone);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresh(bytes: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)?;
    if bytes >= HUGE_BYTES {
        // A system that has none gives small ones.
        let _ = memory.advise(Advice::HugePage);
    }
    Ok(memory)
}

/// Memory that goes back to its pool.
#[derive(Debug)]
pub struct Pooled {
    /// Until it goes back.
    memory: Option<MmapMut>,
    length: usize,
    pool: &'static Pool,
}

impl Pooled {
    /// Leaves out what is after `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.length])
    }
}

impl AsMut<[u8]> for Pooled {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[..self.length])
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_is_kept_is_bounded_and_fits() {
        static POOL: Pool = Pool::new(32 * MIB);
        let of = |bytes| fresh(bytes).expect("there is memory");
        let kept = || {
            let kept = POOL.kept();
            (kept.list.iter().map(|memory| memory.len()).sum::<usize>(), kept.bytes)
        };
        (1..=80).for_each(|_| POOL.put(of(MIB)));
        POOL.put(of(4 * MIB));
        assert_eq!(kept(), (32 * MIB, 32 * MIB));
        assert_eq!(POOL.take_kept(3 * MIB).map(|memory| memory.len()), Some(4 * MIB));
        assert!(POOL.take_kept(3 * MIB).is_none());
        assert!(POOL.take_kept(100).is_none(), "a mebibyte for a hundred bytes");
        assert_eq!(kept(), (28 * MIB, 28 * MIB));
        POOL.put(of(40 * MIB));
        assert_eq!(kept(), (0, 0), "more than it keeps");
    }

    #[test]
    fn memory_begins_on_a_border_and_goes_back_to_its_pool() {
        static POOL: Pool = Pool::new(8 * MIB);
        for bytes in [1, 5_000, MIB, HUGE_BYTES, HUGE_BYTES + 5] {
            let mut memory = POOL.take(bytes).expect("there is memory");
            let at = memory.as_ref().as_ptr();
            assert!(at.addr().is_multiple_of(4 << 10));
            assert_eq!(memory.as_mut().len(), bytes);
            memory.as_mut().fill(7);
            memory.truncate(bytes / 2);
            assert!(memory.as_ref().len() == bytes / 2 && memory.as_ref().iter().all(|byte| *byte == 7));
            drop(memory);
            let again = POOL.take(bytes).expect("there is memory");
            assert_eq!((again.as_ref().as_ptr(), again.as_ref().len()), (at, bytes));
        }
    }

    #[test]
    fn what_nobody_has_is_an_error() {
        static POOL: Pool = Pool::new(MIB);
        assert!(POOL.take(usize::MAX / 2).is_err());
    }
}
