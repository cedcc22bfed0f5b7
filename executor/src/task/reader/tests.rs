//! Readers over objects and stored partitions, in and out of order.

use fanfold_protocol::{ExecutorId, Kind, limit::HOST_CALL_BYTES_MAX};
use fanfold_store::Store;
use tokio_util::task::TaskTracker;

use super::*;
use crate::cache::Cache;

const MIB: u64 = 1 << 20;

fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|n| (n / 3 % 253) as u8).collect()
}

/// Of a task that has fetched nothing.
fn fetched() -> Fetched {
    Fetched::new(Fetched::of_all(u64::MAX))
}

async fn environment(object: &[u8]) -> (Arc<Environment>, Reader) {
    let store = Store::in_memory();
    let body = futures::stream::iter([Ok(Bytes::copy_from_slice(object))]);
    let etag = store.objects().put("data", body).await.unwrap().etag;
    // Memory for nothing: every read goes to the store.
    let cache = Cache::new(store.clone(), ExecutorId(1), 0);
    let env = Environment {
        executor: ExecutorId(1),
        cache,
        store,
        reads: TaskTracker::new(),
        fetched: Fetched::of_all(u64::MAX),
        gpu: None,
    };
    (Arc::new(env), Reader::object("data", &etag, 0, object.len() as u64))
}

#[tokio::test]
async fn reads_in_any_order_equal_the_object() {
    let data = pattern(4 * MIB + 4321);
    let (env, mut reader) = environment(&data).await;
    let ahead = fetched();
    let mut offset = 0;
    // In order, in steps that cross every window, then here and there.
    for length in [1, 4096, 700_000, 1_000_000].into_iter().cycle() {
        let bytes = reader.read(&env, &ahead, offset, length).await.unwrap();
        let end = data.len().min(offset as usize + length as usize);
        assert_eq!(bytes, data[offset as usize..end], "{length} bytes at {offset}");
        offset = end as u64;
        if end == data.len() {
            break;
        }
    }
    for (offset, length) in
        [(3 * MIB, 10), (5, 2), (4 * MIB, 1 << 20), (MIB - 1, 2), (0, 1 << 20), (u64::MAX, 1)]
    {
        let bytes = reader.read(&env, &ahead, offset, length).await.unwrap();
        let start = data.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        assert_eq!(bytes, data[start..data.len().min(start + length as usize)], "{length} bytes at {offset}");
    }
    drop(reader);
    assert_eq!(ahead.bytes(), 0);
}

#[tokio::test]
async fn a_task_reads_ahead_in_so_many_places_and_no_more() {
    let data = pattern(2 * MIB);
    let (env, first) = environment(&data).await;
    let Content::Object { key, etag, .. } = &first.content else { panic!("not an object") };
    let ahead = fetched();
    let mut readers = Vec::new();
    for _ in 0..2 * limit::READ_AHEAD_BYTES_MAX / HOST_CALL_BYTES_MAX {
        let mut reader = Reader::object(key, etag, 0, data.len() as u64);
        reader.read(&env, &ahead, 0, 100).await.unwrap();
        readers.push(reader);
    }
    assert_eq!(ahead.bytes(), limit::READ_AHEAD_BYTES_MAX as u64);
    // Each has its window and what comes after it; the others have a small window that is not counted.
    assert_eq!(readers.iter().filter(|reader| !reader.ahead.is_empty()).count(), readers.len() / 4);
    assert_eq!(readers.last().unwrap().window.1.len() as u64, SMALL_WINDOW);
    drop(readers);
    assert_eq!(ahead.bytes(), 0);
}

#[tokio::test]
async fn readers_that_were_opened_together_share_what_there_is() {
    let data = pattern(2 * MIB);
    let (env, first) = environment(&data).await;
    let Content::Object { key, etag, .. } = &first.content else { panic!("not an object") };
    let ahead = fetched();
    let mut readers: Vec<_> = (0..100).map(|_| Reader::object(key, etag, 0, data.len() as u64)).collect();
    readers.iter_mut().for_each(|reader| reader.read_ahead(&env, &ahead));
    for reader in &mut readers {
        reader.read(&env, &ahead, 0, 100).await.unwrap();
    }
    let (room, share) = (limit::READ_AHEAD_BYTES_MAX as u64, ahead.share() / 2);
    assert!(ahead.bytes() <= room, "{} bytes", ahead.bytes());
    assert_eq!(share, room / 200);
    assert!(readers.iter().all(|reader| reader.ahead[0].room.bytes() == share), "each has one on its way");
    // What was opened before anybody knew how many there would be has a longer window.
    let window = |reader: &Reader| reader.window.1.len() as u64;
    assert_eq!((window(&readers[0]), window(&readers[99])), (MIB, SMALL_WINDOW));
}

#[tokio::test]
async fn a_server_is_asked_for_more_at_a_time_as_the_guest_reads_on() {
    let data = pattern(100 * MIB + 5);
    let store = fanfold_store::testing::shared_memory();
    let body = futures::stream::iter([Ok(Bytes::from(data.clone()))]);
    let etag = store.objects().put("data", body).await.unwrap().etag;
    let cache = Cache::new(store.clone(), ExecutorId(1), 0);
    let env = Arc::new(Environment {
        executor: ExecutorId(1),
        cache,
        store: store.clone(),
        reads: TaskTracker::new(),
        fetched: Fetched::of_all(u64::MAX),
        gpu: None,
    });
    let (mut reader, ahead) = (Reader::object("data", &etag, 0, data.len() as u64), fetched());
    let before = store.requests().get;
    for offset in (0..data.len()).step_by(1 << 20) {
        let bytes = reader.read(&env, &ahead, offset as u64, 1 << 20).await.unwrap();
        assert_eq!(bytes, data[offset..data.len().min(offset + (1 << 20))]);
    }
    let gets = store.requests().get - before;
    assert!((13..=16).contains(&gets), "{gets} requests for 100 MiB");
    // One block of a shuffle, of a value that ends with it.
    let mut block = Reader::object("data", &etag, 7, 2 * MIB);
    for offset in [0, MIB] {
        block.read(&env, &ahead, offset, 1 << 20).await.unwrap();
    }
    assert_eq!(store.requests().get - before - gets, 1);
}

#[tokio::test]
async fn the_further_a_guest_reads_the_more_is_on_its_way() {
    let data = pattern(64 * MIB);
    let (env, mut reader) = environment(&data).await;
    let ahead = fetched();
    // As when a partition is opened.
    reader.read_ahead(&env, &ahead);
    assert_eq!((reader.ahead.len(), reader.ahead[0].range.clone()), (1, 0..MIB));
    let mut most = Vec::new();
    for offset in (0..data.len()).step_by(1 << 20) {
        let bytes = reader.read(&env, &ahead, offset as u64, 1 << 20).await.unwrap();
        assert_eq!(bytes, data[offset..offset + (1 << 20)]);
        let places = std::iter::once(reader.window.0 + reader.window.1.len() as u64)
            .chain(reader.ahead.iter().map(|ahead| ahead.range.end));
        assert!(reader.ahead.iter().map(|ahead| ahead.range.start).eq(places.take(reader.ahead.len())));
        most.push(reader.ahead.len());
    }
    assert_eq!((most[0], most.iter().max(), most.last()), (1, Some(&AHEAD_MAX), Some(&0)), "{most:?}");
    // Elsewhere: what was on its way is not wanted.
    reader.read(&env, &ahead, 0, 1 << 20).await.unwrap();
    reader.read(&env, &ahead, MIB, 1 << 20).await.unwrap();
    assert!(!reader.ahead.is_empty());
    assert_eq!(reader.read(&env, &ahead, 50 * MIB, 5).await.unwrap(), data[50 << 20..(50 << 20) + 5]);
    assert!(reader.ahead.is_empty());
    reader.read(&env, &ahead, 50 * MIB + 5, 5).await.unwrap();
    assert_eq!(reader.ahead.len(), 1, "nobody knows yet whether it reads on");
    drop(reader);
    assert_eq!(ahead.bytes(), 0);
}

#[tokio::test]
async fn an_object_that_was_replaced_is_not_read() {
    let data = pattern(3 * MIB);
    let (env, mut reader) = environment(&data).await;
    let body = futures::stream::iter([Ok(Bytes::from_static(b"another"))]);
    env.store.objects().put("data", body).await.unwrap();
    let error = reader.read(&env, &fetched(), 0, 10).await.unwrap_err();
    assert_eq!(error.kind, Kind::Conflict);
}
