//! One executor reads what another has, wherever it has it.

use bytes::Bytes;
use fanfold_protocol::{
    Code, JobId, Kind, PartitionId, TaskId,
    call::Durability,
    limit,
    message::ToExecutor,
    value::{Stored, StoredKey},
};
use fanfold_store::{Index, Store};

use super::{serve::Server, *};
use crate::{Config, Executor, Spill, cache::Partition};

const MIB: u64 = 1 << 20;

fn pattern(number: u32) -> Bytes {
    (0..3 * MIB as u32 + 5).map(|n| (n / 7 + number) as u8).collect::<Vec<_>>().into()
}

/// Makes a partition of some blocks.
async fn make(executor: &Executor, output: u32) -> Stored {
    let data = pattern(output);
    let mut index = Index::builder();
    data.chunks(20_000).for_each(|block| {
        index.push_block(block);
    });
    let index = index.finish();
    let partition = PartitionId { task: TaskId([3; 16]), output };
    let key = StoredKey { job: JobId(uuid::Uuid::nil()), partition, epoch: 1, attempt: 1 };
    let meta = index.meta();
    let charge = executor.cache().charge(meta.bytes).await.unwrap();
    executor.cache().insert(key, data.into(), index, charge, Durability::None);
    Stored { key, meta, at: Some(ExecutorId(1)), durable: false, refs: Vec::new() }
}

#[tokio::test]
async fn a_peer_serves_from_memory_and_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let spill = Some(Spill { dir: dir.path().to_owned(), bytes: 1 << 30 });
    let config = Config { cache_memory: 4 * MIB, spill, ..Config::default() };
    let executor = Executor::start(config, Store::in_memory()).await.unwrap();
    let server = Server::start(([127, 0, 0, 1], 0).into(), executor.clone()).await.unwrap();
    let peer: Arc<str> = server.address().to_string().into();
    // Memory holds one of them.
    let made = [make(&executor, 1).await, make(&executor, 2).await];
    let fetch = Fetch::new(Security::default());
    for (number, stored) in [1, 2].into_iter().zip(&made) {
        let (data, bytes) = (pattern(number), stored.meta.bytes);
        let whole = fetch.open(&peer, stored, bytes).await.unwrap();
        assert!(whole.bytes == data, "all of {number}");
        let index = fetch.open(&peer, stored, 0).await.unwrap().index;
        for (from, to) in [(0, 1), (MIB - 7, MIB + 9), (10, 2 * MIB + 1), (bytes - 1, bytes)] {
            let read = fetch.read(&peer, stored.key, &index, from..to).await.unwrap();
            assert!(read == data[from as usize..to as usize], "{from}..{to} of {number}");
        }
    }
    // Many at once, most of which go together: each has its own bytes, wherever it is, and one that is gone is missed alone.
    let mut indexes = Vec::new();
    for stored in &made {
        indexes.push(fetch.open(&peer, stored, 0).await.unwrap().index);
    }
    executor.cache().free(&[made[0].key]);
    let reads = (0..300).map(|n: u64| {
        let (which, from) = (usize::from(n.is_multiple_of(3)), n * 10_000);
        let (fetch, peer, stored, index) = (&fetch, &peer, &made[which], &indexes[which]);
        async move { (which, from, fetch.read(peer, stored.key, index, from..from + 900).await) }
    });
    for (which, from, read) in futures::future::join_all(reads).await {
        let from = from as usize;
        match which {
            0 => assert_eq!(read.unwrap_err().code, Code::PartitionLost),
            _ => assert!(read.unwrap() == pattern(2)[from..from + 900], "from {from}"),
        }
    }
    let gone = fetch.open(&peer, &made[0], 10).await.unwrap_err();
    assert_eq!((gone.kind, gone.code), (Kind::Lost, Code::PartitionLost));
    server.stop().await;
    executor.stop().await;
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing of it remains");
}

#[tokio::test]
async fn what_is_fetched_ahead_is_there_when_its_task_starts() {
    let store = Store::in_memory();
    let maker = Executor::start(Config::default(), store.clone()).await.unwrap();
    let config = Config { executor: ExecutorId(2), ..Config::default() };
    let reader = Executor::start(config, store).await.unwrap();
    let server = Server::start(([127, 0, 0, 1], 0).into(), maker.clone()).await.unwrap();
    let (events, _from) = tokio::sync::mpsc::channel(1);
    let session = reader.attach(fanfold_protocol::link::ShardTag::of("g0"), events);
    let peer = Peer { executor: ExecutorId(1), address: Some(server.address().to_string()) };
    session.send(ToExecutor::Peers(vec![peer])).unwrap();

    // However many ask at once, it is fetched once: all have the same bytes.
    let first = make(&maker, 1).await;
    let opened =
        futures::future::join_all((0..8).map(|_| reader.cache().open(&first, limit::LOAD_WHOLE_BYTES_MAX)))
            .await;
    let pointers = opened.into_iter().map(|opened| match opened.unwrap() {
        Partition::Memory(cached) => cached.segments.chunks()[0].as_ptr(),
        other => panic!("not in memory: {other:?}"),
    });
    assert_eq!(pointers.collect::<std::collections::BTreeSet<_>>().len(), 1);

    let wanted = make(&maker, 2).await;
    session.send(ToExecutor::Prefetch(vec![wanted.clone()])).unwrap();
    while reader.cache().here(wanted.key).is_none() {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    let opened = reader.cache().open(&wanted, limit::LOAD_WHOLE_BYTES_MAX).await.unwrap();
    assert!(reader.cache().read(&opened, 0..u64::MAX).await.unwrap() == pattern(2));
    drop(session);
    reader.stop().await;
    maker.stop().await;
}
