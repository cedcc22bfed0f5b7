//! What the owner has done beside its loop because it waits for the store: reading inputs, storing logs, removing
//! what nobody needs. Each piece is a task of one set that the loop joins; its outcome comes back as a [`Done`].

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, JobId, Kind,
    record::Record,
    rest::GraphView,
    value::{Output, StoredKey},
};
use fanfold_store::Store;
use tokio::task::JoinSet;

/// Times an input is read before its job fails for good.
const INPUT_READS_MAX: u32 = 6;
/// Delay after the first failed read, doubled for each further one: 12 seconds in all.
const INPUT_RETRY: Duration = Duration::from_millis(200);

/// What came of a piece of work.
pub(super) enum Done {
    Input { job: JobId, result: Result<Bytes, Error> },
    EndStored { job: JobId, result: Result<(), Error> },
    Removed { job: JobId, recorded: bool, result: Result<(), Error> },
    Freed { result: Result<(), Error> },
    MemoCopied { key: Digest, from: Vec<StoredKey>, outputs: Vec<Output>, result: Result<(), Error> },
    MemoRemoved { key: Digest, result: Result<(), Error> },
    Compacted { records: Result<Vec<Record>, Error> },
}

/// The set of work under way.
pub(super) struct Work {
    store: Store,
    tasks: JoinSet<Done>,
}

impl Work {
    pub fn new(store: Store) -> Self {
        Self { store, tasks: JoinSet::new() }
    }

    pub fn read_input(&mut self, job: JobId) {
        let store = self.store.clone();
        self.tasks.spawn(async move { Done::Input { job, result: read_input(&store, job).await } });
    }

    /// Stores what a job leaves beside its result.
    pub fn store_end(&mut self, job: JobId, logs: Option<Bytes>, graph: Option<Arc<GraphView>>) {
        let store = self.store.clone();
        self.tasks.spawn(async move {
            let logs = async {
                match logs {
                    Some(logs) => store.put_logs(job, logs).await,
                    None => Ok(()),
                }
            };
            let graph = async {
                match graph {
                    Some(graph) => store_graph(&store, job, graph).await,
                    None => Ok(()),
                }
            };
            let (logs, graph) = tokio::join!(logs, graph);
            Done::EndStored { job, result: logs.and(graph) }
        });
    }

    /// Removes everything the store has of a job.
    pub fn remove(&mut self, job: JobId, recorded: bool) {
        let store = self.store.clone();
        self.tasks.spawn(async move { Done::Removed { job, recorded, result: store.remove_job(job).await } });
    }

    /// Removes partitions' data.
    pub fn free(&mut self, keys: Vec<StoredKey>) {
        let store = self.store.clone();
        self.tasks.spawn(async move { Done::Freed { result: store.partitions().delete(&keys).await } });
    }

    /// Copies what a memoised call made, each from one key to another.
    pub fn copy_memo(&mut self, key: Digest, copies: Vec<(StoredKey, StoredKey)>, outputs: Vec<Output>) {
        let store = self.store.clone();
        self.tasks.spawn(async move {
            let partitions = store.partitions();
            let mut result = Ok(());
            for (from, to) in &copies {
                result = result.and(partitions.copy(*from, *to).await);
            }
            let from = copies.into_iter().map(|(from, _)| from).collect();
            Done::MemoCopied { key, from, outputs, result }
        });
    }

    /// Removes all data of a memoised call.
    pub fn remove_memo(&mut self, key: Digest, job: JobId) {
        let store = self.store.clone();
        self.tasks.spawn(async move { Done::MemoRemoved { key, result: store.remove_job(job).await } });
    }

    /// Makes the records of a checkpoint, which takes a while for a long state, on a thread that may block.
    pub fn compact(&mut self, records: impl FnOnce() -> Vec<Record> + Send + 'static) {
        self.tasks.spawn(async move {
            let records = tokio::task::spawn_blocking(records).await;
            let failed = |panic| Error::internal(format!("the checkpoint could not be made: {panic}"));
            Done::Compacted { records: records.map_err(failed) }
        });
    }

    /// The next outcome. Pending while there is none; `None` while nothing is under way.
    pub fn poll(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Done>> {
        loop {
            match std::task::ready!(self.tasks.poll_join_next(cx)) {
                Some(Ok(done)) => return std::task::Poll::Ready(Some(done)),
                // None of this work is aborted before the set is dropped, so it panicked.
                Some(Err(panic)) => tracing::error!(%panic, "work of the owner panicked; this is a bug"),
                None => return std::task::Poll::Ready(None),
            }
        }
    }

    /// Waits until all of it is done.
    pub async fn join(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn store_graph(store: &Store, job: JobId, graph: Arc<GraphView>) -> Result<(), Error> {
    // Some megabytes for the largest jobs: not on a thread that others wait for.
    let encoded = tokio::task::spawn_blocking(move || graph.encode()).await;
    let encoded = encoded.map_err(|panic| Error::internal(format!("a graph cannot be written: {panic}")))?;
    store.put_graph(job, encoded.into()).await
}

async fn read_input(store: &Store, job: JobId) -> Result<Bytes, Error> {
    let mut delay = INPUT_RETRY;
    for _ in 1..INPUT_READS_MAX {
        match store.input(job).await {
            Err(error) if error.retryable => {
                tracing::warn!(%job, %error, "an input cannot be read; trying again")
            }
            result => return result.map_err(|error| lost_input(&error)),
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
    }
    store.input(job).await.map_err(|error| lost_input(&error))
}

/// An input that was accepted and cannot be read is lost data, whatever the store calls it.
fn lost_input(error: &Error) -> Error {
    Error::new(Kind::Lost, Code::Corrupt, format!("the job's input cannot be read: {error}"))
}
