//! One object store, as the rest of this crate uses it: errors are ours, absence is a value, requests are counted.
//!
//! Two ways to write: *synced* survives power loss once it returns, *unsynced* survives only the process, for what can
//! be made again. Object stores over a network know no difference.

mod read;

use std::{path::Path as FilePath, sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_protocol::{Error, message::Requests};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, PutResult,
    local::LocalFileSystem, memory::InMemory, path::Path,
};

use crate::{
    directory::{
        Directory, blocking,
        files::Files,
        list::{self, Query},
        read::Meta,
        remove_tree, sync_folder,
    },
    errors::{io_error, storage},
    paths::{self, Layout},
    requests::{Counted, Counters},
    s3::answer::Answer,
};

/// Milliseconds between tries of a write that met another one.
const CONFLICT_PAUSES_MS: [u64; 6] = [10, 20, 40, 80, 160, 320];

#[derive(Clone, Debug)]
pub(crate) struct Backend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    synced: Arc<dyn ObjectStore>,
    unsynced: Arc<dyn ObjectStore>,
    directory: Option<Directory>,
    /// Whether other processes may write to it too, and an answer may get lost on the way.
    remote: bool,
    counters: Arc<Counters>,
}

impl Backend {
    pub(crate) fn memory() -> Self {
        let memory = Arc::new(InMemory::new());
        Self::over(memory.clone(), memory, None)
    }

    /// A server of objects, which has no notion of syncing.
    pub(crate) fn remote(store: Arc<dyn ObjectStore>) -> Self {
        Self::new(store.clone(), store, None, true)
    }

    pub(crate) async fn directory(root: &FilePath) -> Result<Self, Error> {
        let Local { directory, synced, unsynced } = Local::open(root).await?;
        Ok(Self::over(Arc::new(synced), Arc::new(unsynced), Some(directory)))
    }

    pub(crate) fn over(
        synced: Arc<dyn ObjectStore>,
        unsynced: Arc<dyn ObjectStore>,
        directory: Option<Directory>,
    ) -> Self {
        Self::new(synced, unsynced, directory, false)
    }

    fn new(
        synced: Arc<dyn ObjectStore>,
        unsynced: Arc<dyn ObjectStore>,
        directory: Option<Directory>,
        remote: bool,
    ) -> Self {
        let counters = Arc::new(Counters::default());
        let counted = |inner| Arc::new(Counted { inner, counters: counters.clone(), parts: remote });
        Self(Arc::new(Inner {
            synced: counted(synced),
            unsynced: counted(unsynced),
            directory,
            remote,
            counters,
        }))
    }

    pub(crate) fn local(&self) -> Option<&Directory> {
        self.0.directory.as_ref()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.0.remote
    }

    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.0.synced
    }

    pub(crate) fn layout(&self) -> Layout {
        if self.local().is_some() { Layout::Tree } else { Layout::Flat }
    }

    pub(crate) fn requests(&self) -> Requests {
        self.0.counters.snapshot()
    }

    /// Replaces an object whole; its new etag.
    pub(crate) async fn put(&self, path: &Path, payload: PutPayload) -> Result<Option<String>, Error> {
        let put = despite_conflicts(|| self.store().put(path, payload.clone())).await;
        Ok(put.map_err(|e| storage("write", path, &e))?.e_tag)
    }

    /// Replaces an object that can be made again.
    pub(crate) async fn put_unsynced(&self, path: &Path, payload: PutPayload) -> Result<(), Error> {
        self.0.unsynced.put(path, payload).await.map_err(|e| storage("write", path, &e)).map(|_| ())
    }

    /// Creates an object. `false`: there is one already, perhaps by an earlier try of this same call (a store over a
    /// network repeats a request whose answer was lost), so the caller must read it.
    pub(crate) async fn create(&self, path: &Path, payload: PutPayload) -> Result<bool, Error> {
        self.try_create(path, payload).await.map_err(|e| storage("create", path, &e))
    }

    /// [`Backend::create`] with the error as it came.
    pub(crate) async fn try_create(&self, path: &Path, payload: PutPayload) -> object_store::Result<bool> {
        let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match despite_conflicts(|| self.store().put_opts(path, payload.clone(), create())).await {
            Ok(_) => Ok(true),
            // `object_store` takes a conflict for existence.
            Err(e @ object_store::Error::AlreadyExists { .. }) if !is_conflict(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Creates an object that only the owner of the process may read.
    pub(crate) async fn create_private(&self, path: &Path, bytes: Bytes) -> Result<bool, Error> {
        let Some(directory) = self.local() else { return self.create(path, bytes.into()).await };
        self.0.counters.count(|counters| &counters.put, 1);
        let file = directory.file(path);
        blocking(move || {
            crate::directory::create_private(&file, &bytes)
                .map_err(|e| io_error("create", file.display(), &e))
        })
        .await
    }

    /// Makes sure that an object's presence or absence survives a power loss. Other stores need nothing.
    pub(crate) async fn sync_entry(&self, path: &Path) -> Result<(), Error> {
        let Some(directory) = self.local() else { return Ok(()) };
        let file = directory.file(path);
        blocking(move || {
            // Removing the last object of a folder removes the folder: then it is the one above that changed.
            let folder = file.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(&file);
            sync_folder(folder).map_err(|e| io_error("sync", folder.display(), &e))
        })
        .await
    }

    pub(crate) async fn multipart(&self, path: &Path) -> Result<Box<dyn MultipartUpload>, Error> {
        self.store().put_multipart(path).await.map_err(|e| storage("write", path, &e))
    }

    /// Copies an object over another one, which then lasts like one that was written. `false`: there is no such object.
    pub(crate) async fn copy(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        match self.store().copy(from, to).await {
            Ok(()) => self.sync_entry(to).await.map(|()| true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(storage("copy", from, &e)),
        }
    }

    /// Removes an object; fine if there is none, which not every store can tell.
    pub(crate) async fn delete(&self, path: &Path) -> Result<(), Error> {
        match self.store().delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(storage("remove", path, &e)),
        }
    }

    /// Removes objects; those that are not there are no error.
    pub(crate) async fn delete_all(&self, paths: Vec<Path>) -> Result<(), Error> {
        let paths = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut removed = self.store().delete_stream(paths);
        let mut first = Ok(());
        while let Some(result) = removed.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) if first.is_ok() => first = Err(storage("remove", &Path::default(), &e)),
                Err(_) => {}
            }
        }
        first
    }

    /// Removes everything below a folder.
    pub(crate) async fn delete_below(&self, folder: &Path) -> Result<(), Error> {
        if let Some(directory) = self.local() {
            self.0.counters.count(|counters| &counters.delete, 1);
            let folder = directory.file(folder);
            return blocking(move || {
                remove_tree(&folder).map_err(|e| io_error("remove", folder.display(), &e))
            })
            .await;
        }
        let found =
            self.store().list(Some(folder)).map_ok(|meta| meta.location).try_collect::<Vec<_>>().await;
        self.delete_all(found.map_err(|e| storage("list", folder, &e))?).await
    }

    /// Every path below a folder, as far as it can be listed.
    #[cfg(feature = "test-support")]
    pub(crate) async fn everything(&self, folder: &Path) -> Vec<String> {
        self.store()
            .list(Some(folder))
            .filter_map(async |meta| Some(meta.ok()?.location.to_string()))
            .collect()
            .await
    }

    /// Names of the objects directly in a folder that sort after `after` and not after `until`, sorted.
    pub(crate) async fn names(
        &self,
        folder: &Path,
        after: &str,
        until: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let within = {
            let until = until.map(str::to_owned);
            move |name: &str| until.as_deref().is_none_or(|until| name <= until)
        };
        if let Some(directory) = self.local() {
            self.0.counters.count(|counters| &counters.list, 1);
            let (folder, after) = (directory.file(folder), after.to_owned());
            return blocking(move || {
                let names =
                    list::names(&folder, &after).map_err(|e| io_error("list", folder.display(), &e))?;
                Ok(names.into_iter().take_while(|name| within(name)).collect())
            })
            .await;
        }
        let offset = folder.clone().join(after);
        let mut listed = self.store().list_with_offset(Some(folder), &offset);
        let mut names = Vec::new();
        while let Some(meta) = listed.try_next().await.map_err(|e| storage("list", folder, &e))?
            && let Some(name) = meta.location.filename()
            && within(name)
        {
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Names of the folders directly in a folder, sorted.
    pub(crate) async fn folders(&self, folder: &Path) -> Result<Vec<String>, Error> {
        let listed = self.store().list_with_delimiter(Some(folder)).await;
        let listed = listed.map_err(|e| storage("list", folder, &e))?;
        let mut names: Vec<_> =
            listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Users' keys that begin with `prefix` and are greater than `after`, in byte order, at most `limit`.
    pub(crate) async fn keys(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Meta)>, Error> {
        let objects = paths::objects();
        if let Some(directory) = self.local() {
            self.0.counters.count(|counters| &counters.list, 1);
            let (folder, prefix, after) = (directory.file(&objects), prefix.to_owned(), after.to_owned());
            return blocking(move || {
                list::keys(&folder, &Query { prefix: &prefix, after: &after, limit })
                    .map_err(|e| io_error("list", folder.display(), &e))
            })
            .await;
        }
        // Stores of plain strings list in order, by whole parts of a prefix; the rest is filtered here.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Ok(folder) = Path::parse(format!("objects/{folder}")) else { return Ok(Vec::new()) };
        let offset = Path::parse(format!("objects/{after}")).unwrap_or_else(|_| objects.clone());
        let mut listed = self.store().list_with_offset(Some(&folder), &offset);
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(meta) = listed.try_next().await.map_err(|e| storage("list", &objects, &e))?
        {
            let key = meta.location.as_ref().strip_prefix("objects/").unwrap_or_default();
            if key <= after {
                continue;
            }
            if key.starts_with(prefix) {
                found.push((key.to_owned(), meta_of(&meta)));
            } else if key > prefix {
                break;
            }
        }
        Ok(found)
    }
}

/// A directory and the object stores that write to it.
pub(crate) struct Local {
    pub(crate) directory: Directory,
    pub(crate) synced: Files,
    pub(crate) unsynced: LocalFileSystem,
}

impl Local {
    pub(crate) async fn open(root: &FilePath) -> Result<Self, Error> {
        let root = root.to_owned();
        blocking(move || {
            let directory = Directory::open(&root)?;
            let local = LocalFileSystem::new_with_prefix(directory.root())
                .map_err(|e| storage("open", &Path::default(), &e))?
                .with_automatic_cleanup(true);
            let synced = Files { root: directory.root().to_owned(), inner: local.clone().with_fsync(true) };
            Ok(Self { directory, synced, unsynced: local })
        })
        .await
    }
}

/// Tries a write again where S3 says 409: another one of the same key is under way, and neither has failed for good. Whether the other
/// one won shows at the next try.
async fn despite_conflicts<F>(write: impl Fn() -> F) -> object_store::Result<PutResult>
where
    F: Future<Output = object_store::Result<PutResult>>,
{
    let mut pauses = CONFLICT_PAUSES_MS.into_iter().map(Duration::from_millis);
    loop {
        let conflict = match write().await {
            Err(e) if is_conflict(&e) => e,
            written => return written,
        };
        let Some(pause) = pauses.next() else { return Err(conflict) };
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
    }
}

fn is_conflict(error: &object_store::Error) -> bool {
    Answer::of(error).is_some_and(|answer| answer.is_conflict())
}

fn meta_of(meta: &object_store::ObjectMeta) -> Meta {
    Meta {
        bytes: meta.size,
        etag: bare(meta.e_tag.as_deref().unwrap_or_default()).to_owned(),
        modified_at_ms: meta.last_modified.timestamp_millis().max(0) as u64,
    }
}

/// An etag without the quotes that HTTP puts round it.
pub(crate) fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}
