//! What this machine has: cpus, memory, open files, disk space.

use std::{fs, path::Path, thread};

/// Open files to ask for: connections, and a few per function that is loaded.
const OPEN_FILES: u64 = 1 << 20;

/// Cpus this process may use.
pub fn cpus() -> u32 {
    thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Raises the soft limit of open files as far as it goes. Answers what it is now.
pub fn raise_open_files() -> u64 {
    match rlimit::increase_nofile_limit(OPEN_FILES) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            rlimit::Resource::NOFILE.get_soft().unwrap_or(0)
        }
    }
}

/// Bytes of memory that this process may use: the machine's, or less where a cgroup says so.
pub fn available_memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text));
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = cgroups.lines().filter_map(|line| cgroup_limit(Path::new("/sys/fs/cgroup"), line));
    // Without /proc there is nothing to go by; one GiB is there on any machine that runs this.
    limits.chain(machine).min().unwrap_or(1 << 30)
}

/// Bytes that this user may still write where `dir` is or will be; 0 where nobody knows.
pub fn free_space(dir: &Path) -> u64 {
    let Ok(absolute) = std::path::absolute(dir) else { return 0 };
    let mut existing = absolute.ancestors().filter_map(|dir| rustix::fs::statvfs(dir).ok());
    existing.next().map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The tightest limit on the way from a cgroup (a line of `/proc/self/cgroup`) up to `root`.
fn cgroup_limit(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?.trim_start_matches('/'));
    let (root, file) = match (id, controllers) {
        ("0", "") => (root.to_owned(), "memory.max"),
        (_, controllers) if controllers.split(',').any(|c| c == "memory") => {
            (root.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // In a container the path may be the host's; then only the root is there, and it is the container's.
    let group = root.join(path);
    let ways = group.ancestors().take_while(|dir| dir.starts_with(&root));
    let limits = ways.filter_map(|dir| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_tightest_limit() {
        assert_eq!(meminfo_total("MemTotal:       24 kB\nMemFree: 1 kB\n"), Some(24 << 10));
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_limit(root.path(), "0::/a/b"), Some(1 << 20));
        assert_eq!(cgroup_limit(root.path(), "0::/elsewhere"), None);
        assert_eq!(cgroup_limit(root.path(), "3:cpu,cpuacct:/a"), None);
        assert!(available_memory() > 0);
        assert!(free_space(&root.path().join("not/yet")) > 0);
    }
}
