//! Stores that fail on request, and a look underneath, for tests (feature `test-support`).
//!
//! Faults are fair: each is one that some object store has been seen to do. Reads of a directory do not pass through
//! the object store, so faults of gets happen in memory only.

use std::{
    fmt,
    path::Path as FilePath,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::Error;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
    memory::InMemory, path::Path,
};
use tokio::sync::Semaphore;

use crate::{
    Store,
    backend::{Backend, Local},
};

/// What can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A put, a part of an upload, or its completion.
    Put,
    /// A get or head.
    Get,
    /// A delete.
    Delete,
}

/// How it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is not done and an error is returned.
    Refused,
    /// It is not done: a server asks to slow down, and has done so for as long as was tried.
    Unavailable,
    /// It is done and an error is returned: the answer was lost.
    AnswerLost,
    /// It is not done: the disk is full.
    DiskFull,
    /// A get's body ends after so many bytes, without an error.
    CutShort(usize),
    /// A get's body ends after so many bytes, with an error.
    Broken(usize),
    /// A get's body comes only after this time.
    Slow(Duration),
    /// It begins only once [`Faults::release`] lets it.
    Held,
}

/// What shall fail, shared with the store that fails.
#[derive(Clone, Debug)]
pub struct Faults(Arc<State>);

#[derive(Debug)]
struct State {
    rules: Mutex<Vec<Rule>>,
    gate: Semaphore,
}

#[derive(Debug)]
struct Rule {
    operation: Operation,
    path: String,
    /// Matching operations that still succeed before it applies.
    skip: usize,
    /// How often it applies; `None`: until cleared.
    times: Option<usize>,
    fault: Fault,
}

impl Faults {
    fn new() -> Self {
        Self(Arc::new(State { rules: Mutex::default(), gate: Semaphore::new(0) }))
    }

    /// The next operation on a path that contains `path` fails.
    pub fn once(&self, operation: Operation, path: &str, fault: Fault) {
        self.nth(operation, path, 0, fault);
    }

    /// The operation after the next `skip` ones on paths that contain `path` fails.
    pub fn nth(&self, operation: Operation, path: &str, skip: usize, fault: Fault) {
        self.add(Rule { operation, path: path.to_owned(), skip, times: Some(1), fault });
    }

    /// All operations on paths that contain `path` fail until [`Faults::clear`].
    pub fn always(&self, operation: Operation, path: &str, fault: Fault) {
        self.add(Rule { operation, path: path.to_owned(), skip: 0, times: None, fault });
    }

    /// Nothing fails any more.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// Lets `count` held operations begin, now or when they come.
    pub fn release(&self, count: usize) {
        self.0.gate.add_permits(count);
    }

    fn add(&self, rule: Rule) {
        self.rules().push(rule);
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, operation: Operation, path: &Path) -> Option<Fault> {
        let mut rules = self.rules();
        let matches = |rule: &Rule| rule.operation == operation && path.as_ref().contains(&rule.path);
        for (at, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| matches(rule)) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            let fault = rule.fault;
            if let Some(times) = &mut rule.times {
                *times -= 1;
                if *times == 0 {
                    rules.remove(at);
                }
            }
            return Some(fault);
        }
        None
    }

    /// What happens before an operation: an error, a wait, or nothing.
    async fn before(&self, operation: Operation, path: &Path) -> Result<Option<Fault>> {
        let fault = self.find(operation, path);
        match fault {
            Some(Fault::Refused) => Err(injected(std::io::ErrorKind::ConnectionReset)),
            Some(Fault::Unavailable) => Err(unavailable()),
            Some(Fault::DiskFull) => Err(injected(std::io::ErrorKind::StorageFull)),
            Some(Fault::Held) => {
                if let Ok(permit) = self.0.gate.acquire().await {
                    permit.forget();
                }
                Ok(fault)
            }
            other => Ok(other),
        }
    }
}

fn injected(kind: std::io::ErrorKind) -> object_store::Error {
    object_store::Error::Generic { store: "Faulty", source: Box::new(std::io::Error::from(kind)) }
}

/// As `object_store` tells it of S3.
fn unavailable() -> object_store::Error {
    let text = "Error performing the request in 20s - Server returned non-2xx status code: 503 Service Unavailable: \
                <Error><Code>SlowDown</Code></Error>";
    object_store::Error::Generic { store: "Faulty", source: text.into() }
}

/// What an operation that was done answers.
fn after<T>(fault: Option<Fault>, answer: T) -> Result<T> {
    if fault == Some(Fault::AnswerLost) { Err(injected(std::io::ErrorKind::TimedOut)) } else { Ok(answer) }
}

/// A store in memory that takes itself for one that several processes share; clones of the handle are the processes.
pub fn shared_memory() -> Store {
    Store::over(Backend::remote(Arc::new(InMemory::new())))
}

/// A store in memory that fails on request.
pub fn faulty_memory() -> (Store, Faults) {
    let faults = Faults::new();
    let memory = Arc::new(Faulty { inner: InMemory::new(), faults: faults.clone() });
    (Store::over(Backend::over(memory.clone(), memory, None)), faults)
}

/// A store in a directory whose writes fail on request.
///
/// # Errors
/// As [`Store::open_dir`].
pub async fn faulty_dir(dir: &FilePath) -> Result<(Store, Faults), Error> {
    let faults = Faults::new();
    let Local { directory, synced, unsynced } = Local::open(dir).await?;
    let synced = Arc::new(Faulty { inner: synced, faults: faults.clone() });
    let unsynced = Arc::new(Faulty { inner: unsynced, faults: faults.clone() });
    Ok((Store::over(Backend::over(synced, unsynced, Some(directory))), faults))
}

/// Every path in the store that begins with a folder, sorted.
pub async fn paths(store: &Store, folder: &str) -> Vec<String> {
    let mut paths = store.backend().everything(&Path::from(folder)).await;
    paths.sort();
    paths
}

/// The bytes at a path, as they are stored.
///
/// # Errors
/// `platform`.
pub async fn read_raw(store: &Store, path: &str) -> Result<Option<Bytes>, Error> {
    store.backend().get(&Path::from(path)).await
}

/// Replaces the bytes at a path.
///
/// # Errors
/// `platform`.
pub async fn write_raw(store: &Store, path: &str, bytes: Bytes) -> Result<(), Error> {
    store.backend().put(&Path::from(path), bytes.into()).await.map(|_| ())
}

/// Removes a path.
///
/// # Errors
/// `platform`.
pub async fn remove_raw(store: &Store, path: &str) -> Result<(), Error> {
    store.backend().delete(&Path::from(path)).await
}

#[derive(Debug)]
struct Faulty<T> {
    inner: T,
    faults: Faults,
}

impl<T: fmt::Display> fmt::Display for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({})", self.inner)
    }
}

#[async_trait::async_trait]
impl<T: ObjectStore> ObjectStore for Faulty<T> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let fault = self.faults.before(Operation::Put, path).await?;
        after(fault, self.inner.put_opts(path, payload, options).await?)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let fault = self.faults.before(Operation::Put, path).await?;
        let upload = self.inner.put_multipart_opts(path, options).await?;
        after(fault, Box::new(FaultyUpload { upload, path: path.clone(), faults: self.faults.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.faults.before(Operation::Get, path).await?;
        let got = self.inner.get_opts(path, options).await?;
        let got = match fault {
            Some(Fault::CutShort(bytes)) => with_body(got, |body| cut(body, bytes)),
            Some(Fault::Broken(bytes)) => with_body(got, |body| {
                let end = futures::stream::iter([Err(injected(std::io::ErrorKind::ConnectionReset))]);
                cut(body, bytes).chain(end).boxed()
            }),
            Some(Fault::Slow(time)) => with_body(got, |body| {
                let pause = futures::stream::once(tokio::time::sleep(time));
                pause.filter_map(async |()| None).chain(body).boxed()
            }),
            _ => got,
        };
        after(fault, got)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let faults = self.faults.clone();
        let checked = paths.and_then(move |path| {
            let faults = faults.clone();
            async move { faults.before(Operation::Delete, &path).await.map(|_| path) }
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

type Body = BoxStream<'static, Result<Bytes>>;

fn with_body(got: GetResult, change: impl FnOnce(Body) -> Body) -> GetResult {
    let (meta, range) = (got.meta.clone(), got.range.clone());
    let (attributes, extensions) = (got.attributes.clone(), got.extensions.clone());
    let payload = GetResultPayload::Stream(change(got.into_stream()));
    GetResult { payload, meta, range, attributes, extensions }
}

/// The first bytes of a body.
fn cut(body: Body, bytes: usize) -> Body {
    let first = body.scan(bytes, |left, piece| {
        let piece = piece.map(|piece: Bytes| piece.slice(..piece.len().min(*left)));
        *left -= piece.as_ref().map_or(0, Bytes::len);
        futures::future::ready(Some(piece))
    });
    first.boxed()
}

#[derive(Debug)]
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    path: Path,
    faults: Faults,
}

#[async_trait::async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.upload.put_part(data);
        let (path, faults) = (self.path.clone(), self.faults.clone());
        Box::pin(async move {
            let fault = faults.before(Operation::Put, &path).await?;
            part.await?;
            after(fault, ())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.faults.before(Operation::Put, &self.path).await?;
        after(fault, self.upload.complete().await?)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}
