//! What the conformance suites share: the backends, and things to store.
#![allow(dead_code, reason = "each suite uses some of it")]

pub mod s3;

use fanfold_protocol::{JobId, PartitionId, TaskId, record::Record, value::StoredKey};
use fanfold_store::Store;
use tempfile::TempDir;

/// Runs a suite's `async fn(Store)` over every backend.
#[macro_export]
macro_rules! conformance {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(fanfold_store::Store::in_memory()).await;
            })*
        }
        mod directory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let (store, _dir) = super::support::directory().await;
                super::$test(store).await;
            })*
        }
        mod s3 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let server = super::support::s3::Server::start().await;
                super::$test(server.open("some/prefix").await).await;
            })*
        }
    };
}

pub async fn directory() -> (Store, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Store::open_dir(dir.path()).await.unwrap(), dir)
}

pub fn job(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

/// A small record that can be told from others.
pub fn record(n: u128) -> Record {
    Record::Forgotten { job: job(n) }
}

pub fn records(numbers: std::ops::Range<u128>) -> Vec<Record> {
    numbers.map(record).collect()
}

pub fn key(n: u32) -> StoredKey {
    let partition = PartitionId { task: TaskId([n as u8; 16]), output: n };
    StoredKey { job: job(u128::from(n)), partition, epoch: 1, attempt: n }
}
