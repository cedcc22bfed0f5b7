//! Clocks and randomness of a guest: the machine's, or virtual ones that are equal whenever the guest runs again.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fanfold_protocol::{JobId, TaskId, function::FunctionVersion};
use rand_core::TryRng;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

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
        let job = Uuid::now_v7();
        let start_ms = job.get_timestamp().map_or(0, |at| at.to_unix().0 * 1000);
        Self::Virtual { start_ms, seed: TaskId::root(JobId(job)) }
    }

    pub(super) fn apply(self, wasi: &mut WasiCtxBuilder) {
        let Self::Virtual { start_ms, seed } = self else { return };
        let clock = Clock(Arc::new(AtomicU64::new(start_ms.saturating_mul(1000))));
        wasi.wall_clock(clock.clone()).monotonic_clock(clock);
        wasi.secure_random(Random::new(seed, b"secure")).insecure_random(Random::new(seed, b"insecure"));
        wasi.insecure_random_seed(u128::from(Random::new(seed, b"seed").next()));
    }
}

/// Microseconds since 1970; each reading, of either clock, is one later than the last.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn read_us(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
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
struct Random([u64; 4]);

impl Random {
    fn new(seed: TaskId, purpose: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(seed.0).chain_update(purpose).finalize();
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(hash.chunks_exact(8)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Self(state)
    }

    fn next(&mut self) -> u64 {
        let state = &mut self.0;
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
    fn randomness_is_the_same_for_ever() {
        // The reference implementation's first outputs for the state 1, 2, 3, 4.
        let mut reference = Random([1, 2, 3, 4]);
        assert_eq!(
            [reference.next(), reference.next(), reference.next()],
            [41_943_041, 58_720_359, 3_588_806_011_781_223]
        );
        let first = |task: u8, purpose: &[u8]| Random::new(TaskId([task; 16]), purpose).next();
        assert_ne!(first(1, b"secure"), first(2, b"secure"));
        assert_ne!(first(1, b"secure"), first(1, b"insecure"));
    }
}
