//! The cache over real stores.

use std::{fs, path::Path};

use fanfold_protocol::{ExecutorId, JobId, PartitionId, TaskId, message::FromExecutor};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;

pub(super) const MIB: u64 = 1 << 20;

fn key(output: u32) -> StoredKey {
    let partition = PartitionId { task: TaskId([9; 16]), output };
    StoredKey { job: JobId(uuid::Uuid::nil()), partition, epoch: 1, attempt: 1 }
}

/// Writes a partition of `bytes` bytes, all equal to its output's number.
pub(super) async fn write(cache: &Cache, output: u32, bytes: u64, durability: Durability) -> Stored {
    let charge = cache.charge(bytes).await.unwrap();
    let data = Bytes::from(vec![output as u8; bytes as usize]);
    let index = Index::of(&data);
    let meta = index.meta();
    cache.insert(key(output), data.into(), index, charge, durability);
    Stored { key: key(output), meta, at: Some(ExecutorId(1)), durable: false, refs: Vec::new() }
}

pub(super) async fn read(cache: &Cache, stored: &Stored) -> Result<Bytes, Error> {
    cache.read(&cache.open(stored, limit::LOAD_WHOLE_BYTES_MAX).await?, 0..10).await
}

/// A cache whose background work runs until the tracker's token is cancelled.
fn running(
    store: Store,
    memory: u64,
) -> (Cache, mpsc::Receiver<FromExecutor>, CancellationToken, TaskTracker) {
    start(Cache::new(store, ExecutorId(1), memory))
}

fn start(cache: Cache) -> (Cache, mpsc::Receiver<FromExecutor>, CancellationToken, TaskTracker) {
    let (tx, rx) = mpsc::channel(100);
    let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    tracker.spawn(cache.clone().run(move |_| Some(tx.clone()), stop.clone()));
    tracker.close();
    (cache, rx, stop, tracker)
}

#[tokio::test]
async fn memory_stays_within_its_budget_and_nothing_is_lost() {
    let (cache, mut events, stop, tracker) = running(Store::in_memory(), 4 * MIB);
    let mut all = Vec::new();
    for output in 0..10 {
        // Whatever its durability: that one is never *kept* in the store does not mean that it may be lost.
        let durability = if output % 2 == 0 { Durability::Lazy } else { Durability::None };
        all.push(write(&cache, output, MIB, durability).await);
        assert!(cache.0.budget.used() <= 4 * MIB);
    }
    for (output, stored) in all.iter().enumerate() {
        assert_eq!(read(&cache, stored).await.unwrap(), [output as u8; 10].as_slice());
        assert!(cache.0.budget.used() <= 4 * MIB);
    }
    // What an upload took is told before that it is there.
    let Some(FromExecutor::Spent { spent, .. }) = events.recv().await else { panic!("nothing was spent") };
    assert!(spent.requests.put == 1 && spent.requests.bytes_out > MIB, "{spent:?}");
    assert!(matches!(events.recv().await, Some(FromExecutor::Durable(_))));
    stop.cancel();
    tracker.wait().await;
}

#[tokio::test]
async fn freed_partitions_leave_no_object_and_readers_read_on() {
    let store = Store::in_memory();
    let (cache, _events, stop, tracker) = running(store.clone(), 64 * MIB);
    let stored = write(&cache, 1, MIB, Durability::Eager).await;
    cache.persist(vec![stored.key]).await.unwrap();
    assert!(cache.is_durable(stored.key));
    let Partition::Memory(reader) = cache.open(&stored, limit::LOAD_WHOLE_BYTES_MAX).await.unwrap() else {
        panic!("not in memory")
    };
    let temporary = write(&cache, 2, MIB, Durability::Lazy).await;
    cache.free(&[stored.key, temporary.key]);
    assert_eq!(reader.segments.slice(0..3), [1; 3].as_slice());
    stop.cancel();
    tracker.wait().await;
    for stored in [stored, temporary] {
        let error = store.partitions().index(stored.key).await.unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
        assert_eq!(cache.open(&stored, limit::LOAD_WHOLE_BYTES_MAX).await.unwrap_err().kind, Kind::Lost);
    }
}

#[tokio::test]
async fn a_damaged_object_is_lost_and_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_dir(dir.path()).await.unwrap();
    // Short ones are read whole when they are opened, long ones piece by piece.
    for (output, bytes) in [(1, MIB), (2, 2 * limit::LOAD_WHOLE_BYTES_MAX)] {
        let writer = Cache::new(store.clone(), ExecutorId(1), 64 * MIB);
        let stored = write(&writer, output, bytes, Durability::Eager).await;
        writer.persist(vec![stored.key]).await.unwrap();
        let reader = Cache::new(store.clone(), ExecutorId(1), 64 * MIB);
        assert_eq!(read(&reader, &stored).await.unwrap(), [output as u8; 10].as_slice());
        flip_first_byte(dir.path(), bytes);
        let error = read(&Cache::new(store.clone(), ExecutorId(1), 64 * MIB), &stored).await.unwrap_err();
        assert_eq!((error.kind, error.code), (Kind::Lost, Code::Corrupt));
    }
}

#[tokio::test]
async fn what_is_elsewhere_is_asked_once_for_its_blocks_and_again_when_it_cannot_be_read() {
    let store = Store::in_memory();
    let writer = Cache::new(store.clone(), ExecutorId(1), 64 * MIB);
    let stored = write(&writer, 1, 2 * limit::LOAD_WHOLE_BYTES_MAX, Durability::Eager).await;
    writer.persist(vec![stored.key]).await.unwrap();
    let reader = Cache::new(store.clone(), ExecutorId(2), 64 * MIB);
    let mut gets = Vec::new();
    for _ in 0..3 {
        let before = store.requests().get;
        assert_eq!(read(&reader, &stored).await.unwrap(), [1; 10].as_slice());
        gets.push(store.requests().get - before);
    }
    assert_eq!(gets, [2, 1, 1], "the index and the data, then the data");
    let other = Stored { meta: Index::of(b"other").meta(), ..stored.clone() };
    assert_eq!(reader.open(&other, 0).await.unwrap_err().code, Code::Corrupt, "it is compared each time");
    store.partitions().delete(&[stored.key]).await.unwrap();
    let known = reader.open(&stored, 0).await.expect("nobody has noticed");
    assert_eq!(reader.read(&known, 0..10).await.unwrap_err().kind, Kind::Lost);
    assert_eq!(reader.open(&stored, 0).await.unwrap_err().kind, Kind::Lost);
}

/// Damages every file of about `bytes` bytes below `folder`.
pub(super) fn flip_first_byte(folder: &Path, bytes: u64) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        if metadata.is_dir() {
            flip_first_byte(&path, bytes);
        } else if (bytes..bytes + MIB).contains(&metadata.len()) {
            let mut data = fs::read(&path).unwrap();
            data[0] ^= 1;
            fs::write(&path, data).unwrap();
        }
    }
}

#[tokio::test]
async fn who_overdraws_does_not_wait_for_itself() {
    let cache = Cache::new(Store::in_memory(), ExecutorId(1), MIB);
    let held = cache.charge(MIB).await.unwrap();
    // Nothing can be evicted or uploaded: all of it is being written.
    let more = cache.charge(MIB).await.unwrap();
    assert_eq!(cache.0.budget.used(), 2 * MIB);
    drop((held, more));
    assert_eq!(cache.0.budget.used(), 0);
}
