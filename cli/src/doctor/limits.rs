//! Limits of the process and settings of the kernel that the engine depends on.

use std::fs;

use rlimit::Resource;

use super::Check;
use crate::{
    units,
    up::{available_memory, raise_open_files},
};

/// Enough for a thousand connections and as many functions.
const OPEN_FILES_WARN: u64 = 16_384;
const OPEN_FILES_FAIL: u64 = 1024;
/// The engine reserves (but does not use) this much for the memories of a thousand instances.
const ADDRESS_SPACE: u64 = 8 << 40;
const MEMORY_WARN: u64 = 1 << 30;
/// Mappings per process: a few per instance and loaded function.
const MAPPINGS_WARN: u64 = 65_530;
/// Where `PAGEMAP_SCAN` came: fresh instances reset in microseconds.
const KERNEL_PAGEMAP_SCAN: (u32, u32) = (6, 7);

pub fn checks() -> Vec<Check> {
    vec![open_files(), address_space(), overcommit(), mappings(), locked(), memory(), kernel()]
}

fn open_files() -> Check {
    let files = raise_open_files();
    let fix =
        "raise the hard limit: `ulimit -Hn 1048576`, LimitNOFILE= in systemd, --ulimit nofile= in Docker";
    match files {
        ..OPEN_FILES_FAIL => Check::fail("open files", files.to_string(), fix),
        OPEN_FILES_FAIL..OPEN_FILES_WARN => Check::warn("open files", files.to_string(), fix),
        _ => Check::ok("open files", files.to_string()),
    }
}

fn address_space() -> Check {
    match Resource::AS.get() {
        Ok((soft, _)) if soft == rlimit::INFINITY => Check::ok("address space", "unlimited"),
        Ok((soft, _)) if soft < ADDRESS_SPACE => Check::fail(
            "address space",
            units::bytes(soft),
            "the engine reserves terabytes without using them: `ulimit -v unlimited`",
        ),
        Ok((soft, _)) => Check::ok("address space", units::bytes(soft)),
        Err(error) => Check::warn("address space", error.to_string(), "check it with `ulimit -v`"),
    }
}

fn overcommit() -> Check {
    match read("/proc/sys/vm/overcommit_memory").as_deref() {
        Some("2") => Check::fail(
            "overcommit",
            "vm.overcommit_memory is 2: reservations count as use",
            "sysctl -w vm.overcommit_memory=0",
        ),
        Some(mode) => Check::ok("overcommit", format!("vm.overcommit_memory is {mode}")),
        None => Check::warn("overcommit", "unknown", "check it with `sysctl vm.overcommit_memory`"),
    }
}

fn mappings() -> Check {
    match read("/proc/sys/vm/max_map_count").and_then(|text| text.parse::<u64>().ok()) {
        Some(count) if count < MAPPINGS_WARN => Check::warn(
            "mappings",
            count.to_string(),
            format!("sysctl -w vm.max_map_count={}", 4 * MAPPINGS_WARN),
        ),
        Some(count) => Check::ok("mappings", count.to_string()),
        None => Check::warn("mappings", "unknown", "check it with `sysctl vm.max_map_count`"),
    }
}

/// Nothing locks memory today; a GPU driver or io_uring would.
fn locked() -> Check {
    match Resource::MEMLOCK.get() {
        Ok((_, hard)) if hard == rlimit::INFINITY => Check::ok("locked memory", "unlimited"),
        Ok((_, hard)) if hard < 64 << 10 => Check::warn(
            "locked memory",
            units::bytes(hard),
            "raise it: `ulimit -l unlimited` (GPU drivers need it)",
        ),
        Ok((_, hard)) => Check::ok("locked memory", units::bytes(hard)),
        Err(error) => Check::warn("locked memory", error.to_string(), "check it with `ulimit -l`"),
    }
}

fn memory() -> Check {
    let memory = available_memory();
    match memory {
        ..MEMORY_WARN => {
            Check::warn("memory", units::bytes(memory), "give the machine or its container 1 GiB or more")
        }
        _ => Check::ok("memory", units::bytes(memory)),
    }
}

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    match parse_release(&release) {
        Some(found) if found >= KERNEL_PAGEMAP_SCAN => Check::ok("kernel", release),
        Some(_) => {
            Check::warn("kernel", release, "Linux 6.7 or newer makes fresh instances several times cheaper")
        }
        None => Check::warn("kernel", "unknown", "Linux 6.7 or newer is best"),
    }
}

/// `6.18.44-generic` to `(6, 18)`.
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_as_numbers() {
        assert!(parse_release("6.18.44-fc").unwrap() > KERNEL_PAGEMAP_SCAN);
        assert!(parse_release("6.1.0-18-amd64").unwrap() < KERNEL_PAGEMAP_SCAN);
        assert!(parse_release("5.15").unwrap() < KERNEL_PAGEMAP_SCAN);
    }
}
