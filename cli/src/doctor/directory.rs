//! The directory for data: can it be written, on what is it, and is there room?

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Instant,
};

use super::Check;
use crate::units;

/// Below this, a first job of any size fills the disk.
const FREE_BYTES_WARN: u64 = 10 << 30;
const FREE_BYTES_FAIL: u64 = 256 << 20;

pub fn checks(dir: &Path) -> Vec<Check> {
    // A directory that is yet to be made says nothing; the one it will be made in does.
    let Some(existing) = existing(dir) else {
        return vec![Check::fail(
            "directory",
            format!("{} does not exist", dir.display()),
            "choose another --dir",
        )];
    };
    vec![writable(&existing), file_system(&existing), room(&existing)]
}

fn existing(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    absolute.ancestors().find_map(|dir| dir.canonicalize().ok())
}

/// Writes, syncs and removes a file, as the journal would.
fn writable(dir: &Path) -> Check {
    let probe = dir.join(format!(".fanfold-doctor-{}", std::process::id()));
    let started = Instant::now();
    let written = fs::File::create_new(&probe).and_then(|mut file| {
        file.write_all(b"probe")?;
        file.sync_all()
    });
    let took = started.elapsed();
    // Best effort: the write's own error is the one to tell.
    let _ = fs::remove_file(&probe);
    match written {
        Ok(()) => Check::ok(
            "directory",
            format!("{} can be written, sync takes {}", dir.display(), units::duration(took)),
        ),
        Err(error) => Check::fail(
            "directory",
            format!("{} cannot be written: {error}", dir.display()),
            "change its owner or permissions, or choose another --dir",
        ),
    }
}

fn file_system(dir: &Path) -> Check {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(kind) = kind_of(&mounts, dir) else { return Check::ok("file system", "unknown") };
    match kind {
        "tmpfs" | "ramfs" => {
            Check::warn("file system", kind, "data is gone after a reboot: use a directory on a disk")
        }
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "vboxsf" => Check::warn(
            "file system",
            kind,
            "a shared file system is slow to sync and may not order writes: use a local disk",
        ),
        kind if kind.starts_with("fuse") => {
            Check::warn("file system", kind, "FUSE file systems are slow to sync: use a local disk")
        }
        kind => Check::ok("file system", kind),
    }
}

/// The type of the file system that holds `dir`, from the text of `mountinfo`.
fn kind_of<'a>(mounts: &'a str, dir: &Path) -> Option<&'a str> {
    let parse = |line: &'a str| {
        let (before, after) = line.split_once(" - ")?;
        // Spaces in mount points are written \040; such a mount is only missed, not mistaken.
        let point = Path::new(before.split(' ').nth(4)?);
        dir.starts_with(point).then_some((point.components().count(), after.split(' ').next()?))
    };
    // Of mounts at the same place the last one is on top, and `max_by_key` keeps the last of equals.
    mounts.lines().filter_map(parse).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

fn room(dir: &Path) -> Check {
    let Ok(stat) = rustix::fs::statvfs(dir) else {
        return Check::warn("free space", "unknown", "check it with `df`");
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = units::bytes(free);
    match free {
        ..FREE_BYTES_FAIL => Check::fail("free space", found, "free some space, or choose another --dir"),
        FREE_BYTES_FAIL..FREE_BYTES_WARN => {
            Check::warn("free space", found, "enough to try things; jobs need room for what they make")
        }
        _ => Check::ok("free space", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /tmp rw - tmpfs tmpfs rw
24 22 0:6 / /tmpfiles rw - xfs /dev/sdb rw";
        assert_eq!(kind_of(mounts, Path::new("/tmp/x")), Some("tmpfs"));
        assert_eq!(kind_of(mounts, Path::new("/tmpfiles")), Some("xfs"));
        assert_eq!(kind_of(mounts, Path::new("/var")), Some("ext4"));
    }
}
