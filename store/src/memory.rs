//! Memory that is used again.
//!
//! Memory that is fresh from the system has to be found and zeroed by it, page by page, which for bytes that only pass through takes
//! longer than everything else that is done with them; and threads that ask for it wait for each other. So it comes in huge pages where it
//! is long, is given back whole, and is kept for some seconds, up to a bound, with whatever was in it. A disk also takes huge pages in
//! fewer and larger requests (`docs/adr/0005`).

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fanfold_protocol::limit::READ_AHEAD_ALL_BYTES_MAX;
use memmap2::{Advice, MmapMut};

/// A huge page of most processors. Memory of whole ones is a huge page each, where the system has one.
pub const HUGE_BYTES: usize = 2 << 20;
/// How long memory is kept that nobody wants.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// What is read from files, from object stores and at peers, and what is gathered to be written to a file. As much as all tasks of
/// an executor may read ahead, unless [`Pool::bound`] says less.
pub static READS: Pool = Pool::new(READ_AHEAD_ALL_BYTES_MAX);
/// Shorter reads have memory of the allocator's.
const READ_BYTES_MIN: usize = 64 << 10;

/// Memory that is lent, and that is kept for the next: together not more than its bound, as far as that is not all lent.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    bytes_max: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// Memory that nobody uses: last given back last.
    kept: Vec<(Instant, MmapMut)>,
    /// Bytes of it.
    bytes: usize,
    /// Bytes that are in use.
    lent: usize,
    /// Whether a thread runs that gives the system what was kept for long.
    swept: bool,
}

impl State {
    /// Takes out what was given back longest ago until there is no more than `bytes_max`, with what is lent.
    #[must_use]
    fn take_over(&mut self, bytes_max: usize) -> Vec<(Instant, MmapMut)> {
        let mut left = self.bytes;
        let is_over = |(_, memory): &&(Instant, MmapMut)| {
            let over = left + self.lent > bytes_max;
            left -= memory.len();
            over
        };
        let number = self.kept.iter().take_while(is_over).count();
        self.take_before(number)
    }

    /// Takes out what comes before `number`, for the caller to drop without the lock: that takes the system long.
    #[must_use]
    fn take_before(&mut self, number: usize) -> Vec<(Instant, MmapMut)> {
        let taken: Vec<_> = self.kept.drain(..number).collect();
        self.bytes -= taken.iter().map(|(_, memory)| memory.len()).sum::<usize>();
        taken
    }
}

impl Pool {
    /// One that keeps nothing that would make more than `bytes_max` bytes with what is lent.
    pub const fn new(bytes_max: usize) -> Self {
        let state = Mutex::new(State { kept: Vec::new(), bytes: 0, lent: 0, swept: false });
        Self { state, bytes_max: AtomicUsize::new(bytes_max) }
    }

    /// Says that from now on.
    pub fn bound(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Memory of `bytes`, from a page's border: what is kept, with what was in it, or fresh.
    ///
    /// # Errors
    /// Of the system, which has no more.
    pub fn take(&'static self, bytes: usize) -> io::Result<Pooled> {
        let size = size_of(bytes);
        let memory = match self.take_kept(size) {
            Some(memory) => memory,
            None => self.fresh(size)?,
        };
        Ok(Pooled { memory: Some(memory), length: bytes, pool: self })
    }

    fn take_kept(&self, size: usize) -> Option<MmapMut> {
        let mut state = self.state();
        let number = state.kept.iter().rposition(|(_, memory)| memory.len() == size)?;
        state.bytes -= size;
        state.lent += size;
        Some(state.kept.remove(number).1)
    }

    /// Memory from the system, for which what is kept in other sizes makes room.
    fn fresh(&self, size: usize) -> io::Result<MmapMut> {
        let memory = fresh(size)?;
        let mut state = self.state();
        state.lent += size;
        let gone = state.take_over(self.bytes_max.load(Relaxed));
        drop(state);
        drop(gone);
        Ok(memory)
    }

    /// Keeps memory that was given back at `now`; what came longest ago makes room for it.
    fn put(&'static self, memory: MmapMut, now: Instant) {
        let mut state = self.state();
        state.lent -= memory.len();
        state.bytes += memory.len();
        state.kept.push((now, memory));
        let gone = state.take_over(self.bytes_max.load(Relaxed));
        if !state.swept {
            let sweep = || {
                while self.sweep(Instant::now()) {
                    thread::park_timeout(KEPT_FOR / 2)
                }
            };
            // Without the thread, what is kept is bounded all the same.
            state.swept = thread::Builder::new().name("fanfold-memory".to_owned()).spawn(sweep).is_ok();
        }
        drop(state);
        drop(gone);
    }

    /// Gives the system what was kept for long at `now`; whether anything is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut state = self.state();
        let is_old = |(since, _): &&(Instant, MmapMut)| now.duration_since(*since) >= KEPT_FOR;
        let number = state.kept.iter().take_while(is_old).count();
        let gone = state.take_before(number);
        state.swept = !state.kept.is_empty();
        let is_left = state.swept;
        drop(state);
        drop(gone);
        is_left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of memory in which there is room for `bytes`: up to a quarter more, so that what one gave back fits the next.
fn size_of(bytes: usize) -> usize {
    let step = (bytes.checked_next_power_of_two().unwrap_or_default() / 8).max(4 << 10);
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(bytes)
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
            self.pool.put(memory, Instant::now());
        }
    }
}

/// Bytes that come in pieces, one after the other in memory, as many as were expected.
#[derive(Debug)]
pub struct Gathered {
    memory: GatheredIn,
    expected: usize,
    length: usize,
}

#[derive(Debug)]
enum GatheredIn {
    Pool(Pooled),
    Allocator(Vec<u8>),
}

impl Gathered {
    /// Room for so many bytes.
    ///
    /// # Errors
    /// Of the system, which has no more.
    pub fn of(expected: usize) -> io::Result<Self> {
        let memory = if expected < READ_BYTES_MIN {
            GatheredIn::Allocator(Vec::with_capacity(expected))
        } else {
            GatheredIn::Pool(READS.take(expected)?)
        };
        Ok(Self { memory, expected, length: 0 })
    }

    /// Bytes that have not come yet.
    pub fn left(&self) -> usize {
        self.expected - self.length
    }

    /// Appends a copy of `bytes`, if that many were expected; whether they were.
    #[must_use]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.left() {
            return false;
        }
        match &mut self.memory {
            GatheredIn::Pool(pooled) => pooled.as_mut()[self.length..][..bytes.len()].copy_from_slice(bytes),
            GatheredIn::Allocator(vec) => vec.extend_from_slice(bytes),
        }
        self.length += bytes.len();
        true
    }

    /// What has come.
    pub fn finish(self) -> Bytes {
        match self.memory {
            GatheredIn::Pool(mut pooled) => {
                pooled.truncate(self.length);
                Bytes::from_owner(pooled)
            }
            GatheredIn::Allocator(vec) => vec.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn take(pool: &'static Pool, bytes: usize) -> Pooled {
        pool.take(bytes).expect("there is memory")
    }

    /// Bytes that a pool keeps, counted twice.
    fn kept(pool: &Pool) -> (usize, usize) {
        let state = pool.state();
        (state.kept.iter().map(|(_, memory)| memory.len()).sum(), state.bytes)
    }

    #[test]
    fn what_is_kept_is_bounded_with_what_is_lent_and_fits() {
        static POOL: Pool = Pool::new(32 * MIB);
        let many: Vec<_> = (1..=80).map(|_| take(&POOL, MIB)).collect();
        drop(many);
        assert_eq!(kept(&POOL), (32 * MIB, 32 * MIB));
        let other = take(&POOL, 4 * MIB);
        assert_eq!(kept(&POOL), (28 * MIB, 28 * MIB), "the rest makes room");
        drop(other);
        assert_eq!(kept(&POOL), (32 * MIB, 32 * MIB));
        let taken = take(&POOL, 4 * MIB - MIB / 3);
        assert_eq!(kept(&POOL), (28 * MIB, 28 * MIB));
        assert_eq!(taken.as_ref().len(), 4 * MIB - MIB / 3);
        assert!(POOL.take_kept(size_of(3 * MIB)).is_none());
        drop(taken);
        assert_eq!(kept(&POOL), (32 * MIB, 32 * MIB));
        POOL.bound(8 * MIB);
        drop(take(&POOL, MIB));
        assert_eq!(kept(&POOL), (8 * MIB, 8 * MIB));
        let large = take(&POOL, 40 * MIB);
        assert_eq!(kept(&POOL), (0, 0), "all that may be there is lent");
        drop(large);
        assert_eq!(kept(&POOL), (0, 0), "more than it keeps");
    }

    #[test]
    fn what_is_kept_for_long_goes() {
        static POOL: Pool = Pool::new(32 * MIB);
        let put = |bytes, at| POOL.put(take(&POOL, bytes).memory.take().expect("it is lent"), at);
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        put(MIB, begin);
        put(2 * MIB, begin + second);
        assert!(POOL.sweep(begin + second));
        assert_eq!(kept(&POOL), (3 * MIB, 3 * MIB));
        assert!(POOL.sweep(begin + KEPT_FOR));
        assert_eq!(kept(&POOL), (2 * MIB, 2 * MIB));
        assert!(!POOL.sweep(begin + second + KEPT_FOR));
        assert_eq!(kept(&POOL), (0, 0));
    }

    #[test]
    fn sizes_are_a_quarter_more_at_most() {
        for bytes in [1, 4_000, 5_000, 100_000, 333_333, MIB, MIB + 1, 5 * MIB, 7 * MIB + 5] {
            let size = size_of(bytes);
            assert!(
                size >= bytes && size.is_multiple_of(4_096) && size - bytes < (bytes / 4).max(4_096),
                "{bytes}: {size}"
            );
        }
        assert_eq!(size_of(HUGE_BYTES), HUGE_BYTES);
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
    fn pieces_are_gathered_up_to_what_was_expected() {
        for expected in [0, 5, READ_BYTES_MIN - 1, READ_BYTES_MIN, 3 * MIB + 7] {
            let whole: Vec<u8> = (0..expected).map(|n| (n % 251) as u8).collect();
            let mut gathered = Gathered::of(expected).expect("there is memory");
            for piece in whole.chunks(100_000) {
                assert!(gathered.append(piece));
            }
            assert!(!gathered.append(b"x") && gathered.left() == 0, "nothing more was expected");
            assert!(gathered.finish() == whole);
        }
        let mut fewer = Gathered::of(MIB).expect("there is memory");
        assert!(fewer.append(b"ab"));
        assert_eq!((fewer.left(), fewer.finish().as_ref()), (MIB - 2, &b"ab"[..]));
    }

    #[test]
    fn what_nobody_has_is_an_error() {
        static POOL: Pool = Pool::new(MIB);
        assert!(POOL.take(usize::MAX / 2).is_err());
    }
}
