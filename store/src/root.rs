//! Opening a store, and the handle everything else hangs on.

use std::{path::Path, sync::Arc};

use fanfold_protocol::Error;

use crate::{Objects, Partitions, Requests, backend::Backend, blobs::Versions};

/// A handle to one store; cheap to clone. The last one to go closes the store and, where it is a directory, unlocks it.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: Objects,
    partitions: Partitions,
    versions: Versions,
    backend: Backend,
}

impl Store {
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
        Self(Arc::new(Inner {
            objects: Objects::new(backend.clone()),
            partitions: Partitions::new(backend.clone()),
            versions: Versions::default(),
            backend,
        }))
    }

    /// The directory, where it is one.
    pub fn dir(&self) -> Option<&Path> {
        self.backend().local().map(|directory| directory.root())
    }

    /// Partitions' data.
    pub fn partitions(&self) -> &Partitions {
        &self.0.partitions
    }

    /// Users' objects.
    pub fn objects(&self) -> &Objects {
        &self.0.objects
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
