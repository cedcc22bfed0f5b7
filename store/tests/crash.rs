//! A process that appends and uploads is killed, again and again: what it said was acknowledged is there, in order.

mod support;

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use fanfold_protocol::record::Record;
use fanfold_store::{Journal, Store};
use futures::stream::{self, StreamExt as _};
use support::record;

const DIR: &str = "FANFOLD_CRASH_TEST_DIR";
const ROUNDS: u128 = 6;
/// Records are numbered from the epoch times this.
const ROUND: u128 = 1_000_000;

/// Not a test by itself: what the killed process runs.
#[tokio::test]
async fn victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = Store::open_dir(Path::new(&dir)).await.unwrap();
    let (journal, _) = Journal::open(&store, "a").await.unwrap();
    let first = u128::from(journal.epoch()) * ROUND / 2;
    // An upload that is always under way; its parts are large enough to be written before it ends.
    let endless = stream::repeat_with(|| Ok(Bytes::from(vec![1; 1 << 20]))).take(64).chain(stream::pending());
    let upload = async { store.objects().put("half", endless.boxed()).await.map(|_| ()) };
    let append = async {
        for n in first.. {
            journal.append_later(record(n * 2)).await.unwrap();
            journal.append(record(n * 2 + 1)).await.unwrap();
            println!("acknowledged {}", n * 2 + 1);
        }
    };
    let _ = futures::future::join(upload, append).await;
}

/// Runs a process until it has acknowledged some records, kills it, and returns the last one it told.
fn run_and_kill(dir: &Path, acknowledgements: usize) -> u128 {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told =
        lines.filter_map(|line| line.strip_prefix("acknowledged ").map(|n| n.parse::<u128>().unwrap()));
    let last = told.take(acknowledgements).last().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    last
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected: Vec<Record> = Vec::new();
    for round in 1..=ROUNDS {
        let last = run_and_kill(dir.path(), 10 * round as usize);
        let store = Store::open_dir(dir.path()).await.unwrap();
        let (journal, found) = Journal::open(&store, "a").await.unwrap();
        // This process opened it too, so a round takes two epochs.
        let first = (2 * round - 1) * ROUND;
        let new: Vec<Record> = (first..).take(found.len() - expected.len()).map(record).collect();
        assert!(first + new.len() as u128 > last, "round {round}: {last} was acknowledged");
        expected.extend(new);
        assert_eq!(found, expected, "round {round}");
        if round == ROUNDS / 2 {
            journal.checkpoint(expected.clone()).await.unwrap();
        }
        journal.close().await.unwrap();
        let left = std::fs::read_dir(dir.path().join("objects")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "half an upload is left");
    }
}
