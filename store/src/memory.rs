//! Memory that is used again.
//!
//! Memory that is fresh from the system has to be found and zeroed by it, page by page, which for bytes that only pass through takes
//! longer than everything else that is done with them. So what is given back is kept, up to a bound, with whatever was in it.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Memory that nobody uses.
#[derive(Debug)]
pub struct Pool {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

/// Last given back last.
#[derive(Debug)]
struct Kept {
    list: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// One that keeps at most `bytes_max` bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self { kept: Mutex::new(Kept { list: Vec::new(), bytes: 0 }), bytes_max }
    }

    /// Memory for `bytes` and at most as many again, with what was in it.
    pub fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |memory: &Vec<u8>| (bytes..=bytes.saturating_mul(2)).contains(&memory.capacity());
        let mut kept = self.kept();
        let number = kept.list.iter().rposition(fits)?;
        let memory = kept.list.remove(number);
        kept.bytes -= memory.capacity();
        Some(memory)
    }

    /// Keeps memory; what was given back longest ago makes room for it.
    pub fn put(&self, memory: Vec<u8>) {
        let mut kept = self.kept();
        kept.bytes += memory.capacity();
        kept.list.push(memory);
        let (mut left, mut gone) = (kept.bytes, 0);
        while left > self.bytes_max {
            left -= kept.list[gone].capacity();
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

/// Bytes in memory that goes back to its pool.
#[derive(Debug)]
pub struct Pooled {
    memory: Vec<u8>,
    pool: &'static Pool,
}

impl Pooled {
    /// `memory`, for `pool` when it is dropped.
    pub fn new(memory: Vec<u8>, pool: &'static Pool) -> Self {
        Self { memory, pool }
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.put(mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_is_kept_is_bounded_and_fits() {
        let pool = Pool::new(32 * MIB);
        (1..=80).for_each(|_| pool.put(vec![0; MIB]));
        pool.put(vec![0; 4 * MIB]);
        let bytes = || pool.kept().list.iter().map(Vec::capacity).sum::<usize>();
        assert_eq!((bytes(), pool.kept().bytes), (32 * MIB, 32 * MIB));
        assert_eq!(pool.take(3 * MIB).map(|memory| memory.len()), Some(4 * MIB));
        assert_eq!(pool.take(3 * MIB), None);
        assert_eq!(pool.take(100), None, "a mebibyte for a hundred bytes");
        assert_eq!((bytes(), pool.kept().bytes), (28 * MIB, 28 * MIB));
        pool.put(vec![0; 40 * MIB]);
        assert_eq!((bytes(), pool.kept().bytes), (0, 0), "more than it keeps");
    }

    #[test]
    fn memory_goes_back_to_its_pool() {
        static POOL: Pool = Pool::new(MIB);
        let bytes = Pooled::new(vec![7; 1_000], &POOL);
        let at = bytes.as_ref().as_ptr();
        assert_eq!(POOL.take(1_000), None);
        drop(bytes);
        assert_eq!(POOL.take(1_000).map(|memory| memory.as_ptr()), Some(at));
    }
}
