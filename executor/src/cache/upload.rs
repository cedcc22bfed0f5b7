//! The cache's background work: uploads that are due, moves that make room, and removal of what nobody wants any more.

use std::{sync::Arc, time::Instant};

use fanfold_protocol::{
    Error, Kind, limit,
    message::{FromExecutor, Requests, Spent},
    value::StoredKey,
};
use fanfold_store::Account;
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Cache, Charge,
    disk::{Disk, Spilled},
    lock,
    room::Way,
    tier::{Cached, Here},
};

/// Objects removed in one request.
const DELETE_BATCH: usize = 1000;
/// Memory that the upload of a file takes: two parts, one on its way and one being read.
const FILE_UPLOAD_BYTES: u64 = 16 << 20;

/// A partition to be written to a file, for which there is room.
struct Spill {
    key: StoredKey,
    data: Arc<Cached>,
    lazy: bool,
    disk: Disk,
    charge: Charge,
}

impl Cache {
    /// Uploads, spills and removes until `stop`; announces lazily stored partitions that arrived to whoever `owner_of` names.
    /// What is not uploaded then is lost with the process, as it is in a crash.
    pub async fn run(
        self,
        owner_of: impl Fn(StoredKey) -> Option<mpsc::Sender<FromExecutor>> + Send + Sync,
        stop: CancellationToken,
    ) {
        let (mut uploads, mut spills) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            while let Some(spill) = self.next_spill(spills.len()) {
                spills.push(self.clone().spill(spill));
            }
            while let Some((key, here)) = self.next_upload(uploads.len()) {
                let (cache, account) = (self.clone(), Account::default());
                uploads.push(async move { (key, account.charge(cache.upload(key, here)).await, account) });
            }
            let due = self.tier().next_due_at();
            tokio::select! {
                Some(()) = spills.next() => {}
                Some((key, result, account)) = uploads.next() => tokio::select! {
                    () = self.announce(owner_of(key), key, result, account.total()) => {}
                    // The owner may be the one who stops us, and not listen any more.
                    () = stop.cancelled() => break,
                },
                () = self.0.work.notified() => self.remove_garbage().await,
                () = until(due), if uploads.len() < limit::UPLOADS_MAX => {}
                () = stop.cancelled() => break,
            }
        }
        // They would write into a folder that is being removed.
        while spills.next().await.is_some() {}
        self.remove_garbage().await;
    }

    /// What to write to disk now, if memory is short.
    fn next_spill(&self, running: usize) -> Option<Spill> {
        if running >= limit::SPILLS_MAX || !self.0.budget.is_short() {
            return None;
        }
        let mut tier = self.tier();
        let Some(Way::Spill(key, data)) = self.way(&tier) else { return None };
        let disk = self.open_disk()?.clone();
        let charge = self.take_disk(&disk, &mut tier, data.index.bytes())?;
        let lazy = tier.begin_spill(key);
        Some(Spill { key, data, lazy, disk, charge })
    }

    /// What to upload now: what is due, or, if memory is short and the disk takes nothing, whatever was not used for longest.
    fn next_upload(&self, running: usize) -> Option<(StoredKey, Here)> {
        if running >= limit::UPLOADS_MAX {
            return None;
        }
        let mut tier = self.tier();
        if let Some(key) = tier.next_due(Instant::now()) {
            return Some((key, tier.begin_upload(key)?));
        }
        if !self.0.budget.is_short() {
            return None;
        }
        let Some(Way::Upload(key)) = self.way(&tier) else { return None };
        if let Some(disk) = self.open_disk() {
            disk.full();
        }
        Some((key, tier.begin_upload(key)?))
    }

    async fn spill(self, spill: Spill) {
        let Spill { key, data, lazy, disk, charge } = spill;
        let written = disk.write(key, data.clone(), lazy, charge).await;
        self.tier().spilled(key, &data, written.ok());
        drop(data);
        // Who waits for room looks again: this may have failed, or made some.
        self.0.budget.nudge();
    }

    /// Writes a partition to the object store.
    pub(super) async fn upload(&self, key: StoredKey, here: Here) -> Result<(), Error> {
        let partitions = self.0.store.partitions();
        let file = match here {
            Here::Memory(data) => {
                return partitions.put(key, data.segments.chunks().to_vec(), &data.index).await;
            }
            Here::Disk(file) => file,
        };
        let _memory = self.0.budget.overdraw(file.index.bytes().min(FILE_UPLOAD_BYTES));
        let pieces = std::pin::pin!(file.pieces());
        let put = partitions.put_stream(key, pieces, &file.index).await;
        put.map_err(|error| if error.kind == Kind::Lost { self.damaged(&file, error) } else { error })
    }

    /// Notes that a file cannot be read; what to say to who wanted to upload it.
    fn damaged(&self, file: &Arc<Spilled>, error: Error) -> Error {
        self.tier().damaged(file.key, file);
        Error::new(Kind::Platform, error.code, error.message).context("a partition cannot be uploaded")
    }

    async fn announce(
        &self,
        owner: Option<mpsc::Sender<FromExecutor>>,
        key: StoredKey,
        result: Result<(), Error>,
        requests: Requests,
    ) {
        let wanted = self.upload_ended(key, &result);
        if let Some(owner) = &owner {
            let spent = Spent { requests, ..Spent::default() };
            let _ = owner.send(FromExecutor::Spent { job: key.job, spent }).await;
        }
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
        if let Some(disk) = &self.0.disk {
            disk.clean().await;
        }
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
