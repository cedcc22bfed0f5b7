//! Opening a store, and the handle everything else hangs on.

use std::{path::Path, sync::Arc};

use fanfold_protocol::{Error, message::Requests};

use crate::{Bucket, Objects, Partitions, S3Options, StoreUrl, backend::Backend, blobs::Versions, s3};

/// A handle to one store; cheap to clone. The last one to go closes the store and, where it is a directory, unlocks it.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: Objects,
    partitions: Partitions,
    versions: Versions,
    backend: Backend,
    /// Where it is in S3.
    bucket: Option<Bucket>,
}

impl Store {
    /// Opens a store, wherever it is. `options` matter for S3 only.
    ///
    /// A bucket must exist; the store in it is made by the first who opens it, and shared with all others: nothing
    /// locks it, who may write what is decided by epochs.
    ///
    /// # Errors
    /// As [`Store::open_dir`]; of a bucket `platform` / `storage`, naming it and what to do: retryable where the server
    /// was not reached or failed for as long as [`S3Options::retry_for`], not where it refused.
    pub async fn open(url: &StoreUrl, options: &S3Options) -> Result<Self, Error> {
        match url {
            StoreUrl::Directory(dir) => Self::open_dir(dir).await,
            StoreUrl::S3(bucket) => {
                Ok(Self::over_bucket(s3::open(bucket, options).await?, Some(bucket.clone())))
            }
            StoreUrl::Memory => Ok(Self::in_memory()),
        }
    }

    /// Opens a store in a directory of a local disk, which is created if it does not exist and locked against other
    /// processes. What a crashed process left half-written is removed.
    ///
    /// # Errors
    /// `conflict` / `directory-in-use` where another live process has it (nothing was changed); `platform` where it
    /// cannot be made or written.
    pub async fn open_dir(dir: &Path) -> Result<Self, Error> {
        Ok(Self::over(Backend::directory(dir).await?))
    }

    /// A store that lives and dies with this process.
    pub fn in_memory() -> Self {
        Self::over(Backend::memory())
    }

    pub(crate) fn over(backend: Backend) -> Self {
        Self::over_bucket(backend, None)
    }

    fn over_bucket(backend: Backend, bucket: Option<Bucket>) -> Self {
        Self(Arc::new(Inner {
            objects: Objects::new(backend.clone()),
            partitions: Partitions::new(backend.clone()),
            versions: Versions::default(),
            backend,
            bucket,
        }))
    }

    /// The directory, where it is one.
    pub fn dir(&self) -> Option<&Path> {
        self.backend().local().map(|directory| directory.root())
    }

    /// Whether other processes may use it at the same time.
    pub fn is_shared(&self) -> bool {
        self.backend().is_shared()
    }

    /// Partitions' data.
    pub fn partitions(&self) -> &Partitions {
        &self.0.partitions
    }

    /// Users' objects.
    pub fn objects(&self) -> &Objects {
        &self.0.objects
    }

    /// The user's key of the object that a bucket has under `key`; `None`: it is none of this store's objects.
    pub fn object_key<'a>(&self, bucket: &str, key: &'a str) -> Option<&'a str> {
        self.0.bucket.as_ref().filter(|own| own.name == bucket)?.object_key(key)
    }

    /// Requests made since it was opened, by every clone of this handle.
    pub fn requests(&self) -> Requests {
        self.backend().requests()
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    pub(crate) fn versions(&self) -> &Versions {
        &self.0.versions
    }
}
