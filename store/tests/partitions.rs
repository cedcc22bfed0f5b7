//! The contract of partitions' data, over every backend.

mod support;

use bytes::Bytes;
use fanfold_protocol::{Code, Kind, PartitionId, TaskId};
use fanfold_store::{
    Index, Store,
    partitions::{UNIT_BYTES, slice},
    testing::{self, Fault, Operation},
};
use futures::StreamExt as _;
use proptest::{prelude::*, strategy::ValueTree as _};
use support::key;

conformance!(
    what_was_put_can_be_read,
    an_index_of_any_size_is_read,
    damage_is_found_wherever_it_is,
    absence_and_removal
);

/// Data that differs everywhere, so that a wrong offset shows.
fn bytes(length: usize) -> Bytes {
    (0..length).map(|n| ((n * 31) ^ (n >> 8)) as u8).collect::<Vec<_>>().into()
}

fn indexed(blocks: &[Bytes]) -> Index {
    let mut builder = Index::builder();
    for block in blocks {
        builder.push_block(block);
    }
    builder.add_ref(PartitionId { task: TaskId([9; 16]), output: 3 });
    builder.finish()
}

fn mixed() -> Vec<Bytes> {
    let unit = UNIT_BYTES as usize;
    vec![bytes(10), Bytes::new(), bytes(2 * unit + 5), bytes(1), bytes(unit), Bytes::new()]
}

async fn what_was_put_can_be_read(store: Store) {
    let blocks = mixed();
    let (index, data) = (indexed(&blocks), blocks.concat());
    store.partitions().put(key(1), blocks.clone(), &index).await.unwrap();
    let found = store.partitions().index(key(1)).await.unwrap();
    assert_eq!(found, index);
    assert_eq!(found.meta().crc32c, crc32c::crc32c(&data));
    for (block, bytes) in found.blocks().zip(&blocks) {
        let range = block.offset..block.offset + block.length;
        assert_eq!(&store.partitions().read(key(1), &found, range).await.unwrap(), bytes);
    }
    // Ranges, as proptest chooses them; each is one request.
    let length = data.len() as u64;
    let ranges = prop::collection::vec((0..length + 10, 0..length + 10), 40);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for (from, to) in ranges.new_tree(&mut runner).unwrap().current() {
        let gets = store.requests().get;
        let read = store.partitions().read(key(1), &found, from..to).await.unwrap();
        let (from, to) = (from.min(length), to.min(length));
        assert_eq!(read, data[from.min(to) as usize..to as usize], "{from}..{to}");
        assert!(store.requests().get - gets <= 1);
        assert_eq!(slice(&blocks, from.min(to)..to), read);
    }
    // From a stream, the object is the same.
    let stream = |pieces: &[Bytes]| futures::stream::iter(pieces.to_vec()).map(Ok);
    store.partitions().put_stream(key(3), stream(&blocks), &index).await.unwrap();
    assert_eq!(store.partitions().index(key(3)).await.unwrap(), index);
    assert_eq!(store.partitions().read(key(3), &index, 0..length).await.unwrap(), data);
    let cut = store.partitions().put_stream(key(4), stream(&blocks[1..]), &index).await;
    assert_eq!(cut.unwrap_err().code, Code::Internal);
    assert_eq!(store.partitions().index(key(4)).await.unwrap_err().kind, Kind::NotFound);
    let other = Index::of(b"other");
    assert_eq!(store.partitions().put(key(2), blocks, &other).await.unwrap_err().code, Code::Internal);
}

async fn an_index_of_any_size_is_read(store: Store) {
    for (number, blocks) in [0, 1, 1000, 20_000].into_iter().enumerate() {
        let blocks: Vec<Bytes> = (0..blocks).map(|n| bytes(n % 3)).collect();
        let index = indexed(&blocks);
        let key = key(number as u32);
        store.partitions().put(key, Bytes::from(blocks.concat()), &index).await.unwrap();
        let gets = store.requests().get;
        assert_eq!(store.partitions().index(key).await.unwrap(), index);
        assert_eq!(
            store.requests().get - gets,
            1 + u64::from(blocks.len() > 1000),
            "{} blocks",
            blocks.len()
        );
    }
}

async fn damage_is_found_wherever_it_is(store: Store) {
    let blocks = mixed();
    let (index, data) = (indexed(&blocks), blocks.concat());
    let everything = async |store: &Store| {
        let index = store.partitions().index(key(1)).await?;
        store.partitions().read(key(1), &index, 0..index.bytes()).await
    };
    store.partitions().put(key(1), blocks, &index).await.unwrap();
    let path = testing::paths(&store, "job").await.pop().unwrap();
    let whole = testing::read_raw(&store, &path).await.unwrap().unwrap();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let places = prop::collection::vec((0..whole.len(), 0u8..8), 60);
    for (at, bit) in places.new_tree(&mut runner).unwrap().current() {
        let mut flipped = whole.to_vec();
        flipped[at] ^= 1 << bit;
        testing::write_raw(&store, &path, flipped.into()).await.unwrap();
        let refused = everything(&store).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (Kind::Lost, Code::Corrupt), "byte {at}");
        assert!(refused.to_string().contains(&path), "{refused}");
        if at < data.len() {
            // One byte of it is enough to notice, whatever the size of its block.
            let at = at as u64;
            assert!(store.partitions().read(key(1), &index, at..at + 1).await.is_err(), "byte {at}");
        }
    }
    for length in [0, 1, 43, whole.len() / 2, whole.len() - 1] {
        testing::write_raw(&store, &path, whole.slice(..length)).await.unwrap();
        assert_eq!(everything(&store).await.unwrap_err().code, Code::Corrupt, "cut to {length}");
    }
    testing::write_raw(&store, &path, whole).await.unwrap();
    assert_eq!(everything(&store).await.unwrap(), data);
}

async fn absence_and_removal(store: Store) {
    let missing = store.partitions().index(key(1)).await.unwrap_err();
    assert_eq!((missing.kind, missing.code), (Kind::NotFound, Code::Partition));
    for n in 1..4 {
        store.partitions().put(key(n), bytes(10), &Index::of(&bytes(10))).await.unwrap();
    }
    store.partitions().delete(&[key(1), key(9), key(2)]).await.unwrap();
    assert!(store.partitions().index(key(1)).await.is_err());
    assert!(store.partitions().index(key(2)).await.is_err());
    let left = store.partitions().index(key(3)).await.unwrap();
    store.remove_job(key(3).job).await.unwrap();
    let gone = store.partitions().read(key(3), &left, 0..1).await.unwrap_err();
    assert_eq!(gone.code, Code::Partition);
    assert_eq!(testing::paths(&store, "job").await, Vec::<String>::new());
    store.remove_job(key(3).job).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_early_is_no_data() {
    let (store, faults) = testing::faulty_memory();
    let index = Index::of(&bytes(1000));
    store.partitions().put(key(1), bytes(1000), &index).await.unwrap();
    for fault in
        [Fault::CutShort(400), Fault::Broken(400), Fault::Broken(0), Fault::Refused, Fault::Unavailable]
    {
        faults.always(Operation::Get, "job", fault);
        assert!(store.partitions().read(key(1), &index, 0..1000).await.is_err(), "{fault:?}");
        faults.clear();
        assert_eq!(store.partitions().read(key(1), &index, 0..1000).await.unwrap(), bytes(1000));
    }
    faults.once(Operation::Get, "job", Fault::Slow(std::time::Duration::from_secs(5)));
    let started = tokio::time::Instant::now();
    assert_eq!(store.partitions().read(key(1), &index, 0..1000).await.unwrap(), bytes(1000));
    assert_eq!(started.elapsed().as_secs(), 5);
}
