//! Which way spilled files go: through the kernel's page cache, or past it.
//!
//! Through it, what is read again soon comes from memory that nobody else wants just now, and what is freed before the system has written
//! it never reaches the disk. But where memory is short, or a host has to give it first, the copy costs more processor time than
//! what is spilled is worth (`docs/adr/0005`). That cannot be known beforehand, so it is tried: files go through it as long as that is
//! fast and half of the machine's spare memory holds all of them.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// Seconds for a gigabyte, at most, where the page cache is worth it: of the processor, which the copy takes, and in all, which becomes
/// long where the system has writers wait for the disk.
const CPU: f64 = 1.5;
const IN_ALL: f64 = 5.0;
/// Files that go past the page cache after one that was slow, before the next try.
const REST: u32 = 8;
/// What is shorter is no work for a page cache to keep, and says nothing about how fast it is.
const LONG_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// Files that go past it before the next try.
    rest: AtomicU32,
}

impl Route {
    /// Whether the next file, of `bytes`, goes through the page cache, all files together having `used` then.
    pub(super) fn is_through(&self, bytes: u64, used: u64) -> bool {
        bytes >= LONG_BYTES
            && self.rest.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
            && used <= spare_memory() / 2
    }

    /// Notes how long one of `bytes` took that went through it.
    pub(super) fn note(&self, bytes: u64, took: &Took) {
        let gigabytes = bytes as f64 / 1e9;
        if took.cpu.as_secs_f64() > CPU * gigabytes || took.in_all.as_secs_f64() > IN_ALL * gigabytes {
            self.rest.store(REST, Relaxed);
        }
    }
}

/// Time of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) cpu: Duration,
    pub(super) in_all: Duration,
}

/// Measures what the calling thread takes.
pub(super) struct Watch {
    cpu: Duration,
    begun: Instant,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { cpu: thread_cpu(), begun: Instant::now() }
    }

    pub(super) fn stop(self) -> Took {
        Took { cpu: thread_cpu().saturating_sub(self.cpu), in_all: self.begun.elapsed() }
    }
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Bytes that the system says programs could still have; none where it does not say.
fn spare_memory() -> u64 {
    let said = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = said.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 100 << 20;

    #[test]
    fn what_is_slow_is_tried_again_after_a_while() {
        let route = Route::default();
        let is_through = || route.is_through(FILE, FILE);
        assert!(is_through());
        let took =
            |cpu, in_all| Took { cpu: Duration::from_millis(cpu), in_all: Duration::from_millis(in_all) };
        route.note(FILE, &took(20, 200));
        assert!(is_through());
        for slow in [took(200, 200), took(20, 600)] {
            route.note(FILE, &slow);
            assert!(!route.is_through(1_000, FILE), "a short one never goes through it");
            let past = (0..).take_while(|_| !is_through()).count();
            assert_eq!(past, REST as usize, "{slow:?}");
            assert!(is_through());
        }
    }

    #[test]
    fn more_than_memory_has_room_for_goes_past_it() {
        let spare = spare_memory();
        assert!(spare > 1 << 20, "{spare} bytes");
        let route = Route::default();
        assert!(!route.is_through(FILE, spare));
        assert!(route.is_through(FILE, spare / 4));
    }
}
