//! Objects as files: `object_store`'s local store, but for objects that are written in parts, which are large and so go
//! past the page cache (see [`super::large`]).

use std::{
    fmt, fs, io,
    ops::Range,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{FutureExt as _, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart, local::LocalFileSystem,
    path::Path,
};
use tokio::{runtime::Handle, task::spawn_blocking};

use super::{large::FileWriter, read::Meta, sync_folder};

/// See the module. What it acknowledges is synced.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
    pub(crate) inner: LocalFileSystem,
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Files {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let file = self.root.join(path.as_ref());
        let upload = spawn_blocking(move || Upload::begin(file)).await.map_err(stopped)?;
        Ok(Box::new(upload.map_err(failed)?))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A file that becomes an object when it is complete. Parts are written in the order in which they were put.
#[derive(Debug)]
struct Upload {
    object: PathBuf,
    /// Until it is the object; removed when this is dropped before.
    temporary: Option<PathBuf>,
    parts: Arc<Mutex<Option<FileWriter>>>,
}

impl Upload {
    fn begin(object: PathBuf) -> io::Result<Self> {
        // Several may write an object at once: each has a file of its own. A `#` is in no object's name.
        let mut number = 1;
        loop {
            let mut temporary = object.clone().into_os_string();
            temporary.push(format!("#{number}"));
            let temporary = PathBuf::from(temporary);
            match FileWriter::create(&temporary, 0o666) {
                Ok(writer) => {
                    let parts = Arc::new(Mutex::new(Some(writer)));
                    return Ok(Self { object, temporary: Some(temporary), parts });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    make_folder(object.parent().unwrap_or(FilePath::new(".")))?;
                }
                Err(e) => return Err(e),
            }
        }
    }
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let parts = self.parts.clone();
        let write = move || {
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = parts.as_mut().ok_or_else(over)?;
            writer.write(data.iter().map(AsRef::as_ref))
        };
        async move { spawn_blocking(write).await.map_err(stopped)?.map_err(failed) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let writer = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (temporary, object) = (self.temporary.take(), self.object.clone());
        let publish = move || {
            let (writer, temporary) = writer.zip(temporary).ok_or_else(over)?;
            let published = publish(writer, &temporary, &object);
            if published.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            published
        };
        let meta = spawn_blocking(publish).await.map_err(stopped)?.map_err(failed)?;
        let e_tag = Some(format!("\"{}\"", meta.etag));
        Ok(PutResult { e_tag, version: None, extensions: object_store::Extensions::default() })
    }

    async fn abort(&mut self) -> Result<()> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        spawn_blocking(move || fs::remove_file(temporary)).await.map_err(stopped)?.map_err(failed)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // What cannot be removed now is removed when the directory is opened again.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || fs::remove_file(temporary))),
                Err(_) => drop(fs::remove_file(temporary)),
            }
        }
    }
}

/// Makes what was written durable, and then the object.
fn publish(writer: FileWriter, temporary: &FilePath, object: &FilePath) -> io::Result<Meta> {
    let file = writer.finish()?;
    file.sync_all()?;
    let meta = Meta::from(&file.metadata()?);
    fs::rename(temporary, object)?;
    object.parent().map_or(Ok(()), sync_folder)?;
    Ok(meta)
}

/// Makes a folder, durably.
fn make_folder(folder: &FilePath) -> io::Result<()> {
    let there = folder.ancestors().skip(1).find(|folder| folder.exists());
    fs::create_dir_all(folder)?;
    let changed = folder.ancestors().skip(1).take_while(|changed| Some(*changed) != there);
    changed.chain(there).try_for_each(sync_folder)
}

fn over() -> io::Error {
    io::Error::other("the upload has ended")
}

fn stopped(error: tokio::task::JoinError) -> object_store::Error {
    object_store::Error::JoinError { source: error }
}

/// Keeps the error of the file system as the source, by which a full disk is known.
fn failed(error: io::Error) -> object_store::Error {
    object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(error) }
}
