//! A folder of this executor alone, for files that may outlive its process.
//!
//! Promises: the folder is nobody else's, also where several executors use one parent; it is removed at the end. What a process that
//! was killed left there is for the next one of its platform that starts before the machine does: that one takes over the folder and
//! with it the executor's id, so that whoever knows where a partition was finds it there again. Folders that a process does not take
//! over it removes, once nothing has changed in them for [`KEPT`], and at once where nobody can. The kernel's lock on the folder says
//! who is alive: it goes with its process, however that ends.

use std::{
    fs::{self, DirBuilder, File, Metadata, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fanfold_protocol::ExecutorId;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What names of such folders begin with.
const PREFIX: &str = "fanfold-spill-";
/// The file that says whose folder it is.
const LABEL: &str = "label";
/// Another process that starts may take a new folder for a dead one's before it is locked; then there is another name.
const TRIES: usize = 16;
/// How long after the last change in it a folder is kept for others to take over.
const KEPT: Duration = Duration::from_secs(600);

/// The folder. Dropping it removes it and what is in it.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    executor: ExecutorId,
    /// Holds the lock.
    _open: File,
}

/// Whose folder it is.
#[derive(PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Label {
    /// Version of what is in the folder.
    format: u32,
    /// Partitions of another platform are of no use.
    platform: String,
    /// The machine, and since when it runs: of a copy of its disk, two executors would take over the same id.
    boot: String,
    executor: ExecutorId,
}

const FORMAT: u32 = 1;

/// A folder whose process is dead, locked.
struct Dead {
    folder: PathBuf,
    open: File,
    label: Option<Label>,
    changed: SystemTime,
}

impl Scratch {
    /// Takes over the folder of an executor of `platform` that was killed; else makes one for `executor` below `parent`,
    /// which is made if it is missing.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(parent: &Path, platform: &str, executor: ExecutorId) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let label = Label { format: FORMAT, platform: platform.to_owned(), boot, executor };
        if let Some(taken) = take_over(parent, &label) {
            return Ok(taken);
        }
        for _ in 0..TRIES {
            let folder = parent.join(format!("{PREFIX}{}", Uuid::now_v7()));
            // Others must not read what functions wrote.
            DirBuilder::new().mode(0o700).create(&folder)?;
            if let Some((open, _)) = lock(&folder)? {
                if let Err(error) = fs::write(folder.join(LABEL), serde_json::to_vec(&label)?) {
                    tracing::debug!(folder = %folder.display(), %error, "nobody will take it over: no label");
                }
                return Ok(Self { folder, executor, _open: open });
            }
        }
        Err(io::Error::other("other processes removed each new folder"))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Whose it is: who asked for it, or whom it was taken over from.
    pub fn executor(&self) -> ExecutorId {
        self.executor
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by a process that starts here.
        if let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.folder.display(), %error, "spilled partitions were not removed");
        }
    }
}

/// Locks a folder; `None` where somebody else has it or it is gone.
fn lock(folder: &Path) -> io::Result<Option<(File, Metadata)>> {
    let open = match File::open(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match open.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(e)) => return Err(e),
    }
    // It may have been removed between the two.
    let found = open.metadata()?;
    let same = fs::metadata(folder).is_ok_and(|now| now.ino() == found.ino());
    Ok(same.then_some((open, found)))
}

/// The folder that was used last of those that `label` may take over. Of the others, removes what nobody will.
fn take_over(parent: &Path, label: &Label) -> Option<Scratch> {
    let mut left = dead(parent);
    left.sort_by_key(|dead| std::cmp::Reverse(dead.changed));
    let ours = left.iter().position(|dead| dead.is_for(label)).map(|place| left.remove(place));
    left.into_iter().filter(|dead| !dead.is_kept(label)).for_each(Dead::remove);
    let Dead { folder, open, label, .. } = ours?;
    Some(Scratch { folder, executor: label?.executor, _open: open })
}

/// Folders of this user whose processes are dead.
fn dead(parent: &Path) -> Vec<Dead> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let dead = entries.flatten().filter_map(|entry| {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !named || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return None;
        }
        let folder = entry.path();
        let (open, found) = lock(&folder).ok().flatten()?;
        // What somebody else put there is not believed.
        if found.uid() != geteuid().as_raw() {
            return None;
        }
        let label = fs::read(folder.join(LABEL)).ok().and_then(|label| serde_json::from_slice(&label).ok());
        Some(Dead { label, changed: found.modified().ok()?, folder, open })
    });
    dead.collect()
}

impl Dead {
    /// Whether it is for a process with this label.
    fn is_for(&self, now: &Label) -> bool {
        let same =
            |was: &Label| (was.format, &was.platform, &was.boot) == (now.format, &now.platform, &now.boot);
        self.label.as_ref().is_some_and(same)
    }

    /// Whether another process may take it over.
    fn is_kept(&self, now: &Label) -> bool {
        let old = self.changed.elapsed().is_ok_and(|age| age >= KEPT);
        !old && self.label.as_ref().is_some_and(|was| was.boot == now.boot)
    }

    fn remove(self) {
        match fs::remove_dir_all(&self.folder) {
            Ok(()) => {
                tracing::info!(folder = %self.folder.display(), "removed what a process that died had spilled")
            }
            Err(error) => tracing::debug!(folder = %self.folder.display(), %error, "not removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as a process leaves it that is killed.
    fn left(parent: &Path, platform: &str, executor: u64) -> PathBuf {
        let alive = Scratch::open(parent, platform, ExecutorId(executor)).unwrap();
        assert_eq!(alive.executor(), ExecutorId(executor));
        fs::write(alive.path().join("1"), "spilled").unwrap();
        let dead = parent.join(format!("{PREFIX}of-{executor}"));
        fs::create_dir(&dead).unwrap();
        for file in ["1", LABEL] {
            fs::copy(alive.path().join(file), dead.join(file)).unwrap();
        }
        dead
    }

    fn age(folder: &Path) {
        File::open(folder).unwrap().set_modified(SystemTime::now() - 2 * KEPT).unwrap();
    }

    #[test]
    fn the_next_process_takes_over_what_a_dead_one_left() {
        let parent = tempfile::tempdir().unwrap();
        let below = parent.path().join("not/there/yet");
        let dead = left(&below, "ours", 7);

        let next = Scratch::open(&below, "ours", ExecutorId(8)).unwrap();
        assert_eq!((next.path(), next.executor()), (&*dead, ExecutorId(7)));
        let another = Scratch::open(&below, "ours", ExecutorId(9)).unwrap();
        assert_eq!(another.executor(), ExecutorId(9), "the one that was left is taken");
        let folders = [next.path().to_owned(), another.path().to_owned()];
        drop((next, another));
        assert!(folders.iter().all(|folder| !folder.exists()), "nothing is left by those that end");
    }

    #[test]
    fn what_nobody_will_take_over_is_removed_and_the_rest_stays() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        let alive = Scratch::open(parent, "ours", ExecutorId(1)).unwrap();
        let (of_others, old) = (left(parent, "theirs", 2), left(parent, "forgotten", 3));
        age(&old);
        let rebooted = left(parent, "rebooted", 4);
        let label = fs::read_to_string(rebooted.join(LABEL)).unwrap();
        fs::write(rebooted.join(LABEL), label.replace("\"boot\":\"", "\"boot\":\"another ")).unwrap();
        let unlabelled = parent.join(format!("{PREFIX}unlabelled"));
        fs::create_dir(&unlabelled).unwrap();
        let foreign = parent.join("somebody's");
        fs::create_dir(&foreign).unwrap();

        let next = Scratch::open(parent, "ours", ExecutorId(5)).unwrap();
        assert_eq!(next.executor(), ExecutorId(5));
        assert!(!old.exists() && !rebooted.exists() && !unlabelled.exists());
        assert!(alive.path().exists() && of_others.exists() && foreign.exists());

        // However long ago its last change was: what it has may have been written long before it was killed.
        age(&of_others);
        assert_eq!(Scratch::open(parent, "theirs", ExecutorId(6)).unwrap().executor(), ExecutorId(2));
    }
}
