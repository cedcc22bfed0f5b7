//! Objects on disk, as S3 has them: keys are plain strings, an object is replaced whole, and a condition is looked at in
//! the moment in which the object appears.
//!
//! Each object is a file of its own under a number, `<bucket>/<n>`: the length of its key and its etag (4 bytes each),
//! these two, and the data. Which number a key has is in memory, and read from the files at the start; of two files with one
//! key the later is true. Files that end in `.part` are unfinished and removed at the start.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

/// A bucket's objects by key.
pub type Objects = BTreeMap<String, Arc<Object>>;

/// All objects.
#[derive(Debug)]
pub struct Storage {
    root: PathBuf,
    buckets: Mutex<BTreeMap<String, Objects>>,
    next: AtomicU64,
}

/// An object that is there.
#[derive(Debug)]
pub struct Object {
    pub bytes: u64,
    pub etag: String,
    pub modified: SystemTime,
    file: PathBuf,
    data: File,
    data_at: u64,
}

/// When an object may be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    Always,
    Absent,
    Etag(String),
}

/// Why it was not.
#[derive(Debug)]
pub enum Refused {
    NoBucket,
    Condition,
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Data on its way to become an object or a part of one.
#[derive(Debug)]
pub struct Unfinished {
    file: PathBuf,
    pub etag: String,
}

/// A file that is removed unless it is kept.
struct Received(Option<PathBuf>);

impl Received {
    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    fn keep(mut self) -> PathBuf {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            let _ = fs::remove_file(file);
        }
    }
}

impl Storage {
    /// Reads what a server before this one stored in `root`.
    pub fn open(root: &Path) -> io::Result<Self> {
        let (mut buckets, mut next) = (BTreeMap::new(), 1);
        for bucket in fs::read_dir(root)? {
            let bucket = bucket?;
            let mut files = Vec::new();
            for file in fs::read_dir(bucket.path())? {
                let path = file?.path();
                match path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok()) {
                    Some(n) => files.push((n, path)),
                    None => fs::remove_file(path)?,
                }
            }
            files.sort();
            let mut objects = Objects::new();
            for (n, path) in files {
                let (key, object) = Object::open(path)?;
                objects.insert(key, Arc::new(object));
                next = next.max(n + 1);
            }
            buckets.insert(bucket.file_name().to_string_lossy().into_owned(), objects);
        }
        Ok(Self { root: root.to_owned(), buckets: Mutex::new(buckets), next: AtomicU64::new(next) })
    }

    /// Makes a bucket. `false`: it is there.
    pub fn create_bucket(&self, bucket: &str) -> io::Result<bool> {
        let mut buckets = self.buckets();
        if buckets.contains_key(bucket) {
            return Ok(false);
        }
        fs::create_dir_all(self.root.join(bucket))?;
        buckets.insert(bucket.to_owned(), Objects::new());
        Ok(true)
    }

    /// Does something with a bucket's objects, while nobody changes them; `None` where there is no such bucket.
    pub fn with<T>(&self, bucket: &str, see: impl FnOnce(&Objects) -> T) -> Option<T> {
        self.buckets().get(bucket).map(see)
    }

    /// Writes data beside the objects. `key` is that of the object it may become.
    pub async fn receive<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        bucket: &str,
        key: &str,
        body: impl Stream<Item = Result<Bytes, E>>,
    ) -> io::Result<Unfinished> {
        let file = self.root.join(bucket).join(format!("{}.part", self.next.fetch_add(1, Relaxed)));
        // A client that goes away in the middle has sent nothing.
        let received = Received(Some(file));
        let mut out = tokio::fs::File::create(received.path()).await?;
        // The etag comes last, and its length is known.
        let head = [(key.len() as u32).to_le_bytes(), 32_u32.to_le_bytes()].concat();
        out.write_all(&[&head, key.as_bytes(), &[b'0'; 32]].concat()).await?;
        let mut hash = Sha256::new();
        let mut body = std::pin::pin!(body);
        while let Some(piece) = body.try_next().await.map_err(io::Error::other)? {
            hash.update(&piece);
            out.write_all(&piece).await?;
        }
        out.flush().await?;
        let etag: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let out = out.into_std().await;
        out.write_all_at(etag.as_bytes(), 8 + key.len() as u64)?;
        Ok(Unfinished { file: received.keep(), etag })
    }

    /// What was received, for a copy of it.
    pub fn reread(&self, part: &Unfinished) -> io::Result<Object> {
        Object::open(part.file.clone()).map(|(_, object)| object)
    }

    /// Forgets what was received.
    pub fn drop_unfinished(&self, part: &Unfinished) {
        let _ = fs::remove_file(&part.file);
    }

    /// Makes what was received the object, if the condition holds now.
    pub fn commit(
        &self,
        bucket: &str,
        key: &str,
        received: &Unfinished,
        condition: &Condition,
    ) -> Result<(), Refused> {
        let mut buckets = self.buckets();
        let objects = buckets.get_mut(bucket).ok_or(Refused::NoBucket)?;
        let holds = match (condition, objects.get(key)) {
            (Condition::Always, _) | (Condition::Absent, None) => true,
            (Condition::Etag(etag), Some(object)) => *etag == object.etag,
            (Condition::Absent, Some(_)) | (Condition::Etag(_), None) => false,
        };
        if !holds {
            return Err(Refused::Condition);
        }
        let file = self.root.join(bucket).join(self.next.fetch_add(1, Relaxed).to_string());
        fs::rename(&received.file, &file)?;
        let (_, object) = Object::open(file)?;
        if let Some(before) = objects.insert(key.to_owned(), Arc::new(object)) {
            fs::remove_file(&before.file)?;
        }
        Ok(())
    }

    /// Removes an object; fine if there is none.
    pub fn delete(&self, bucket: &str, key: &str) -> Result<(), Refused> {
        let mut buckets = self.buckets();
        let objects = buckets.get_mut(bucket).ok_or(Refused::NoBucket)?;
        match objects.remove(key) {
            Some(object) => Ok(fs::remove_file(&object.file)?),
            None => Ok(()),
        }
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Objects>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object {
    /// The object in a file, and its key.
    fn open(file: PathBuf) -> io::Result<(String, Self)> {
        let mut data = File::open(&file)?;
        let mut lengths = [0; 8];
        data.read_exact(&mut lengths)?;
        let length =
            |at: usize| lengths[at..at + 4].iter().rev().fold(0, |n, byte| (n << 8) | usize::from(*byte));
        let mut text = vec![0; length(0) + length(4)];
        data.read_exact(&mut text)?;
        let etag = text.split_off(length(0));
        let [key, etag] = [text, etag].map(|text| String::from_utf8_lossy(&text).into_owned());
        let data_at = (8 + length(0) + length(4)) as u64;
        let found = data.metadata()?;
        let (bytes, modified) = (found.len() - data_at, found.modified()?);
        Ok((key, Self { bytes, etag, modified, file, data, data_at }))
    }

    /// Some of its data. It stays readable when it has been replaced.
    pub fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.data.read_exact_at(&mut bytes, self.data_at + at)?;
        Ok(bytes.into())
    }
}
