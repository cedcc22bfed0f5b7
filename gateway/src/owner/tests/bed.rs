//! A test bed: an owner over a store, to be crashed, stopped and started again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_protocol::{
    Digest, Error, JobId, direct::Body, function::FunctionVersion, limit, link::ShardTag, rest::JobView,
};
use fanfold_store::{Journal, Store};
use http_body_util::BodyExt as _;
use tokio::{sync::oneshot, task::JoinHandle};

use super::script::Script;
use crate::{
    Registry,
    owner::{Config, NewJob, Owner, State},
    registry::Change,
};

pub struct Bed {
    pub store: Store,
    pub journal: Journal,
    pub owner: Owner,
    pub registry: Registry,
    pub script: Script,
    changes: JoinHandle<()>,
    stop_changes: oneshot::Sender<()>,
}

impl Bed {
    /// An owner over a new store in memory that knows these functions.
    pub async fn new(functions: &[&Arc<FunctionVersion>]) -> Self {
        Self::over(Store::in_memory(), functions).await
    }

    pub async fn over(store: Store, functions: &[&Arc<FunctionVersion>]) -> Self {
        let bed = Self::open(store).await;
        for function in functions {
            bed.deploy(function).await;
        }
        bed
    }

    /// An owner over what a store has.
    pub async fn open(store: Store) -> Self {
        Self::open_with(store, limit::MESSAGE_QUEUE_MAX).await
    }

    /// The same, with channels to the executor that hold `capacity` messages.
    pub async fn open_with(store: Store, capacity: usize) -> Self {
        let (journal, records) = Journal::open(&store, "test").await.unwrap();
        let mut state = State::default();
        records.into_iter().for_each(|record| state.fold(record));
        let (registry, changes) = Registry::open(&store, Vec::new()).await.unwrap();
        let (stop_changes, stopped) = oneshot::channel();
        let changes = tokio::spawn(changes.run(stopped));
        let (script, link) = Script::start(&store, journal.epoch(), capacity);
        let config = Config { drain: Duration::from_secs(2), shard: ShardTag::of("test"), mirror: None };
        let owner = Owner::start(config, store.clone(), journal.clone(), registry.clone(), state, vec![link])
            .await
            .unwrap();
        Self { store, journal, owner, registry, script, changes, stop_changes }
    }

    pub async fn deploy(&self, function: &Arc<FunctionVersion>) {
        self.registry.change(Change::Deploy(Box::new((**function).clone()))).await.unwrap();
    }

    /// Ends the owner as a crash would: between two of its turns, with nothing flushed. The store stays.
    pub async fn crash(self) -> Store {
        let task = self.owner.shared.take_task().unwrap();
        task.abort();
        let _ = task.await;
        self.changes.abort();
        let _ = self.changes.await;
        self.store.clone()
    }

    /// Stops the owner in order.
    pub async fn stop(self) -> Store {
        let _ = self.stop_changes.send(());
        self.changes.await.unwrap();
        self.owner.stop().await;
        self.journal.close().await.unwrap();
        self.store
    }

    pub async fn accept(&self, function: &Arc<FunctionVersion>, entry: &str, input: &str) -> JobId {
        self.owner.accept(job(function, entry, input)).await.unwrap()
    }

    /// Waits until a job has ended, and checks that its end is in the journal's fold.
    pub async fn ended(&self, job: JobId) -> JobView {
        let mut watch = self.owner.watch(job).await.unwrap();
        loop {
            let view = watch.borrow_and_update().clone();
            if view.state.ended() {
                return view;
            }
            if watch.changed().await.is_err() {
                return self.owner.view(job).await.unwrap();
            }
        }
    }

    pub async fn output(&self, job: JobId) -> Result<Bytes, Error> {
        let (_, length, body) = self.owner.output(job).await?;
        let bytes = collect(body).await;
        assert_eq!(bytes.len() as u64, length);
        Ok(bytes)
    }
}

pub async fn collect(body: Body) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

pub fn job(function: &Arc<FunctionVersion>, entry: &str, input: &str) -> NewJob {
    NewJob {
        function: Arc::clone(function),
        entry: entry.to_owned(),
        input: Bytes::copy_from_slice(input.as_bytes()),
        content_type: "text/plain".to_owned(),
        idempotency: None,
        traceparent: None,
        batch: false,
        fired: None,
    }
}

pub fn keyed(mut job: NewJob, key: &str) -> NewJob {
    job.idempotency = Some((Digest::of(key.as_bytes()), Digest::of(&job.input)));
    job
}
