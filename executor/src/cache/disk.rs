//! The disk tier: partitions that only this executor has and that do not fit into its memory, one file each.
//!
//! A file is the partition's bytes and behind them what the next process of this executor has to know to find them ([`super::label`]),
//! should this one be killed; nothing is synced, so a machine that goes down takes the files with it. Promises: what is read was
//! compared with the checksums; files are within the budget, and removed when nobody has the partition any more. They go through the
//! kernel's page cache where that is cheap, else past it ([`super::route`]); what is read is not brought back into the cache's own,
//! as most of it is read once.
//!
//! A disk that fails is left alone for a while ([`Disk::is_open`]); the cache uploads instead. Every call that touches a
//! file runs away from the async threads.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use fanfold_protocol::{Code, Error, ExecutorId, Kind, value::StoredKey};
use fanfold_store::{FileWriter, Index, read_large_at};
use futures::Stream;
use rustix::{fs::FsWord, io::Errno};
use tokio::{sync::Notify, task::spawn_blocking};

use super::{
    budget::{Budget, Charge},
    label::{self, Labelled},
    lock,
    route::{Route, Watch},
    scratch::Scratch,
    tier::Cached,
};
use crate::Spill;

/// What a reader of a whole file holds at a time: enough for a disk, little for memory.
const PIECE_BYTES: u64 = 1 << 20;
/// How long a disk that failed is left alone.
const CLOSED: Duration = Duration::from_secs(10);
/// A trouble that lasts is told once in this time.
const TELL_AGAIN: Duration = Duration::from_secs(600);
/// `statfs` names the file system in memory so.
const TMPFS: FsWord = 0x0102_1994;

/// A handle to the tier; cheap to clone.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` once it is closed for good.
    scratch: Mutex<Option<Scratch>>,
    folder: PathBuf,
    executor: ExecutorId,
    budget: Arc<Budget>,
    route: Route,
    next: AtomicU64,
    health: Mutex<Health>,
    /// Files to remove.
    garbage: Mutex<Vec<PathBuf>>,
    /// Tells the cache's background work of garbage.
    work: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Health {
    closed_until: Option<Instant>,
    told: Option<Instant>,
}

/// A partition that an earlier process of this executor wrote.
#[derive(Debug)]
pub struct Found {
    /// Its file.
    pub file: Arc<Spilled>,
    /// Whether it is to be uploaded.
    pub lazy: bool,
}

impl Disk {
    /// Makes a folder for `executor`, or takes over that of one of the same `platform` that was killed, with what is in it. `work` is
    /// notified when there are files to remove.
    ///
    /// # Errors
    /// [`Kind::Platform`] where that cannot be, saying what to change.
    pub fn open(
        spill: &Spill,
        platform: &str,
        executor: ExecutorId,
        work: Arc<Notify>,
    ) -> Result<(Self, Vec<Found>), Error> {
        let Spill { dir: parent, bytes } = spill;
        let scratch = Scratch::open(parent, platform, executor).map_err(|e| {
            let message = format!(
                "cannot keep partitions in `{}`: {e}; give --spill a directory that can be written, or --spill-max 0 \
                 to do without",
                parent.display()
            );
            Error::new(Kind::Platform, Code::Storage, message)
        })?;
        if rustix::fs::statfs(scratch.path()).is_ok_and(|found| found.f_type == TMPFS) {
            tracing::warn!(
                folder = %parent.display(),
                "partitions are spilled to a file system in memory, which frees none: give --spill a directory on a disk"
            );
        }
        let disk = Self(Arc::new(Inner {
            folder: scratch.path().to_owned(),
            executor: scratch.executor(),
            scratch: Mutex::new(Some(scratch)),
            budget: Budget::new(*bytes),
            route: Route::default(),
            next: AtomicU64::new(1),
            health: Mutex::default(),
            garbage: Mutex::default(),
            work,
        }));
        let found = disk.find();
        Ok((disk, found))
    }

    /// What is in the folder. What is of no use there is removed.
    fn find(&self) -> Vec<Found> {
        let entries = fs::read_dir(&self.0.folder).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        let found: Vec<Found> = files.filter_map(|number| self.find_one(number)).collect();
        if !found.is_empty() {
            let (partitions, bytes) = (found.len(), self.0.budget.used());
            let executor = self.0.executor;
            tracing::info!(%executor, partitions, bytes, "found what this executor had written before it was killed");
        }
        found
    }

    fn find_one(&self, number: u64) -> Option<Found> {
        self.0.next.fetch_max(number + 1, Relaxed);
        let file = self.file(number);
        let described = label::read(&file).unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "a spilled partition cannot be read");
            None
        });
        let room = described.and_then(|labelled| Some((self.take(labelled.index.bytes())?, labelled)));
        let Some((charge, Labelled { key, index, lazy })) = room else {
            lock(&self.0.garbage).push(file);
            self.0.work.notify_one();
            return None;
        };
        let file = Spilled { key, index, file, disk: self.0.clone(), _charge: charge };
        Some(Found { file: Arc::new(file), lazy })
    }

    fn file(&self, number: u64) -> PathBuf {
        self.0.folder.join(number.to_string())
    }

    /// Whose it is: who asked for it, or whom it was taken over from.
    pub fn executor(&self) -> ExecutorId {
        self.0.executor
    }

    /// Whether it may be written to at `now`.
    pub fn is_open(&self, now: Instant) -> bool {
        lock(&self.0.health).closed_until.is_none_or(|until| until <= now)
    }

    /// Bytes that may still be written.
    pub fn free(&self) -> u64 {
        self.0.budget.total().saturating_sub(self.0.budget.used())
    }

    /// Bytes in files.
    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.0.budget.used()
    }

    /// Room for `bytes`, if there is.
    pub fn take(&self, bytes: u64) -> Option<Charge> {
        self.0.budget.take(bytes)
    }

    /// Notes that its budget is used up.
    pub fn full(&self) {
        let total = self.0.budget.total();
        self.tell(|| {
            tracing::warn!(
                "the {total} bytes for partitions on this executor's disk are used up; more is uploaded to make room. \
                 A larger --spill-max or another executor helps"
            );
        });
    }

    fn tell(&self, what: impl FnOnce()) {
        let now = Instant::now();
        let mut health = lock(&self.0.health);
        if health.told.is_none_or(|at| now.duration_since(at) >= TELL_AGAIN) {
            health.told = Some(now);
            what();
        }
    }

    /// Writes a partition to a file; whether it is `lazy`, still to be uploaded. Where that fails, the disk is left alone for a while.
    ///
    /// # Errors
    /// Of the file system; nothing is left behind.
    pub async fn write(
        &self,
        key: StoredKey,
        data: Arc<Cached>,
        lazy: bool,
        charge: Charge,
    ) -> io::Result<Arc<Spilled>> {
        let disk = self.clone();
        let written = spawn_blocking(move || {
            // The room that was made for this one is only there once the files are gone.
            disk.remove_garbage();
            let file = disk.file(disk.0.next.fetch_add(1, Relaxed));
            let label = label::label(key, &data.index, lazy);
            if let Err(error) = disk.write_new(&file, data.segments.chunks(), &label) {
                let _ = fs::remove_file(&file);
                return Err(error);
            }
            let disk = disk.0.clone();
            Ok(Arc::new(Spilled { key, index: data.index.clone(), file, disk, _charge: charge }))
        });
        let written = written.await.unwrap_or_else(|_| Err(io::Error::other("the process is shutting down")));
        if let Err(error) = &written {
            lock(&self.0.health).closed_until = Some(Instant::now() + CLOSED);
            self.tell(|| {
                tracing::warn!(
                    folder = %self.0.folder.display(), %error,
                    "partitions cannot be written to this executor's disk; they are uploaded to make room, and the disk is \
                     tried again every {} s", CLOSED.as_secs()
                );
            });
        }
        written
    }

    fn write_new(&self, file: &Path, chunks: &[Bytes], label: &[Bytes]) -> io::Result<()> {
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let through = self.0.route.is_through(bytes, self.0.budget.used());
        let create = if through { FileWriter::create_cached } else { FileWriter::create };
        let (mut file, watch) = (create(file, 0o600)?, Watch::start());
        file.write(chunks.iter().chain(label).map(AsRef::as_ref))?;
        file.finish()?;
        if through {
            self.0.route.note(bytes, &watch.stop());
        }
        Ok(())
    }

    /// Removes the files of partitions that are gone.
    pub async fn clean(&self) {
        if lock(&self.0.garbage).is_empty() {
            return;
        }
        let disk = self.clone();
        // It only fails when the process ends, and with it go all files.
        let _ = spawn_blocking(move || disk.remove_garbage()).await;
    }

    fn remove_garbage(&self) {
        let files = std::mem::take(&mut *lock(&self.0.garbage));
        for file in files {
            if let Err(error) = fs::remove_file(&file)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %file.display(), %error, "a spilled partition was not removed");
            }
        }
    }

    /// Removes everything. Reads fail from here on.
    pub async fn close(&self) {
        let scratch = lock(&self.0.scratch).take();
        // As in `clean`.
        let _ = spawn_blocking(move || drop(scratch)).await;
    }
}

/// A partition in a file, which goes with it.
#[derive(Debug)]
pub struct Spilled {
    /// Which.
    pub key: StoredKey,
    /// Its blocks.
    pub index: Index,
    file: PathBuf,
    disk: Arc<Inner>,
    _charge: Charge,
}

impl Spilled {
    /// The bytes of `range`, cut at the end of the data, compared with their checksums.
    ///
    /// # Errors
    /// [`Kind::Lost`] where this copy is no more or is damaged; [`Kind::Platform`] where it cannot be read just now.
    pub async fn read(self: &Arc<Self>, range: Range<u64>) -> Result<Bytes, Error> {
        let end = range.end.min(self.index.bytes());
        let range = range.start.min(end)..end;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let spilled = self.clone();
        let read = spawn_blocking(move || {
            let whole = spilled.index.units_around(range.clone());
            let read = File::open(&spilled.file).and_then(|file| read_large_at(&file, whole.clone()));
            let bytes = read.map_err(|e| spilled.failed(&e))?;
            if bytes.len() as u64 != whole.end - whole.start {
                return Err(spilled.lost(Code::Corrupt, "it was cut"));
            }
            spilled.index.verify(whole.start, &bytes).map_err(|what| spilled.lost(Code::Corrupt, &what))?;
            let from = (range.start - whole.start) as usize;
            Ok(bytes.slice(from..from + (range.end - range.start) as usize))
        });
        read.await
            .unwrap_or_else(|_| Err(Error::internal("a read was stopped: the process is shutting down")))
    }

    /// All of it, in pieces of whole units of about [`PIECE_BYTES`], compared with their checksums.
    pub fn pieces(self: &Arc<Self>) -> impl Stream<Item = Result<Bytes, Error>> + Send + use<> {
        let spilled = self.clone();
        futures::stream::try_unfold(0, move |at| {
            let spilled = spilled.clone();
            async move {
                let end = spilled.index.units_around(at..at + PIECE_BYTES).end;
                let piece = spilled.read(at..end).await?;
                Ok((!piece.is_empty()).then_some((piece, end)))
            }
        })
    }

    fn failed(&self, error: &io::Error) -> Error {
        match error.kind() {
            // What passes: too many open files, no memory.
            io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted => self.later(error),
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => self.later(error),
            _ => self.lost(Code::PartitionLost, &error.to_string()),
        }
    }

    fn lost(&self, code: Code, what: &str) -> Error {
        let (partition, file) = (self.key.partition, self.file.display());
        Error::new(
            Kind::Lost,
            code,
            format!("partition `{partition}` in `{file}` on the executor's disk: {what}"),
        )
    }

    fn later(&self, error: &io::Error) -> Error {
        let message = format!("cannot read `{}`: {error}", self.file.display());
        Error::new(Kind::Platform, Code::Storage, message).retryable(true)
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        lock(&self.disk.garbage).push(std::mem::take(&mut self.file));
        self.disk.work.notify_one();
    }
}

const EMFILE: i32 = Errno::MFILE.raw_os_error();
const ENFILE: i32 = Errno::NFILE.raw_os_error();

#[cfg(test)]
mod tests;
