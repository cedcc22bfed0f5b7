//! A directory of the local disk: what `object_store`'s local store does not do.
//!
//! Writes go through [`object_store::local::LocalFileSystem`]: temporary file, fsync, rename or hard link, fsync of the
//! folder. This module owns the rest: large objects ([`large`], [`files`]), the lock that keeps a second process out, the
//! removal of temporary files a crash left, reads with one system call into one allocation ([`read`]), and listings in key
//! order ([`list`]).
//!
//! Every function here blocks and is called through [`blocking`].

mod cached;
pub(crate) mod files;
pub(crate) mod large;
pub(crate) mod list;
mod lock;
pub(crate) mod read;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use fanfold_protocol::{Code, Error, Kind};

use crate::{
    errors::io_error,
    paths::{self, FORMAT},
};

/// An open, locked directory. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    _lock: lock::Lock,
}

impl Directory {
    /// Creates and locks `root`, and removes what a crashed process left half-written.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        fs::create_dir_all(root).map_err(|e| io_error("make the store's directory", root.display(), &e))?;
        let root =
            root.canonicalize().map_err(|e| io_error("open the store's directory", root.display(), &e))?;
        let (lock, crashed) = lock::Lock::take(&root)?;
        check_format(&root)?;
        if crashed {
            for folder in paths::FOLDERS {
                let folder = root.join(folder);
                sweep(&folder).map_err(|e| io_error("remove temporary files from", folder.display(), &e))?;
            }
        }
        Ok(Self { root, _lock: lock })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The file of an object.
    pub(crate) fn file(&self, path: &object_store::path::Path) -> PathBuf {
        self.root.join(path.as_ref())
    }
}

/// Runs file system calls away from the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(_) => Err(Error::internal("a file operation was stopped: the process is shutting down")),
    }
}

/// Writes a file that must not exist yet and that only its owner may read, durably. `false`: it exists.
pub(crate) fn create_private(file: &Path, bytes: &[u8]) -> io::Result<bool> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Two may do this at once: each has a temporary file of its own, and one of the links wins.
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{}#1", uuid::Uuid::now_v7()));
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    let linked = fs::hard_link(&temporary, file);
    fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => {
            sync_folder(folder).and_then(|()| folder.parent().map_or(Ok(()), sync_folder)).map(|()| true)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

/// Makes a folder's entries durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a folder and everything in it; fine if it is not there.
pub(crate) fn remove_tree(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn check_format(root: &Path) -> Result<(), Error> {
    let file = root.join(paths::FORMAT_FILE);
    let failed = |e: io::Error| io_error("write", file.display(), &e);
    create_private(&file, FORMAT.as_bytes()).map_err(failed)?;
    let found = fs::read(&file).map_err(|e| io_error("read", file.display(), &e))?;
    if found == FORMAT.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&found[..found.len().min(40)]).trim().to_owned();
    let what = format!(
        "`{}` says `{}`, and this version reads only `{}`: open it with the version that made it",
        file.display(),
        found.escape_debug(),
        FORMAT.trim()
    );
    Err(Error::new(Kind::Platform, Code::Storage, what).retryable(false))
}

/// Removes temporary files, which have a `#` in their names and nothing else has.
fn sweep(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sweep(&entry.path())?;
        } else if entry.file_name().to_string_lossy().contains('#') {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
