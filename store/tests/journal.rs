//! The journal's contract, over every backend: order, fencing, checkpoints, and what damage and failures do.

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use fanfold_protocol::{Code, Kind, limit, record::Record};
use fanfold_store::{
    Clock, Journal, Store,
    journal::Options,
    testing::{self, Fault, Operation},
};
use support::{record, records};

conformance!(
    epochs_are_claimed_once,
    records_come_back_in_order,
    an_old_owner_is_fenced,
    owners_that_open_at_once_get_different_epochs,
    a_checkpoint_stands_for_what_it_covers,
    a_crash_between_checkpoint_and_segments_loses_nothing,
    superfluous_segments_go_after_their_time,
    a_silent_owner_asks_for_its_epoch,
    an_opening_that_was_paused_is_a_silence,
    damage_is_named_and_refused,
    a_damaged_checkpoint_costs_nothing,
    a_missing_segment_is_noticed,
    a_closed_journal_says_so,
);

async fn reopen(store: &Store, shard: &str) -> Vec<Record> {
    let (journal, records) = Journal::open(store, shard).await.unwrap();
    journal.close().await.unwrap();
    records
}

/// A clock that tests move; it starts at the real time, with which stores date their objects.
fn clock() -> (Options, Arc<AtomicU64>) {
    let ahead_ms = Arc::new(AtomicU64::new(0));
    let moved = ahead_ms.clone();
    let real = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let clock = Clock::from_fn(move || real() + moved.load(SeqCst));
    (Options { clock, segment_kept_ms: limit::SEGMENT_KEPT_MS, ..Options::default() }, ahead_ms)
}

async fn epochs_are_claimed_once(store: Store) {
    for epoch in 1..=3 {
        let (journal, _) = Journal::open(&store, "a").await.unwrap();
        assert_eq!(journal.epoch(), epoch);
    }
    let (other, _) = Journal::open(&store, "b").await.unwrap();
    assert_eq!(other.epoch(), 1, "shards are independent");
    assert!(Journal::open(&store, "../a").await.is_err());
}

async fn records_come_back_in_order(store: Store) {
    let (journal, found) = Journal::open(&store, "a").await.unwrap();
    assert_eq!(found, []);
    journal.append(record(0)).await.unwrap();
    for n in 1..50 {
        journal.append_later(record(n)).await.unwrap();
    }
    journal.append_all(records(50..60)).await.unwrap();
    // The last append's success covers what was queued before it; no close, as after a crash.
    assert_eq!(reopen(&store, "a").await, records(0..60));
    drop(journal);

    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.append_later(record(60)).await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(reopen(&store, "a").await, records(0..61));
    append_at_once(&store, 61..400).await;
}

/// Appends in parallel to a journal that has all before; nothing is lost. How many PUTs that was.
async fn append_at_once(store: &Store, numbers: std::ops::Range<u128>) -> u64 {
    let (journal, _) = Journal::open(store, "a").await.unwrap();
    let puts = store.requests().put;
    let appends = numbers.clone().map(|n| {
        let journal = journal.clone();
        async move { journal.append(record(n)).await.unwrap() }
    });
    futures::future::join_all(appends).await;
    let puts = store.requests().put - puts;
    let mut after = reopen(store, "a").await;
    after.sort_by_key(|record| format!("{record:?}"));
    assert_eq!(after, records(0..numbers.end));
    puts
}

/// All append before the journal's own task runs, for it has the same thread.
#[tokio::test]
async fn appends_in_parallel_share_segments() {
    let puts = append_at_once(&Store::in_memory(), 0..300).await;
    assert!(puts < 150, "{puts} puts for 300 appends");
}

async fn an_old_owner_is_fenced(store: Store) {
    let (old, _) = Journal::open(&store, "a").await.unwrap();
    old.append(record(1)).await.unwrap();
    let (new, found) = Journal::open(&store, "a").await.unwrap();
    assert_eq!(found, [record(1)]);
    let refused = old.append(record(2)).await.unwrap_err();
    assert_eq!((refused.kind, refused.code), (Kind::Conflict, Code::Fenced));
    assert!(old.fenced() && !new.fenced());
    assert_eq!(old.append_later(record(2)).await.unwrap_err().code, Code::Fenced);
    assert_eq!(old.checkpoint(vec![]).await.unwrap_err().code, Code::Fenced);
    new.append(record(3)).await.unwrap();
    assert_eq!(reopen(&store, "a").await, [record(1), record(3)]);
}

async fn owners_that_open_at_once_get_different_epochs(store: Store) {
    let opened = futures::future::join_all((0..8).map(|_| Journal::open(&store, "a"))).await;
    let mut epochs = Vec::new();
    let mut live = 0;
    for opened in opened {
        match opened {
            Ok((journal, _)) => {
                epochs.push(journal.epoch());
                live += u32::from(journal.append(record(journal.epoch().into())).await.is_ok());
            }
            Err(e) => assert_eq!(e.code, Code::Fenced),
        }
    }
    let claimed = epochs.len();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!((epochs.len(), live), (claimed, 1), "epochs are unique and one owner is left");
    assert_eq!(reopen(&store, "a").await, [record(u128::from(*epochs.last().unwrap()))]);
}

async fn a_checkpoint_stands_for_what_it_covers(store: Store) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.append_all(records(0..100)).await.unwrap();
    let (segments, bytes) = (journal.segments_since_checkpoint(), journal.bytes_since_checkpoint());
    assert!(segments >= 1 && bytes > 1000, "{segments} segments, {bytes} bytes");
    journal.append_later(record(100)).await.unwrap();
    journal.checkpoint(vec![record(7)]).await.unwrap();
    assert_eq!((journal.segments_since_checkpoint(), journal.bytes_since_checkpoint()), (0, 0));
    journal.append(record(101)).await.unwrap();
    assert_eq!(journal.segments_since_checkpoint(), 1);
    assert_eq!(reopen(&store, "a").await, [record(7), record(101)]);
}

async fn a_crash_between_checkpoint_and_segments_loses_nothing(store: Store) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.append_all(records(0..3)).await.unwrap();
    journal.checkpoint(records(0..3)).await.unwrap();
    // The next owner starts from it at once, with no segment after it but the fences.
    assert_eq!(reopen(&store, "a").await, records(0..3));
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.append(record(3)).await.unwrap();
    assert_eq!(reopen(&store, "a").await, records(0..4));
}

async fn superfluous_segments_go_after_their_time(store: Store) {
    let (options, ahead_ms) = clock();
    let (journal, _) = Journal::open_with(&store, "a", options.clone()).await.unwrap();
    journal.append(record(0)).await.unwrap();
    journal.checkpoint(records(0..1)).await.unwrap();
    journal.append(record(1)).await.unwrap();
    journal.checkpoint(records(0..2)).await.unwrap();
    let before = testing::paths(&store, "log/a").await.len();
    assert_eq!(before, 3, "a fence and two segments: nothing is removed early");

    ahead_ms.fetch_add(limit::SEGMENT_KEPT_MS, SeqCst);
    journal.append(record(2)).await.unwrap();
    journal.checkpoint(records(0..3)).await.unwrap();
    journal.close().await.unwrap();
    // Covered by the second checkpoint, which has its age: the fence and two segments.
    assert_eq!(testing::paths(&store, "log/a").await, ["log/a/00000000000000000004.seg"]);
    assert_eq!(testing::paths(&store, "checkpoint/a").await.len(), 2);
    assert_eq!(reopen(&store, "a").await, records(0..3));
}

async fn a_silent_owner_asks_for_its_epoch(store: Store) {
    let (options, ahead_ms) = clock();
    let (old, _) = Journal::open_with(&store, "a", options).await.unwrap();
    old.append(record(1)).await.unwrap();
    let (new, _) = Journal::open(&store, "a").await.unwrap();
    // The successor's fence is gone, as it is when its number has been collected: the old owner's number is free.
    let last = testing::paths(&store, "log/a").await.pop().unwrap();
    testing::remove_raw(&store, &last).await.unwrap();
    ahead_ms.fetch_add(limit::EPOCH_TRUSTED_MS + 1, SeqCst);
    assert_eq!(old.append(record(2)).await.unwrap_err().code, Code::Fenced);
    assert!(old.fenced());
    drop(new);

    let (options, ahead_ms) = clock();
    let (alone, _) = Journal::open_with(&store, "b", options).await.unwrap();
    ahead_ms.fetch_add(limit::EPOCH_TRUSTED_MS + 1, SeqCst);
    let lists = store.requests().list;
    alone.append(record(1)).await.unwrap();
    alone.append(record(2)).await.unwrap();
    assert_eq!(store.requests().list, lists + 1, "asked once after the silence, and not again");
}

/// Options whose clock jumps after it was read once, as if the process had been stopped after it claimed its epoch.
fn paused(ms: u64) -> Options {
    let reads = AtomicU64::new(0);
    let real = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let clock = Clock::from_fn(move || real() + if reads.fetch_add(1, SeqCst) == 0 { 0 } else { ms });
    Options { clock, ..Options::default() }
}

async fn an_opening_that_was_paused_is_a_silence(store: Store) {
    let (stale, _) = Journal::open_with(&store, "a", paused(limit::EPOCH_TRUSTED_MS + 1)).await.unwrap();
    let (new, _) = Journal::open(&store, "a").await.unwrap();
    // The successor's fence has been collected, and so might what came before the stale one's own have been.
    let last = testing::paths(&store, "log/a").await.pop().unwrap();
    testing::remove_raw(&store, &last).await.unwrap();
    assert_eq!(stale.append(record(1)).await.unwrap_err().code, Code::Fenced);
    drop(new);

    let refused = Journal::open_with(&store, "b", paused(limit::SEGMENT_KEPT_MS)).await.unwrap_err();
    assert!(refused.to_string().contains("start again"), "{refused}");
}

async fn damage_is_named_and_refused(store: Store) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    for n in 0..3 {
        journal.append(record(n)).await.unwrap();
    }
    journal.close().await.unwrap();
    let segments = testing::paths(&store, "log/a").await;
    assert_eq!(segments.len(), 4);
    for (at, path) in segments.iter().enumerate() {
        let whole = testing::read_raw(&store, path).await.unwrap().unwrap();
        let mut flipped = whole.to_vec();
        flipped[whole.len() / 2] ^= 4;
        let cut = whole.slice(..whole.len() - 7);
        for (what, bytes) in
            [("checksum", flipped.into()), ("cut short", cut), ("cut short", bytes::Bytes::new())]
        {
            testing::write_raw(&store, path, bytes).await.unwrap();
            let refused = Journal::open(&store, "a").await.unwrap_err();
            assert_eq!((refused.kind, refused.code, refused.retryable), (Kind::Lost, Code::Corrupt, false));
            let message = refused.to_string();
            assert!(message.contains(path.as_str()) && message.contains(what), "{message}");
            let last = at + 1 == segments.len();
            assert_eq!(message.contains("move it away"), last, "{message}");
        }
        testing::write_raw(&store, path, whole).await.unwrap();
    }
    // Nothing was written while it was damaged, and doing as the message says gives up one segment only.
    assert_eq!(testing::paths(&store, "log/a").await.len(), 4);
    testing::remove_raw(&store, &segments[3]).await.unwrap();
    assert_eq!(reopen(&store, "a").await, records(0..2));
}

async fn a_damaged_checkpoint_costs_nothing(store: Store) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.append(record(0)).await.unwrap();
    journal.checkpoint(vec![record(0)]).await.unwrap();
    journal.append(record(1)).await.unwrap();
    journal.checkpoint(records(0..2)).await.unwrap();
    journal.append(record(2)).await.unwrap();
    journal.close().await.unwrap();
    let checkpoints = testing::paths(&store, "checkpoint/a").await;
    testing::write_raw(&store, &checkpoints[1], bytes::Bytes::from_static(b"rubbish")).await.unwrap();
    assert_eq!(reopen(&store, "a").await, records(0..3));
    testing::write_raw(&store, &checkpoints[0], bytes::Bytes::new()).await.unwrap();
    assert_eq!(reopen(&store, "a").await, records(0..3));
    // With the segments gone as well, it is refused rather than read as a shorter journal.
    for path in testing::paths(&store, "log/a").await {
        testing::remove_raw(&store, &path).await.unwrap();
    }
    assert_eq!(Journal::open(&store, "a").await.unwrap_err().code, Code::Corrupt);
}

async fn a_missing_segment_is_noticed(store: Store) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    for n in 0..3 {
        journal.append(record(n)).await.unwrap();
    }
    journal.close().await.unwrap();
    let segments = testing::paths(&store, "log/a").await;
    testing::remove_raw(&store, &segments[2]).await.unwrap();
    let refused = Journal::open(&store, "a").await.unwrap_err();
    assert!(refused.code == Code::Corrupt && refused.to_string().contains(&segments[2]), "{refused}");
}

async fn a_closed_journal_says_so(store: Store) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.clone().close().await.unwrap();
    let refused = journal.append(record(0)).await.unwrap_err();
    assert_eq!((refused.kind, refused.code), (Kind::Overloaded, Code::Draining));
    assert!(!journal.fenced());
}

#[tokio::test]
async fn a_lost_answer_is_found_out() {
    let (store, faults) = testing::faulty_memory();
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    // The put happened and its answer was lost: it is ours, and acknowledged, and not written twice.
    faults.once(Operation::Put, "log/a", Fault::AnswerLost);
    journal.append(record(0)).await.unwrap();
    faults.once(Operation::Put, "log/a", Fault::Refused);
    journal.append(record(1)).await.unwrap();
    // The answer and the look are both lost.
    faults.once(Operation::Put, "log/a", Fault::AnswerLost);
    faults.once(Operation::Get, "log/a", Fault::Refused);
    journal.append(record(2)).await.unwrap();
    assert_eq!(reopen(&store, "a").await, records(0..3));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_segment_comes_before_all_others() {
    let (store, faults) = testing::faulty_memory();
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    faults.always(Operation::Put, "log/a", Fault::Refused);
    journal.append_later(record(0)).await.unwrap();
    let unknown = journal.append(record(1)).await.unwrap_err();
    assert!(unknown.code == Code::Storage && unknown.retryable, "{unknown}");
    let refused = journal.append(record(2)).await.unwrap_err();
    assert_eq!(refused.code, Code::Storage);
    assert!(journal.checkpoint(vec![]).await.is_err());
    faults.clear();
    journal.append(record(3)).await.unwrap();
    // The first two were tried, so they are recorded before anything else; the third never was.
    assert_eq!(reopen(&store, "a").await, [record(0), record(1), record(3)]);
}

async fn a_full_disk(store: Store, faults: testing::Faults) {
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    journal.append(record(0)).await.unwrap();
    faults.always(Operation::Put, "log/a", Fault::DiskFull);
    journal.append_later(record(1)).await.unwrap();
    for _ in 0..2 {
        let refused = journal.append(record(99)).await.unwrap_err();
        assert_eq!((refused.kind, refused.code, refused.retryable), (Kind::Platform, Code::DiskFull, true));
    }
    journal.append_later(record(2)).await.unwrap();
    assert!(journal.checkpoint(vec![]).await.is_err(), "records are still waiting for room");
    faults.clear();
    journal.append(record(3)).await.unwrap();
    journal.checkpoint(records(0..4)).await.unwrap();
    journal.append(record(4)).await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(testing::paths(&store, "log/a").await.len(), 4, "the refused segment's number was used again");
    assert_eq!(reopen(&store, "a").await, records(0..5));
}

#[tokio::test]
async fn a_full_disk_is_survived_in_memory() {
    let (store, faults) = testing::faulty_memory();
    a_full_disk(store, faults).await;
}

#[tokio::test]
async fn a_full_disk_is_survived_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults) = testing::faulty_dir(dir.path()).await.unwrap();
    a_full_disk(store, faults).await;
}

#[tokio::test]
async fn a_segment_that_is_being_written_collects_the_next() {
    let (store, faults) = testing::faulty_memory();
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    faults.once(Operation::Put, "log/a", Fault::Held);
    let first = journal.append(record(0));
    let others = (1..100).map(|n| journal.append(record(n)));
    let all = futures::future::join(first, futures::future::join_all(others));
    let puts = store.requests().put;
    let ((first, others), ()) = futures::future::join(all, async {
        // By now the first is being written: let it go on after the others are queued.
        tokio::task::yield_now().await;
        faults.release(1);
    })
    .await;
    assert!(first.is_ok() && others.iter().all(Result::is_ok));
    assert!(store.requests().put - puts <= 3, "{} puts", store.requests().put - puts);
}
