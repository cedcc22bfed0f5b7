//! The contract of shared logs, over every backend: one order for all writers, and nothing written twice.

mod support;

use fanfold_protocol::{Code, record::Record};
use fanfold_store::{
    SharedLog, Store,
    shared_log::{Appended, CHECKPOINT_ENTRIES},
    testing::{self, Fault, Operation},
};
use support::{record, records};

conformance!(
    entries_come_back_in_order,
    writers_take_turns,
    a_checkpoint_stands_for_what_it_covers,
    damage_is_named,
);

async fn entries_come_back_in_order(store: Store) {
    let log = SharedLog::open(&store, "functions").unwrap();
    assert_eq!(log.checkpointed().await.unwrap(), (0, vec![]));
    assert_eq!(log.read_from(1).await.unwrap(), []);
    for n in 1..=40 {
        let appended = log.append(n, records(0..u128::from(n % 3))).await.unwrap();
        assert_eq!(appended, Appended::Written);
    }
    let other = SharedLog::open(&store, "functions").unwrap();
    let wanted: Vec<_> = (1..=40).map(|n| (n, records(0..u128::from(n % 3)))).collect();
    assert_eq!(other.read_from(1).await.unwrap(), wanted);
    assert_eq!(other.read_from(30).await.unwrap(), wanted[29..]);
    let gets = store.requests().get;
    assert_eq!(other.read_from(41).await.unwrap(), []);
    assert_eq!(store.requests().get, gets + 1, "looking for news is one request");

    assert_eq!(other.append(40, vec![record(9)]).await.unwrap(), Appended::Taken);
    assert_eq!(other.append(42, vec![]).await.unwrap_err().code, Code::Internal, "that would leave a gap");
    assert_eq!(SharedLog::open(&store, "else").unwrap().read_from(1).await.unwrap(), []);
    assert!(SharedLog::open(&store, "../functions").is_err());
}

/// Eight writers each count a counter up: every value is written once, in order, whoever wrote it.
async fn writers_take_turns(store: Store) {
    const WRITERS: u128 = 8;
    const TURNS: u128 = 12;
    let writer = |store: Store| async move {
        let log = SharedLog::open(&store, "counter").unwrap();
        let (mut next, mut value, mut mine) = (1, 0, 0);
        while mine < TURNS {
            for (seq, entry) in log.read_from(next).await.unwrap() {
                assert_eq!((seq, entry), (next, vec![record(value + 1)]));
                (next, value) = (seq + 1, value + 1);
            }
            if log.append(next, vec![record(value + 1)]).await.unwrap() == Appended::Written {
                (next, value, mine) = (next + 1, value + 1, mine + 1);
            }
        }
    };
    let writers = (0..WRITERS).map(|_| writer(store.clone()));
    futures::future::join_all(writers).await;
    let all = SharedLog::open(&store, "counter").unwrap().read_from(1).await.unwrap();
    let all: Vec<Record> = all.into_iter().flat_map(|(_, entry)| entry).collect();
    assert_eq!(all, records(1..WRITERS * TURNS + 1));
}

async fn a_checkpoint_stands_for_what_it_covers(store: Store) {
    let log = SharedLog::open(&store, "a").unwrap();
    for n in 1..=5 {
        log.append(n, vec![record(n.into())]).await.unwrap();
        if n % 2 == 0 {
            log.checkpoint(n, vec![record(100 + u128::from(n))]).await.unwrap();
        }
    }
    // Written by somebody else as well: nothing changes.
    log.checkpoint(4, vec![record(104)]).await.unwrap();
    let other = SharedLog::open(&store, "a").unwrap();
    assert_eq!(other.checkpointed().await.unwrap(), (4, vec![record(104)]));
    assert_eq!(other.read_from(5).await.unwrap(), [(5, vec![record(5)])]);
    assert_eq!(other.append(6, vec![]).await.unwrap(), Appended::Written);
    // A damaged one is passed over; the entries are all there.
    let path = testing::paths(&store, "registry/a").await.into_iter().rfind(|p| p.contains("checkpoint-"));
    testing::write_raw(&store, &path.unwrap(), "rubbish".into()).await.unwrap();
    assert_eq!(other.checkpointed().await.unwrap(), (2, vec![record(102)]));
    assert_eq!(other.read_from(1).await.unwrap().len(), 6);
    assert!(SharedLog::wants_checkpoint(CHECKPOINT_ENTRIES) && !SharedLog::wants_checkpoint(1));
}

async fn damage_is_named(store: Store) {
    let log = SharedLog::open(&store, "a").unwrap();
    for n in 1..=2 {
        log.append(n, vec![record(n.into())]).await.unwrap();
    }
    let path = testing::paths(&store, "registry/a").await.remove(0);
    let mut raw = testing::read_raw(&store, &path).await.unwrap().unwrap().to_vec();
    let middle = raw.len() / 2;
    raw[middle] ^= 1;
    testing::write_raw(&store, &path, raw.into()).await.unwrap();
    let refused = log.read_from(1).await.unwrap_err();
    assert!(refused.code == Code::Corrupt && refused.to_string().contains(&path), "{refused}");
    assert_eq!(log.read_from(2).await.unwrap(), [(2, vec![record(2)])]);
}

#[tokio::test]
async fn a_lost_answer_is_found_out() {
    let (store, faults) = testing::faulty_memory();
    let log = SharedLog::open(&store, "a").unwrap();
    faults.once(Operation::Put, "registry/a", Fault::AnswerLost);
    assert_eq!(log.append(1, vec![record(1)]).await.unwrap(), Appended::Written);
    faults.once(Operation::Put, "registry/a", Fault::Refused);
    assert_eq!(log.append(2, vec![record(2)]).await.unwrap(), Appended::Written);
    // The answer and the look are both lost: the next try finds it there.
    faults.once(Operation::Put, "registry/a", Fault::AnswerLost);
    faults.once(Operation::Get, "registry/a", Fault::Refused);
    assert_eq!(log.append(3, vec![record(3)]).await.unwrap(), Appended::Written);
    // Somebody else's entry stays somebody else's.
    let other = SharedLog::open(&store, "a").unwrap();
    assert_eq!(other.read_from(1).await.unwrap().len(), 3);
    assert_eq!(other.append(4, vec![record(4)]).await.unwrap(), Appended::Written);
    faults.once(Operation::Put, "registry/a", Fault::AnswerLost);
    assert_eq!(log.append(4, vec![record(4)]).await.unwrap(), Appended::Taken);
    assert_eq!(log.read_from(4).await.unwrap(), [(4, vec![record(4)])]);
}
