//! The lock file: one live process per directory.
//!
//! The kernel's lock on the open file is what counts; it goes with the process however it ends. The file's text is for
//! people (who holds it) and tells the next opener whether the last one ended in order.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    path::Path,
};

use fanfold_protocol::{Code, Error, Kind};

use crate::{errors::io_error, paths};

/// Held from open to drop.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Locks `root`; whether the last holder crashed.
    pub(super) fn take(root: &Path) -> Result<(Self, bool), Error> {
        let file = root.join(paths::LOCK_FILE);
        let failed = |e: std::io::Error| io_error("lock", file.display(), &e);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = options.map_err(failed)?;
        let mut holder = String::new();
        match lock.try_lock() {
            Ok(()) => {
                lock.read_to_string(&mut holder).map_err(failed)?;
                let mut lock = Self(lock);
                lock.write(&format!("pid {}\n", std::process::id())).map_err(failed)?;
                Ok((lock, !holder.is_empty()))
            }
            Err(TryLockError::WouldBlock) => {
                let _ = lock.read_to_string(&mut holder);
                Err(in_use(root, holder.trim()))
            }
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        self.0.write_all(text.as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // An empty file says that this process ended in order. If it cannot be emptied, the next one only looks
        // for temporary files in vain.
        let _ = self.write("");
    }
}

fn in_use(root: &Path, holder: &str) -> Error {
    let holder = if holder.is_empty() { "another process" } else { holder };
    let message = format!(
        "the directory `{}` is in use by another running platform ({holder}): stop that one, or give this one \
         another directory",
        root.display()
    );
    Error::new(Kind::Conflict, Code::DirectoryInUse, message)
}
