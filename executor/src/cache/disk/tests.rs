//! The disk tier over real files.

use std::path::Path;

use fanfold_protocol::{call::Durability, limit, value::Stored};
use fanfold_store::Store;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    Config, Spill,
    cache::{
        Cache, Partition,
        tests::{MIB, flip_first_byte, read, write},
    },
};

/// A cache of 4 MiB with a disk, at work until it is dropped.
struct Bed {
    cache: Cache,
    store: Store,
    dir: tempfile::TempDir,
    stop: CancellationToken,
    tracker: TaskTracker,
}

/// Of an executor of 4 MiB.
fn config(dir: &Path, bytes: u64, executor: u64) -> Config {
    let spill = Some(Spill { dir: dir.to_owned(), bytes });
    Config { executor: ExecutorId(executor), cache_memory: 4 * MIB, spill, ..Config::default() }
}

impl Bed {
    fn start(spill_bytes: u64) -> Self {
        Self::below(tempfile::tempdir().unwrap(), spill_bytes)
    }

    fn below(dir: tempfile::TempDir, bytes: u64) -> Self {
        let store = Store::in_memory();
        let cache = Cache::from_config(&config(dir.path(), bytes, 1), "ours", store.clone()).unwrap();
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        tracker.spawn(cache.clone().run(|_| None, stop.clone()));
        tracker.close();
        Self { cache, store, dir, stop, tracker }
    }

    /// Writes partitions of 1 MiB that are never uploaded unless they must be; memory stays within its budget.
    async fn write(&self, outputs: Range<u32>) -> Vec<Stored> {
        let mut all = Vec::new();
        for output in outputs {
            all.push(write(&self.cache, output, MIB, Durability::None).await);
            assert!(self.cache.0.budget.used() <= 4 * MIB);
        }
        all
    }

    async fn check(&self, all: &[Stored]) {
        for stored in all {
            let number = stored.key.partition.output as u8;
            assert_eq!(read(&self.cache, stored).await.unwrap(), [number; 10].as_slice());
        }
        assert!(self.cache.0.budget.used() <= 4 * MIB);
    }

    fn disk(&self) -> &Disk {
        self.cache.0.disk.as_ref().unwrap()
    }

    fn files(&self) -> usize {
        let names = fs::read_dir(&self.disk().0.folder).into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name() != "label").count()
    }

    /// Ends the background work, which removes what is freed.
    async fn settle(&self) {
        self.stop.cancel();
        self.tracker.wait().await;
    }
}

#[tokio::test]
async fn more_than_memory_is_written_to_files_and_read_back_and_freed() {
    let bed = Bed::start(100 * MIB);
    let all = bed.write(1..21).await;
    bed.check(&all).await;
    assert_eq!(bed.store.requests().put, 0, "nothing is uploaded while the disk takes it");
    assert!(bed.files() >= 16, "{} files", bed.files());
    // The last file may not be there yet; its room is.
    while bed.disk().used() != bed.files() as u64 * MIB {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // What was freed can still be read by who has it open; then its file goes, too.
    let reading = bed.cache.open(&all[0], limit::LOAD_WHOLE_BYTES_MAX).await.unwrap();
    assert!(matches!(reading, Partition::Disk(_)));
    bed.cache.free(&all.iter().map(|stored| stored.key).collect::<Vec<_>>());
    assert_eq!(bed.cache.read(&reading, MIB - 10..MIB + 10).await.unwrap(), [1; 10].as_slice());
    drop(reading);
    bed.settle().await;
    assert_eq!((bed.files(), bed.disk().used(), bed.cache.0.budget.used()), (0, 0, 0));
    bed.cache.close().await;
    assert_eq!(fs::read_dir(bed.dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_an_executor_that_was_killed_had_on_disk_is_found_by_its_next_process() {
    let bed = Bed::start(100 * MIB);
    let lazy = write(&bed.cache, 20, MIB, Durability::Lazy).await;
    let all = bed.write(0..12).await;
    bed.settle().await;
    // A copy of the folder is what it would leave if it was killed now, and something half-written.
    let left = bed.dir.path().join("fanfold-spill-left");
    fs::create_dir(&left).unwrap();
    for file in fs::read_dir(&bed.disk().0.folder).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), left.join(file.file_name())).unwrap();
    }
    fs::write(left.join("99"), [7; 1000]).unwrap();
    let on_disk = bed.files();
    assert!(on_disk >= 8, "{on_disk} files");

    let next = config(bed.dir.path(), 100 * MIB, 2);
    let cache = Cache::from_config(&next, "ours", bed.store.clone()).unwrap();
    assert_eq!(cache.peers().here(), ExecutorId(1), "it has the id that others know");
    let held = cache.held(|_| true);
    assert_eq!(held.len(), on_disk);
    assert!(held.iter().any(|held| held.key == lazy.key && !held.durable));
    for stored in all.iter().filter(|stored| held.iter().any(|held| held.key == stored.key)) {
        let number = stored.key.partition.output as u8;
        assert_eq!(read(&cache, stored).await.unwrap(), [number; 10].as_slice());
    }
    assert_eq!(cache.0.disk.as_ref().unwrap().used(), on_disk as u64 * MIB);

    // What was to be uploaded is.
    let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    tracker.spawn(cache.clone().run(|_| None, stop.clone()));
    tracker.close();
    while !cache.is_durable(lazy.key) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!left.join("99").exists());
    let puts = bed.store.requests().put;
    assert_eq!(puts, 1, "and nothing else");
    stop.cancel();
    tracker.wait().await;
    cache.close().await;
    assert!(!left.exists());
}

#[tokio::test]
async fn a_disk_whose_budget_is_used_up_is_no_loss() {
    let bed = Bed::start(3 * MIB);
    let all = bed.write(0..16).await;
    assert_eq!((bed.disk().used(), bed.files()), (3 * MIB, 3));
    assert!(bed.store.requests().put >= 8, "the rest is uploaded");
    bed.check(&all).await;
    // What the store has, too, makes way on the disk.
    bed.cache.upload_all().await.unwrap();
    let puts = bed.store.requests().put;
    let more = bed.write(16..20).await;
    assert!(bed.disk().used() <= 3 * MIB && bed.store.requests().put - puts <= 1);
    bed.check(&all).await;
    bed.check(&more).await;
}

#[tokio::test]
async fn a_disk_that_fails_is_no_loss() {
    let bed = Bed::start(100 * MIB);
    let before = bed.write(0..3).await;
    fs::remove_dir_all(&bed.disk().0.folder).unwrap();
    let after = bed.write(3..12).await;
    assert!(!bed.disk().is_open(Instant::now()) && bed.store.requests().put >= 5);
    bed.check(&before).await;
    bed.check(&after).await;
    assert_eq!(bed.disk().used(), 0);
}

/// A file system of 2 MiB; `None` where this user may not mount one.
fn small_file_system(folder: &Path) -> Option<Mounted<'_>> {
    let mount = ["-t", "tmpfs", "-o", "size=2m", "fanfold-test"];
    let mounted = std::process::Command::new("mount").args(mount).arg(folder).output();
    mounted.is_ok_and(|done| done.status.success()).then_some(Mounted(folder))
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test]
async fn a_disk_without_space_is_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_owned();
    let Some(_mounted) = small_file_system(&folder) else {
        println!("skipped: this user may not mount a small file system");
        return;
    };
    let bed = Bed::below(dir, 100 * MIB);
    let all = bed.write(0..12).await;
    assert!(!bed.disk().is_open(Instant::now()) && bed.store.requests().put >= 5);
    assert!(bed.files() <= 2, "what was half written is removed");
    bed.check(&all).await;
}

#[tokio::test]
async fn a_damaged_file_is_never_read() {
    let bed = Bed::start(100 * MIB);
    let all = bed.write(0..12).await;
    // The oldest are on disk. One of them gets a second copy.
    let (lost, kept) = (&all[0], &all[1]);
    bed.cache.persist(vec![kept.key]).await.unwrap();
    flip_first_byte(bed.dir.path(), MIB);
    assert_eq!(read(&bed.cache, kept).await.unwrap(), [1; 10].as_slice(), "from the store");
    let error = read(&bed.cache, lost).await.unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Lost, Code::Corrupt));
    assert!(!bed.cache.is_durable(lost.key), "nobody may take it for stored");
    assert!(bed.cache.held(|key| key == lost.key).is_empty());
    assert_eq!(read(&bed.cache, lost).await.unwrap_err().kind, Kind::Lost);
    // One that shall be uploaded says so, and is not tried for ever.
    let error = bed.cache.persist(vec![all[2].key]).await.unwrap_err();
    assert_eq!(error.kind, Kind::Platform, "{error}");
    assert!(bed.cache.held(|key| key == all[2].key).is_empty());
}
