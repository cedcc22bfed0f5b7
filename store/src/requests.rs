//! Counting requests: what an object store bills, to whom, and what a benchmark claims not to make.
//!
//! `Counted` wraps a store and counts every request that goes through it. Reads of a directory that go round the
//! object store (see `directory`) are counted where they are made. Each is counted in all and, where it is made for
//! somebody, on an [`Account`].
//!
//! A file is one request, in however many pieces it was written: its parts cost nobody anything.
//!
//! What `object_store` repeats by itself after a failure is not counted, nor that a listing of more than 1,000 names or a
//! delete of many keys takes several requests or one: a server's own figures differ by these.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use fanfold_protocol::message::Requests;
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart, path::Path,
};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) get: AtomicU64,
    pub(crate) head: AtomicU64,
    pub(crate) put: AtomicU64,
    pub(crate) part: AtomicU64,
    pub(crate) list: AtomicU64,
    pub(crate) delete: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

impl Counters {
    /// Counts `n` more of something, here and on the account of whoever it is done for.
    pub(crate) fn count(&self, of: fn(&Self) -> &AtomicU64, n: u64) {
        of(self).fetch_add(n, Relaxed);
        // Work that is on nobody's account is counted in all only.
        let _ = ACCOUNT.try_with(|account| of(account).fetch_add(n, Relaxed));
    }

    pub(crate) fn snapshot(&self) -> Requests {
        Requests {
            get: self.get.load(Relaxed),
            head: self.head.load(Relaxed),
            put: self.put.load(Relaxed),
            part: self.part.load(Relaxed),
            list: self.list.load(Relaxed),
            delete: self.delete.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
        }
    }
}

tokio::task_local! {
    /// Between an attempt and the store are the cache, uploads and reads ahead, which all would have to pass it on.
    static ACCOUNT: Arc<Counters>;
}

/// Requests made on somebody's behalf. Clones are the same account.
#[derive(Clone, Debug, Default)]
pub struct Account(Arc<Counters>);

impl Account {
    /// Does `work`, whose requests count here too; and only here, where an account within another one is charged. What
    /// `work` spawns has to be charged again: see [`Account::current`].
    pub async fn charge<F: Future>(&self, work: F) -> F::Output {
        ACCOUNT.scope(self.0.clone(), work).await
    }

    /// The account that the caller's requests count on; a new one, which nobody looks at, where there is none.
    pub fn current() -> Self {
        ACCOUNT.try_with(|account| Self(account.clone())).unwrap_or_default()
    }

    /// What was counted until now.
    pub fn total(&self) -> Requests {
        self.0.snapshot()
    }
}

#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) inner: T,
    pub(crate) counters: Arc<Counters>,
    /// Whether each part of an upload is a request.
    pub(crate) parts: bool,
}

impl<T: fmt::Display> fmt::Display for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl<T: ObjectStore> ObjectStore for Counted<T> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.counters.count(|counters| &counters.put, 1);
        self.counters.count(|counters| &counters.bytes_out, payload.content_length() as u64);
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let parts = self.parts;
        self.counters.count(|counters| &counters.part, u64::from(parts));
        let upload = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(CountedUpload { upload, counters: self.counters.clone(), parts }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        self.counters.count(if head { |counters| &counters.head } else { |counters| &counters.get }, 1);
        let got = self.inner.get_opts(path, options).await?;
        if !head {
            self.counters.count(|counters| &counters.bytes_in, got.range.end - got.range.start);
        }
        Ok(got)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.counters.count(|counters| &counters.get, ranges.len() as u64);
        let got = self.inner.get_ranges(path, ranges).await?;
        self.counters.count(|counters| &counters.bytes_in, got.iter().map(|part| part.len() as u64).sum());
        Ok(got)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let counters = self.counters.clone();
        let counted = paths.inspect(move |_| counters.count(|counters| &counters.delete, 1));
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counters.count(|counters| &counters.list, 1);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counters.count(|counters| &counters.list, 1);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.counters.count(|counters| &counters.list, 1);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.counters.count(|counters| &counters.put, 1);
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountedUpload {
    upload: Box<dyn MultipartUpload>,
    counters: Arc<Counters>,
    /// As [`Counted::parts`].
    parts: bool,
}

#[async_trait::async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.counters.count(|counters| &counters.part, u64::from(self.parts));
        self.counters.count(|counters| &counters.bytes_out, data.content_length() as u64);
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.counters.count(if self.parts { |counters| &counters.part } else { |counters| &counters.put }, 1);
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}
