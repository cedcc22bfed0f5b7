//! Objects on disk, as S3 has them: keys are plain strings, an object is replaced whole, and a condition is looked at in
//! the moment in which the object appears.
//!
//! Each object is a file of its own under a number, `<bucket>/<n>`: the length of its key and its etag (4 bytes each),
//! these two, and the data. An object that was uploaded in parts is a folder of that name, with such a file for each part:
//! completing an upload copies nothing. Which number a key has is in memory, and read from the files at the start; of two
//! objects with one key the later is true. Names that end in `.part` are unfinished and removed at the start.
//!
//! An etag is a checksum and a length, which is enough to tell what tests write apart.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use bytes::Bytes;
use fanfold_store::{FileWriter, read_large_at};
use futures::{Stream, TryStreamExt as _};
use tokio::task::spawn_blocking;

/// A bucket's objects by key.
pub type Objects = BTreeMap<String, Arc<Object>>;

/// All objects.
#[derive(Debug)]
pub struct Storage {
    root: PathBuf,
    buckets: Mutex<BTreeMap<String, Objects>>,
    next: AtomicU64,
}

/// An object that is there, or was when somebody began to read it: its file goes with the last who does. No file stays open,
/// because there may be more objects than a process may have open files.
#[derive(Debug)]
pub struct Object {
    pub bytes: u64,
    pub etag: String,
    pub modified: SystemTime,
    /// A file, or a folder of parts.
    path: PathBuf,
    parts: Vec<Part>,
    /// It was removed or replaced: what it was is under [`unnamed`].
    removed: AtomicBool,
}

/// Some of an object's data, in order.
#[derive(Debug)]
struct Part {
    /// Which bytes of the object.
    range: Range<u64>,
    /// Its name in the folder of parts; empty: the object is a file.
    name: String,
    /// Where they begin in the file.
    data_at: u64,
}

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of the etag of what came in one piece.
const ETAG_BYTES: usize = 32;

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
    path: PathBuf,
    pub etag: String,
}

/// A file or folder that is removed unless it is kept.
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
        if let Some(path) = &self.0 {
            let _ = remove(path);
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
                    None => remove(&path)?,
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
        // A client that goes away in the middle has sent nothing.
        let received = Received(Some(self.unfinished(bucket)));
        let mut out = FileWriter::create(received.path(), 0o600)?;
        // The etag comes last, and its length is known.
        let head = [(key.len() as u32).to_le_bytes(), (ETAG_BYTES as u32).to_le_bytes()].concat();
        out.write([&head, key.as_bytes(), &[b'0'; ETAG_BYTES]])?;
        let (mut checksum, mut length) = (0, 0);
        let (mut body, mut pieces, mut waiting) = (std::pin::pin!(body), Vec::new(), 0);
        while let Some(piece) = body.try_next().await.map_err(io::Error::other)? {
            (checksum, length) = (crc32c::crc32c_append(checksum, &piece), length + piece.len());
            waiting += piece.len();
            pieces.push(piece);
            if waiting >= WRITE_BYTES {
                let full = std::mem::take(&mut pieces);
                out = away(move || write_all(out, full)).await?;
                waiting = 0;
            }
        }
        let etag = etag(checksum, length as u64);
        let (told, at) = (etag.clone(), 8 + key.len() as u64);
        away(move || write_all(out, pieces)?.finish()?.write_all_at(told.as_bytes(), at)).await?;
        Ok(Unfinished { path: received.keep(), etag })
    }

    /// Joins parts to what becomes one object. Nothing is copied.
    pub fn join<'a>(
        &self,
        bucket: &str,
        parts: impl Iterator<Item = &'a Unfinished>,
    ) -> io::Result<Unfinished> {
        let folder = Received(Some(self.unfinished(bucket)));
        fs::create_dir(folder.path())?;
        let mut etags = Vec::new();
        for (number, part) in parts.enumerate() {
            fs::rename(&part.path, folder.path().join(part_name(number)))?;
            etags.push(part.etag.as_str());
        }
        let etag = etag_of_parts(&etags);
        Ok(Unfinished { path: folder.keep(), etag })
    }

    fn unfinished(&self, bucket: &str) -> PathBuf {
        self.root.join(bucket).join(format!("{}.part", self.next.fetch_add(1, Relaxed)))
    }

    /// Forgets what was received.
    pub fn drop_unfinished(&self, part: &Unfinished) {
        let _ = remove(&part.path);
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
        fs::rename(&received.path, &file)?;
        let (_, object) = Object::open(file)?;
        if let Some(before) = objects.insert(key.to_owned(), Arc::new(object)) {
            before.remove()?;
        }
        Ok(())
    }

    /// Removes an object; fine if there is none.
    pub fn delete(&self, bucket: &str, key: &str) -> Result<(), Refused> {
        let mut buckets = self.buckets();
        let objects = buckets.get_mut(bucket).ok_or(Refused::NoBucket)?;
        match objects.remove(key) {
            Some(object) => Ok(object.remove()?),
            None => Ok(()),
        }
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Objects>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object {
    /// The object in a file, or in a folder of parts, and its key.
    fn open(path: PathBuf) -> io::Result<(String, Self)> {
        if path.is_file() {
            let (key, etag, part) = Part::of(&path, String::new(), 0)?;
            return Ok((key, Self::of(etag, path, vec![part])?));
        }
        let (mut key, mut etags, mut parts, mut bytes) = (String::new(), Vec::new(), Vec::new(), 0);
        let names = fs::read_dir(&path)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for name in names {
            let (of, etag, part) = Part::of(&path, name, bytes)?;
            (key, bytes) = (of, part.range.end);
            etags.push(etag);
            parts.push(part);
        }
        let etags: Vec<&str> = etags.iter().map(String::as_str).collect();
        Ok((key, Self::of(etag_of_parts(&etags), path, parts)?))
    }

    fn of(etag: String, path: PathBuf, parts: Vec<Part>) -> io::Result<Self> {
        let modified = fs::metadata(&path)?.modified()?;
        let bytes = parts.last().map_or(0, |part| part.range.end);
        Ok(Self { bytes, etag, modified, path, parts, removed: AtomicBool::new(false) })
    }

    /// Some of its data, up to `length` bytes: fewer where a part ends. It stays readable when it has been replaced.
    pub fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let part = self.parts.iter().find(|part| part.range.contains(&at));
        let part = part.ok_or(io::ErrorKind::UnexpectedEof)?;
        let end = part.range.end.min(at + length as u64);
        // Where it is removed in this moment, it has the other name by now.
        let file = File::open(within(&self.path, &part.name))
            .or_else(|_| File::open(within(&unnamed(&self.path), &part.name)))?;
        read_large_at(&file, part.place(at)..part.place(end))
    }
}

impl Object {
    /// Nobody finds it any more; who reads it may read on.
    fn remove(&self) -> io::Result<()> {
        fs::rename(&self.path, unnamed(&self.path))?;
        self.removed.store(true, Relaxed);
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if *self.removed.get_mut() {
            // What stays is removed at the next start.
            let _ = remove(&unnamed(&self.path));
        }
    }
}

/// What was removed and may be read still.
fn unnamed(path: &Path) -> PathBuf {
    path.with_extension("part")
}

fn within(path: &Path, name: &str) -> PathBuf {
    if name.is_empty() { path.to_owned() } else { path.join(name) }
}

impl Part {
    /// The part with a name in an object's folder, or the object's file; its key and its etag. `at` bytes of the object come before
    /// it.
    fn of(path: &Path, name: String, at: u64) -> io::Result<(String, String, Self)> {
        let mut file = File::open(within(path, &name))?;
        let mut lengths = [0; 8];
        file.read_exact(&mut lengths)?;
        let length =
            |at: usize| lengths[at..at + 4].iter().rev().fold(0, |n, byte| (n << 8) | usize::from(*byte));
        let mut text = vec![0; length(0) + length(4)];
        file.read_exact(&mut text)?;
        let etag = text.split_off(length(0));
        let [key, etag] = [text, etag].map(|text| String::from_utf8_lossy(&text).into_owned());
        let data_at = (8 + length(0) + length(4)) as u64;
        let range = at..at + file.metadata()?.len() - data_at;
        Ok((key, etag, Self { range, name, data_at }))
    }

    /// Where a byte of the object is in the file.
    fn place(&self, at: u64) -> u64 {
        at - self.range.start + self.data_at
    }
}

fn etag(checksum: u32, length: u64) -> String {
    format!("{checksum:08x}{length:024x}")
}

/// As S3 does it: not that of the same bytes in one piece.
fn etag_of_parts(etags: &[&str]) -> String {
    format!("{}-{}", etag(crc32c::crc32c(etags.concat().as_bytes()), 0), etags.len())
}

/// In the order of the parts.
fn part_name(number: usize) -> String {
    format!("{number:05}")
}

/// Removes a file, or a folder with what is in it.
fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

fn write_all(mut out: FileWriter, pieces: Vec<Bytes>) -> io::Result<FileWriter> {
    out.write(pieces.iter().map(AsRef::as_ref))?;
    Ok(out)
}

async fn away<T: Send + 'static>(act: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(act).await.map_err(io::Error::other)?
}
