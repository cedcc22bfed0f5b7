//! Clocks and randomness of a guest: the machine's, or virtual ones that are equal whenever the guest runs again.
//!
//! A virtual clock advances by a microsecond a reading, and by what the guest sleeps: it does sleep that long, and a
//! loop that waits for a moment comes to its end.

use std::{
    convert::Infallible,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fanfold_protocol::{JobId, TaskId, function::FunctionVersion};
use rand_core::TryRng;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use wasmtime::component::Resource;
use wasmtime_wasi::{
    HostMonotonicClock, HostWallClock, WasiCtxBuilder,
    clocks::WasiClocksCtxView,
    p2::{DynPollable, Pollable, bindings::clocks::monotonic_clock, subscribe},
};

/// Which clocks and randomness a guest has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Those of the machine.
    Real,
    /// Clocks that start at `start_ms` (Unix time) and advance by a microsecond a reading, randomness from `seed`.
    Virtual {
        /// When the job was accepted.
        start_ms: u64,
        /// The task.
        seed: TaskId,
    },
}

impl Time {
    /// What `function` gets as task `task` of a job that was accepted at `start_ms`.
    pub fn of(function: &FunctionVersion, start_ms: u64, task: TaskId) -> Self {
        if function.deterministic() { Self::Virtual { start_ms, seed: task } } else { Self::Real }
    }

    /// What `function` gets in a call that belongs to no job: as the root task of one that is accepted now.
    pub fn of_call(function: &FunctionVersion) -> Self {
        if !function.deterministic() {
            return Self::Real;
        }
        let (job, start_ms) = fresh_job();
        Self::Virtual { start_ms, seed: TaskId::root(job) }
    }

    /// Sets up WASI; the virtual clock, if it is one.
    pub(super) fn apply(self, wasi: &mut WasiCtxBuilder) -> Option<Clock> {
        let Self::Virtual { start_ms, seed } = self else { return None };
        let clock = Clock(Arc::new(AtomicU64::new(start_ms.saturating_mul(1000))));
        wasi.wall_clock(clock.clone()).monotonic_clock(clock.clone());
        wasi.secure_random(Random::new(seed, b"secure")).insecure_random(Random::new(seed, b"insecure"));
        wasi.insecure_random_seed(u128::from_be_bytes(seed.0));
        Some(clock)
    }
}

/// An id for a call that belongs to no job, and the time it was made, in Unix milliseconds: a version 7 UUID whose
/// random part costs no system call.
pub fn fresh_job() -> (JobId, u64) {
    static SEED: OnceLock<u64> = OnceLock::new();
    static MADE: AtomicU64 = AtomicU64::new(0);
    // The standard library seeds its hash maps from the system, once per process here.
    let seed = *SEED.get_or_init(|| RandomState::new().build_hasher().finish());
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&seed.wrapping_add(number).to_be_bytes());
    bytes[8..].copy_from_slice(&seed.to_le_bytes()[..2]);
    (JobId(uuid::Builder::from_unix_timestamp_millis(now_ms, &bytes).into_uuid()), now_ms)
}

/// Microseconds since 1970; each reading, of either clock, is one later than the last.
#[derive(Clone)]
pub(super) struct Clock(Arc<AtomicU64>);

impl Clock {
    fn read_us(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// `wasi:clocks/monotonic-clock`, with sleep that a virtual clock knows of.
pub(super) struct Sleeping<'a> {
    /// The machine's, or the virtual clock's readings.
    pub clocks: WasiClocksCtxView<'a>,
    /// If it is virtual.
    pub clock: Option<&'a Clock>,
}

impl monotonic_clock::Host for Sleeping<'_> {
    fn now(&mut self) -> wasmtime::Result<u64> {
        monotonic_clock::Host::now(&mut self.clocks)
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        monotonic_clock::Host::resolution(&mut self.clocks)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let Some(clock) = self.clock else { return self.clocks.subscribe_instant(when) };
        let now = HostMonotonicClock::now(clock);
        self.subscribe_duration(when.saturating_sub(now))
    }

    fn subscribe_duration(&mut self, nanos: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let deadline = Instant::now().checked_add(Duration::from_nanos(nanos));
        // No sleep and an endless one do not move the clock.
        let (Some(clock), Some(deadline), 1..) = (self.clock, deadline, nanos) else {
            return self.clocks.subscribe_duration(nanos);
        };
        let until_us = clock.0.load(Ordering::Relaxed).saturating_add(nanos.div_ceil(1000));
        let sleep = self.clocks.table.push(Sleep { deadline, until_us, clock: clock.clone() })?;
        subscribe(self.clocks.table, sleep)
    }
}

/// A sleep on a virtual clock, which afterwards shows its end.
struct Sleep {
    deadline: Instant,
    until_us: u64,
    clock: Clock,
}

#[async_trait::async_trait]
impl Pollable for Sleep {
    async fn ready(&mut self) {
        tokio::time::sleep_until(self.deadline).await;
        self.clock.0.fetch_max(self.until_us, Ordering::Relaxed);
    }
}

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.read_us())
    }
}

impl HostMonotonicClock for Clock {
    fn resolution(&self) -> u64 {
        1000
    }

    fn now(&self) -> u64 {
        self.read_us().saturating_mul(1000)
    }
}

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through SHA-256. Written out because its numbers are part of the
/// contract: an output that is recomputed years later must be equal. Not secret, as the task's id is not.
struct Random {
    seed: TaskId,
    purpose: &'static [u8],
    /// Made when it is first asked: most guests never do.
    state: Option<[u64; 4]>,
}

impl Random {
    fn new(seed: TaskId, purpose: &'static [u8]) -> Self {
        Self { seed, purpose, state: None }
    }

    fn next(&mut self) -> u64 {
        let state = self.state.get_or_insert_with(|| expand(self.seed, self.purpose));
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }
}

fn expand(seed: TaskId, purpose: &[u8]) -> [u64; 4] {
    let hash = Sha256::new().chain_update(seed.0).chain_update(purpose).finalize();
    let mut state = [0; 4];
    for (word, bytes) in state.iter_mut().zip(hash.chunks_exact(8)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    state
}

impl TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_a_job_have_ids_of_their_own() {
        let ((one, at), (two, _)) = (fresh_job(), fresh_job());
        assert_ne!(one, two);
        assert_eq!(one.0.get_version_num(), 7);
        let (seconds, nanos) = one.0.get_timestamp().unwrap().to_unix();
        assert_eq!(seconds * 1000 + u64::from(nanos) / 1_000_000, at);
    }

    #[test]
    fn randomness_is_the_same_for_ever() {
        // The reference implementation's first outputs for the state 1, 2, 3, 4.
        let mut reference = Random { state: Some([1, 2, 3, 4]), ..Random::new(TaskId([0; 16]), b"") };
        assert_eq!(
            [reference.next(), reference.next(), reference.next()],
            [41_943_041, 58_720_359, 3_588_806_011_781_223]
        );
        let first = |task: u8, purpose: &'static [u8]| Random::new(TaskId([task; 16]), purpose).next();
        assert_ne!(first(1, b"secure"), first(2, b"secure"));
        assert_ne!(first(1, b"secure"), first(1, b"insecure"));
    }
}
