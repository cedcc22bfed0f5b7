//! Counting requests: what an object store bills, and what a benchmark claims not to make.
//!
//! `Counted` wraps a store and counts every request that goes through it. Reads of a directory that go round the
//! object store (see `directory`) are counted where they are made.
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
use futures::{StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart, path::Path,
};

/// Requests made since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Puts, each part of a multipart upload counted, and copies.
    pub put: u64,
    /// Gets and heads.
    pub get: u64,
    /// Listings, whatever their length.
    pub list: u64,
    /// Deletes, one per key.
    pub delete: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) put: AtomicU64,
    pub(crate) get: AtomicU64,
    pub(crate) list: AtomicU64,
    pub(crate) delete: AtomicU64,
}

/// One more request.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Requests {
        Requests {
            put: self.put.load(Relaxed),
            get: self.get.load(Relaxed),
            list: self.list.load(Relaxed),
            delete: self.delete.load(Relaxed),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) inner: T,
    pub(crate) counters: Arc<Counters>,
}

impl<T: fmt::Display> fmt::Display for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl<T: ObjectStore> ObjectStore for Counted<T> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        count(&self.counters.put);
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        count(&self.counters.put);
        let upload = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(CountedUpload { upload, counters: self.counters.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        count(&self.counters.get);
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.counters.get.fetch_add(ranges.len() as u64, Relaxed);
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let counters = self.counters.clone();
        let counted = paths.inspect(move |_| count(&counters.delete));
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        count(&self.counters.list);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        count(&self.counters.list);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        count(&self.counters.list);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        count(&self.counters.put);
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountedUpload {
    upload: Box<dyn MultipartUpload>,
    counters: Arc<Counters>,
}

#[async_trait::async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        count(&self.counters.put);
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        count(&self.counters.put);
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}
