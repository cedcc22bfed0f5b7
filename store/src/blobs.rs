//! Components, compiled code, function versions, and a job's input, logs and graph: whole objects, read and written at once.
//!
//! Components are checked against their digest when read. Compiled code is checked by its maker's signature. Versions,
//! inputs, logs and graphs are *sealed*: eight bytes at the end hold a mark and the crc32c of what precedes them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use fanfold_protocol::{Code, Digest, Error, JobId, function::FunctionVersion};
use object_store::{PutPayload, path::Path};
use rand::TryRngCore as _;

use crate::{Store, directory::blocking, errors::corrupt, paths};

/// Marks a sealed object's end; the checksum follows, little-endian.
const SEAL: [u8; 4] = *b"FFs1";
/// Versions kept in memory: each is a few hundred bytes and immutable, so this bounds them to about a megabyte.
const VERSIONS_CACHED_MAX: usize = 4096;

impl Store {
    /// Stores a component; its SHA-256. Doing it again changes nothing, except that a damaged copy is replaced.
    pub async fn put_component(&self, bytes: Bytes) -> Result<Digest, Error> {
        let hashed = bytes.clone();
        let digest = blocking(move || Ok(Digest::of(&hashed))).await?;
        if self.component(digest).await.is_err() {
            self.backend().put(&paths::component(digest), bytes.into()).await?;
        }
        Ok(digest)
    }

    /// A component's bytes, verified against its digest.
    ///
    /// # Errors
    /// `not-found` / `version`; `lost` / `corrupt` where the stored bytes have another digest.
    pub async fn component(&self, digest: Digest) -> Result<Bytes, Error> {
        let path = paths::component(digest);
        let bytes = self.backend().get(&path).await?.ok_or_else(|| {
            Error::not_found(Code::Version, format!("there is no component `{digest}`; deploy it again"))
        })?;
        let hashed = bytes.clone();
        if blocking(move || Ok(Digest::of(&hashed))).await? != digest {
            return Err(corrupt(
                &path,
                "its digest is another one; deploy the component again to replace it",
            ));
        }
        Ok(bytes)
    }

    /// Stores compiled code for an engine with this compatibility key. Not synced: it can be made again.
    pub async fn put_compiled(&self, component: Digest, engine: &str, bytes: Bytes) -> Result<(), Error> {
        self.backend().put_unsynced(&paths::compiled(component, engine), bytes.into()).await
    }

    /// Compiled code for an engine with this compatibility key, as it was put. The caller verifies its signature.
    pub async fn compiled(&self, component: Digest, engine: &str) -> Result<Option<Bytes>, Error> {
        self.backend().get(&paths::compiled(component, engine)).await
    }

    /// Removes compiled code; fine if there is none.
    pub async fn remove_compiled(&self, component: Digest, engine: &str) -> Result<(), Error> {
        self.backend().delete(&paths::compiled(component, engine)).await
    }

    /// The key with which compiled code is signed: 32 random bytes, made the first time anybody asks. In a directory
    /// only the owner of the process may read it.
    pub async fn signing_key(&self) -> Result<[u8; 32], Error> {
        let path = paths::signing_key();
        let key = match self.backend().get(&path).await? {
            Some(key) => key,
            None => {
                let mut fresh = [0; 32];
                rand::rngs::OsRng
                    .try_fill_bytes(&mut fresh)
                    .map_err(|e| Error::internal(format!("the system gives no random bytes: {e}")))?;
                // Whoever creates it first wins; everybody reads that one.
                self.backend().create_private(&path, Bytes::copy_from_slice(&fresh)).await?;
                self.backend().get(&path).await?.unwrap_or_default()
            }
        };
        let wrong = || corrupt(&path, "it is not 32 bytes; remove it, and compiled code is made anew");
        key.as_ref().try_into().map_err(|_| wrong())
    }

    /// Stores a function version under its digest. Doing it again changes nothing.
    pub async fn put_version(&self, version: &FunctionVersion) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(version)
            .map_err(|e| Error::internal(format!("a version cannot be written as JSON: {e}")))?;
        self.backend().put(&paths::version(version.version), seal(json.into())).await?;
        self.versions().insert(Arc::new(version.clone()));
        Ok(())
    }

    /// A function version.
    ///
    /// # Errors
    /// `not-found` / `version`; `lost` / `corrupt`.
    pub async fn version(&self, version: Digest) -> Result<Arc<FunctionVersion>, Error> {
        if let Some(known) = self.versions().get(version) {
            return Ok(known);
        }
        let path = paths::version(version);
        let sealed = self.backend().get(&path).await?;
        let sealed = sealed
            .ok_or_else(|| Error::not_found(Code::Version, format!("there is no version `{version}`")))?;
        let found: FunctionVersion = serde_json::from_slice(&unseal(&path, sealed)?)
            .map_err(|e| corrupt(&path, format_args!("it is no function version ({e})")))?;
        if found.version != version {
            return Err(corrupt(&path, "it is another version"));
        }
        let found = Arc::new(found);
        self.versions().insert(found.clone());
        Ok(found)
    }

    /// Stores a job's input, durably; before the job is accepted.
    pub async fn put_input(&self, job: JobId, bytes: Bytes) -> Result<(), Error> {
        self.backend().put(&paths::input(job), seal(bytes)).await.map(|_| ())
    }

    /// A job's stored input.
    ///
    /// # Errors
    /// `not-found` / `invocation`; `lost` / `corrupt`.
    pub async fn input(&self, job: JobId) -> Result<Bytes, Error> {
        let path = paths::input(job);
        let sealed = self.backend().get(&path).await?;
        unseal(
            &path,
            sealed.ok_or_else(|| {
                Error::not_found(Code::Invocation, format!("no input is stored for job `{job}`"))
            })?,
        )
    }

    /// Stores the log lines of a job's attempts. Not synced: they may be lost with the machine's power.
    pub async fn put_logs(&self, job: JobId, ndjson: Bytes) -> Result<(), Error> {
        self.backend().put_unsynced(&paths::logs(job), seal(ndjson)).await
    }

    /// The stored log lines of a job.
    ///
    /// # Errors
    /// `lost` / `corrupt`.
    pub async fn logs(&self, job: JobId) -> Result<Option<Bytes>, Error> {
        let path = paths::logs(job);
        self.backend().get(&path).await?.map(|sealed| unseal(&path, sealed)).transpose()
    }

    /// Stores the task graph of a job that ends. Not synced: it may be lost with the machine's power.
    pub async fn put_graph(&self, job: JobId, graph: Bytes) -> Result<(), Error> {
        self.backend().put_unsynced(&paths::graph(job), seal(graph)).await
    }

    /// The stored task graph of a job.
    ///
    /// # Errors
    /// `lost` / `corrupt`.
    pub async fn graph(&self, job: JobId) -> Result<Option<Bytes>, Error> {
        let path = paths::graph(job);
        self.backend().get(&path).await?.map(|sealed| unseal(&path, sealed)).transpose()
    }

    /// Removes everything of a job: input, logs, graph and partitions.
    pub async fn remove_job(&self, job: JobId) -> Result<(), Error> {
        self.backend().delete_below(&paths::job(job)).await
    }
}

fn seal(bytes: Bytes) -> PutPayload {
    let mut end = SEAL.to_vec();
    end.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    [bytes, end.into()].into_iter().collect()
}

fn unseal(path: &Path, mut sealed: Bytes) -> Result<Bytes, Error> {
    let cut_short = || corrupt(path, "its end is missing");
    let end = sealed.len().checked_sub(8).ok_or_else(cut_short)?;
    let seal = sealed.split_off(end);
    let Some(crc) = seal.strip_prefix(&SEAL) else { return Err(cut_short()) };
    if crc != crc32c::crc32c(&sealed).to_le_bytes() {
        return Err(corrupt(path, "its checksum is another one"));
    }
    Ok(sealed)
}

/// Versions in memory; the oldest goes first.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    versions: HashMap<Digest, Arc<FunctionVersion>>,
    order: VecDeque<Digest>,
}

impl Versions {
    fn get(&self, version: Digest) -> Option<Arc<FunctionVersion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).versions.get(&version).cloned()
    }

    fn insert(&self, version: Arc<FunctionVersion>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = version.version;
        if known.versions.insert(id, version).is_none() {
            known.order.push_back(id);
        }
        if known.order.len() > VERSIONS_CACHED_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.versions.remove(&oldest);
        }
    }
}
