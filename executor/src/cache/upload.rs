//! The cache's background work: uploads that are due or make room, and removal of objects nobody wants any more.

use std::time::Instant;

use fanfold_protocol::{Error, limit, message::FromExecutor, value::StoredKey};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Cache, lock};

/// Objects removed in one request.
const DELETE_BATCH: usize = 1000;

impl Cache {
    /// Uploads and removes until `stop`; announces lazily stored partitions that arrived to whoever `owner_of` names. What is not uploaded then is
    /// lost with the process, as it is in a crash.
    pub async fn run(
        self,
        owner_of: impl Fn(StoredKey) -> Option<mpsc::Sender<FromExecutor>> + Send + Sync,
        stop: CancellationToken,
    ) {
        let mut uploads = FuturesUnordered::new();
        loop {
            while uploads.len() < limit::UPLOADS_MAX {
                let short = self.0.budget.is_short();
                let Some((key, data)) = self.tier().next_upload(Instant::now(), short) else { break };
                let cache = self.clone();
                uploads.push(async move {
                    let put =
                        cache.0.store.partitions().put(key, data.segments.chunks().to_vec(), &data.index);
                    (key, put.await)
                });
            }
            let due = self.tier().next_due_at();
            tokio::select! {
                Some((key, result)) = uploads.next() => tokio::select! {
                    () = self.announce(owner_of(key), key, result) => {}
                    // The owner may be the one who stops us, and not listen any more.
                    () = stop.cancelled() => break,
                },
                () = self.0.work.notified() => self.remove_garbage().await,
                () = until(due), if uploads.len() < limit::UPLOADS_MAX => {}
                () = stop.cancelled() => break,
            }
        }
        self.remove_garbage().await;
    }

    async fn announce(
        &self,
        owner: Option<mpsc::Sender<FromExecutor>>,
        key: StoredKey,
        result: Result<(), Error>,
    ) {
        let wanted = self.upload_ended(key, &result);
        match result {
            // Without an owner there is nobody to tell; the next one asks what is held.
            Ok(()) => {
                if let Some(owner) = owner.filter(|_| wanted) {
                    let _ = owner.send(FromExecutor::Durable(key)).await;
                }
            }
            Err(error) => tracing::warn!(partition = %key.partition, %error, "a partition was not written"),
        }
    }

    async fn remove_garbage(&self) {
        loop {
            let mut batch = std::mem::take(&mut *lock(&self.0.garbage));
            if batch.is_empty() {
                return;
            }
            let later = batch.split_off(batch.len().min(DELETE_BATCH));
            lock(&self.0.garbage).extend(later);
            if let Err(error) = self.0.store.partitions().delete(&batch).await {
                // They stay until the job's folder is removed.
                tracing::warn!(%error, objects = batch.len(), "freed partitions were not removed");
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
