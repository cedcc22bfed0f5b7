//! The tier as a state machine: what is evicted, spilled, uploaded, and in which order.

use bytes::Bytes;
use fanfold_protocol::{ExecutorId, JobId, PartitionId, TaskId};
use tokio::sync::Notify;

use super::*;
use crate::{
    Spill,
    cache::{budget::Budget, disk::Disk},
};

fn key(n: u32) -> StoredKey {
    let partition = PartitionId { task: TaskId([0; 16]), output: n };
    StoredKey { job: JobId(uuid::Uuid::nil()), partition, epoch: 1, attempt: 1 }
}

fn cached(budget: &Arc<Budget>, bytes: usize) -> Arc<Cached> {
    let data = Bytes::from(vec![7; bytes]);
    let index = Index::of(&data);
    Arc::new(Cached::new(data.into(), index, budget.take(bytes as u64).unwrap()))
}

fn bytes_here(here: Option<Here>) -> u64 {
    let Some(Here::Memory(cached)) = here else { panic!("not in memory") };
    cached.segments.bytes()
}

#[test]
fn only_stored_and_unread_partitions_are_evicted_oldest_first() {
    let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
    tier.insert(key(0), cached(&budget, 10), Durability::Lazy, now);
    for n in 1..5 {
        tier.insert_stored(key(n), cached(&budget, 10));
    }
    let reading = tier.get(key(2)).unwrap();
    drop(tier.get(key(1)));
    assert_eq!(tier.evict(15), 20, "3 and 4 go");
    assert!(tier.get(key(3)).is_none() && tier.get(key(4)).is_none());
    assert_eq!(tier.evict(100), 10, "then 1; 2 is read and 0 is only here");
    assert_eq!(budget.used(), 20);
    tier.remove(key(2));
    assert_eq!(budget.used(), 20, "a reader keeps a freed partition");
    assert_eq!(bytes_here(Some(reading)), 10);
    assert_eq!(budget.used(), 10);
}

#[test]
fn uploads_come_when_due_or_when_memory_is_short() {
    let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
    tier.insert(key(0), cached(&budget, 10), Durability::None, now);
    tier.insert(key(1), cached(&budget, 10), Durability::Lazy, now);
    tier.insert(key(2), cached(&budget, 10), Durability::Lazy, now);
    assert!(tier.next_due(now).is_none());
    let due = tier.next_due_at().unwrap();
    assert_eq!(tier.remove(key(1)), Left::Nothing, "freed before its upload: nothing was written");
    assert_eq!(tier.next_due(due), Some(key(2)));
    drop(tier.begin_upload(key(2)).unwrap());
    assert!(tier.next_due(due).is_none() && tier.is_moving(), "each is uploaded once");
    assert_eq!(tier.oldest_uploadable(now), Some(key(0)));
    drop(tier.begin_upload(key(0)));
    assert_eq!(tier.remove(key(0)), Left::Upload);
    assert!(!tier.uploaded(key(0), now, true), "freed while it was uploaded: its object has to go");
    assert!(tier.uploaded(key(2), now, true) && tier.stored(key(2)) && !tier.is_moving());
}

#[test]
fn a_failed_upload_is_tried_again_later() {
    let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
    tier.insert(key(0), cached(&budget, 10), Durability::None, now);
    drop(tier.begin_upload(key(0)).unwrap());
    assert!(tier.uploaded(key(0), now, false));
    assert!(!tier.is_moving() && tier.oldest_uploadable(now).is_none());
    let later = now + RETRY_DELAY;
    assert!(tier.oldest_uploadable(later).is_some() && tier.next_due(later).is_some());
}

#[tokio::test]
async fn what_goes_to_disk_leaves_memory_and_may_be_evicted_there_once_stored() {
    let (budget, mut tier, now) = (Budget::new(100), Tier::default(), Instant::now());
    let dir = tempfile::tempdir().unwrap();
    let spill = Spill { dir: dir.path().to_owned(), bytes: 100 };
    let (disk, _) = Disk::open(&spill, "", ExecutorId(1), Arc::new(Notify::new())).unwrap();
    for n in 0..3 {
        tier.insert(key(n), cached(&budget, 10), Durability::None, now);
    }
    let reading = tier.get(key(0));
    let (oldest, data) = tier.oldest_spillable().unwrap();
    assert_eq!(oldest, key(1), "0 is read: writing it to a file would free nothing");
    tier.begin_spill(oldest);
    assert!(tier.is_moving() && tier.oldest_spillable().unwrap().0 == key(2));
    let file = disk.write(oldest, data.clone(), false, disk.take(10).unwrap()).await.unwrap();
    tier.spilled(oldest, &data, Some(file));
    drop((reading, data));
    assert_eq!((budget.used(), disk.used()), (20, 10));
    assert!(matches!(tier.get(oldest), Some(Here::Disk(_))));
    assert_eq!(tier.spare(1), None, "nobody else has it");
    drop(tier.begin_upload(oldest));
    tier.uploaded(oldest, now, true);
    assert_eq!(tier.spare(10), Some(vec![oldest]));
    assert_eq!(tier.spare(11), None);
    assert_eq!(tier.remove(oldest), Left::Object);
    assert_eq!(disk.used(), 0);
}
