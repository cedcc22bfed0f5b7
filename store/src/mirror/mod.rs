//! What a gateway tells of its jobs so that others can answer for them while it is away: memory that can be lost.
//!
//! | Redis key | kind | field | value |
//! |---|---|---|---|
//! | `ff:{<namespace>:<job>}:job` | hash, expires an hour after its last change | what the caller calls it | bytes of the caller's |
//! | `ff:{<namespace>:<job>}:tasks` | the same | a task's 16 bytes | bytes of the caller's |
//!
//! Nothing waits for a write: changes go out in batches, one pipeline each, and are dropped where the Redis is away or
//! slow. What is written is bounded in bytes; beyond the bound the oldest jobs are removed. A flush costs answers, never
//! a job. `book` says what is written and becomes commands; this is the handle, the writer and the reader.

mod book;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::{Error, JobId, TaskId, limit};
use redis::{AsyncCommands as _, aio::MultiplexedConnection};
use tokio::{sync::mpsc, task::JoinSet};

use self::book::{Book, Keys};
use crate::redis_client::{RedisClient, check_namespace};

/// Between two tries while the Redis is away.
const PAUSE: Duration = Duration::from_secs(1);

/// Something to tell of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A field of it has this value now.
    Field {
        /// The job.
        job: JobId,
        /// What it is.
        field: &'static str,
        /// Its value.
        value: Bytes,
    },
    /// This is known of a task of it.
    Task {
        /// The job.
        job: JobId,
        /// The task.
        task: TaskId,
        /// What is known.
        value: Bytes,
    },
    /// Nobody needs to know of its tasks any more.
    NoTasks(JobId),
    /// Nobody needs to know of it any more.
    Gone(JobId),
}

/// A handle to the mirror in one namespace of a Redis; cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    keys: Keys,
    changes: mpsc::Sender<Vec<Change>>,
    reader: Mutex<Option<MultiplexedConnection>>,
    url: String,
    /// The writer; ends with this.
    _writer: Mutex<JoinSet<()>>,
}

impl Mirror {
    /// The mirror in the namespace of a Redis. Asks nobody: one that is away is waited out.
    ///
    /// # Errors
    /// `invalid` for a URL or namespace that is none.
    pub fn redis(url: &str, namespace: &str) -> Result<Self, Error> {
        check_namespace(namespace)?;
        let keys = Keys::new(namespace);
        let (changes, batches) = mpsc::channel(limit::MIRROR_BATCHES_MAX);
        let writer = Writer { client: RedisClient::new(url)?, book: Book::new(keys.clone()), told: false };
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run(batches));
        let (reader, url) = (Mutex::default(), url.to_owned());
        Ok(Self(Arc::new(Inner { keys, changes, reader, url, _writer: Mutex::new(tasks) })))
    }

    /// Tells these together. `false`: too much waits to be written already, and these are not told.
    pub fn tell(&self, changes: Vec<Change>) -> bool {
        self.0.changes.try_send(changes).is_ok()
    }

    /// A field of a job.
    ///
    /// # Errors
    /// `platform` / `storage` where the Redis cannot be asked.
    pub async fn field(&self, job: JobId, field: &str) -> Result<Option<Bytes>, Error> {
        let mut connection = self.reader().await?;
        let found: Result<Option<Vec<u8>>, _> = connection.hget(self.0.keys.job(job), field).await;
        self.read(found).map(|found| found.map(Bytes::from))
    }

    /// All that is known of a job's tasks.
    ///
    /// # Errors
    /// As for [`Mirror::field`].
    pub async fn tasks(&self, job: JobId) -> Result<Vec<Bytes>, Error> {
        let mut connection = self.reader().await?;
        let found: Result<Vec<Vec<u8>>, _> = connection.hvals(self.0.keys.tasks(job)).await;
        self.read(found).map(|found| found.into_iter().map(Bytes::from).collect())
    }

    async fn reader(&self) -> Result<MultiplexedConnection, Error> {
        if let Some(connection) = lock(&self.0.reader).clone() {
            return Ok(connection);
        }
        let mut client = RedisClient::new(&self.0.url)?;
        let connection = match client.connection().await {
            Ok(connection) => connection.clone(),
            Err(error) => return Err(client.failed(&error)),
        };
        *lock(&self.0.reader) = Some(connection.clone());
        Ok(connection)
    }

    fn read<T>(&self, found: Result<T, redis::RedisError>) -> Result<T, Error> {
        found.map_err(|error| {
            *lock(&self.0.reader) = None;
            match RedisClient::new(&self.0.url) {
                Ok(mut client) => client.failed(&error),
                Err(error) => error,
            }
        })
    }
}

struct Writer {
    client: RedisClient,
    book: Book,
    /// Whether it was said that the Redis is away.
    told: bool,
}

impl Writer {
    /// Writes batches until the last handle is dropped.
    async fn run(mut self, mut batches: mpsc::Receiver<Vec<Change>>) {
        while let Some(batch) = batches.recv().await {
            match self.write(batch).await {
                Ok(()) if std::mem::take(&mut self.told) => {
                    tracing::info!("the mirror of jobs is there again")
                }
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.told, true) {
                        tracing::warn!(%error, "jobs are not mirrored: while their owner is away, nobody answers for them");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn write(&mut self, batch: Vec<Change>) -> Result<(), Error> {
        let pipeline = self.book.write(batch, tokio::time::Instant::now());
        if pipeline.is_empty() {
            return Ok(());
        }
        let written = match self.client.connection().await {
            Ok(connection) => pipeline.query_async::<()>(connection).await,
            Err(error) => Err(error),
        };
        written.map_err(|error| self.client.failed(&error))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
