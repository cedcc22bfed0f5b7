//! A folder of this process alone, for files that live no longer than it.
//!
//! Promises: the folder is nobody else's, also where several executors use one parent; it is removed at the end, and what
//! a process that died left there is removed by the next one that starts. The kernel's lock on the folder says who is
//! alive: it goes with its process, however that ends.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use uuid::Uuid;

/// What names of such folders begin with.
const PREFIX: &str = "fanfold-spill-";
/// Another process that starts may take a new folder for a dead one's before it is locked; then there is another name.
const TRIES: usize = 16;

/// The folder. Dropping it removes it and what is in it.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    /// Holds the lock.
    _open: File,
}

impl Scratch {
    /// Makes a folder below `parent`, which is made if it is missing, and removes those of dead processes.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        sweep(parent);
        for _ in 0..TRIES {
            let folder = parent.join(format!("{PREFIX}{}", Uuid::now_v7()));
            // Others must not read what functions wrote.
            DirBuilder::new().mode(0o700).create(&folder)?;
            if let Some(open) = lock(&folder)? {
                return Ok(Self { folder, _open: open });
            }
        }
        Err(io::Error::other("other processes removed each new folder"))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next process that starts here.
        if let Err(error) = fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.folder.display(), %error, "spilled partitions were not removed");
        }
    }
}

/// Locks a folder; `None` where somebody else has it or it is gone.
fn lock(folder: &Path) -> io::Result<Option<File>> {
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
    let same =
        fs::metadata(folder).is_ok_and(|now| open.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
    Ok(same.then_some(open))
}

/// Removes folders whose processes are dead. Best effort: they may be another user's.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !ours {
            continue;
        }
        let folder = entry.path();
        if let Ok(Some(_locked)) = lock(&folder) {
            match fs::remove_dir_all(&folder) {
                Ok(()) => {
                    tracing::info!(folder = %folder.display(), "removed what a process that died had spilled")
                }
                Err(error) => tracing::debug!(folder = %folder.display(), %error, "not removed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let below = parent.path().join("not/there/yet");
        let alive = Scratch::open(&below).unwrap();
        fs::write(alive.path().join("1"), "spilled").unwrap();
        let dead = below.join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("1"), "left").unwrap();
        fs::create_dir(below.join("somebody's")).unwrap();

        let next = Scratch::open(&below).unwrap();
        assert!(!dead.exists() && alive.path().join("1").exists() && below.join("somebody's").exists());
        let folders = [alive.path().to_owned(), next.path().to_owned()];
        drop((alive, next));
        assert!(folders.iter().all(|folder| !folder.exists()));
    }
}
