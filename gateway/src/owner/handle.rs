//! The handle that callers hold.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, JobId, Kind, PartitionId,
    direct::Body,
    function::{FunctionRef, FunctionVersion},
    limit,
    link::{ShardName, ShardTag},
    record::{Accepted, Input},
    rest::{DeadLetterView, JobView, Page},
};
use fanfold_store::{Journal, Store};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::{
    clock::Clock,
    dropped::{Dropped, Left, Leftover},
    messages::{Answer, ExecutorLink, LogsFound, Metrics, NewJob, Reply, Request, Submission},
    outputs,
    run::Loop,
    shared::{Shared, draining},
    state::{State, StoredAnswer},
    wrote::Wrote,
};
use crate::Registry;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long [`Owner::stop`] lets attempts and synchronous calls finish.
    pub drain: Duration,
    /// The shard it owns: its jobs' ids carry it.
    pub shard: ShardTag,
    /// Where others are told of its jobs.
    pub mirror: Option<fanfold_store::Mirror>,
}

impl Default for Config {
    fn default() -> Self {
        Self { drain: Duration::from_secs(10), shard: ShardName::default().tag(), mirror: None }
    }
}

/// A handle to the owner of all jobs of one journal shard; see the module's documentation. Cheap to clone.
///
/// Every method answers `overloaded` / `draining` once the owner was stopped and `conflict` / `fenced` once another
/// owner took over the journal; what else can go wrong is said at each.
#[derive(Clone, Debug)]
pub struct Owner {
    requests: mpsc::Sender<Request>,
    pub(super) shared: Arc<Shared>,
}

impl Owner {
    /// Starts an owner over what the journal said (`folded`), and goes on with the unfinished jobs in it.
    ///
    /// All appends to the journal must go through this owner from here on, because its checkpoints stand for everything
    /// that was appended before them.
    ///
    /// # Errors
    /// None at present.
    pub async fn start(
        config: Config,
        store: Store,
        journal: Journal,
        registry: Registry,
        folded: State,
        executors: Vec<ExecutorLink>,
    ) -> Result<Self, Error> {
        let (requests, receiver) = mpsc::channel(limit::OWNER_REQUESTS_MAX);
        let shared = Arc::new(Shared {
            store,
            registry,
            shard: config.shard,
            clock: Clock::start(),
            dropped: Arc::new(Dropped::default()),
            events: Notify::new(),
            wrote: Wrote::default(),
            closed: OnceLock::new(),
            ended: watch::Sender::new(false),
            task: Mutex::new(None),
        });
        let owner = Loop::new(config, Arc::clone(&shared), journal, folded, executors);
        #[allow(clippy::disallowed_methods, reason = "it is kept in `shared` and joined by `Owner::stop`")]
        let task = tokio::spawn(run(owner, receiver, Arc::clone(&shared)));
        *shared.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(task);
        Ok(Self { requests, shared })
    }

    /// Adds an executor. It counts as gone when its channel closes.
    ///
    /// # Errors
    /// Why the owner has ended.
    pub async fn join(&self, link: ExecutorLink) -> Result<(), Error> {
        self.requests.send(Request::Join(Box::new(link))).await.map_err(|_| self.shared.closed())
    }

    /// Stops starting attempts, waits for running ones until the deadline of its [`Config`], flushes the journal and
    /// ends. Recorded jobs go on when an owner is started again.
    pub async fn stop(self) {
        let asked = self.ask(|reply| Request::Stop { reply }).await;
        if let Err(error) = asked {
            tracing::debug!(%error, "the owner had stopped already");
        }
        if let Some(task) = self.shared.take_task()
            && let Err(panic) = task.await
        {
            tracing::error!(%panic, "the owner of jobs panicked; this is a bug");
        }
    }

    /// Resolves when the owner has ended: after [`Owner::stop`], or with the error that made it give up. The process
    /// should end then.
    pub async fn ended(&self) -> Option<Error> {
        // The sender is in `shared`, so this wait cannot fail.
        let _ = self.shared.ended.subscribe().wait_for(|ended| *ended).await;
        self.shared.closed.get().filter(|error| error.code != Code::Draining).cloned()
    }

    /// Accepts a job that is recorded and runs when there is a place. Its id is given out when its record is durable.
    /// The same idempotency key and request give the same id again.
    ///
    /// # Errors
    /// `conflict` / `idempotency-key` for another request under a used key; `overloaded` / `queue-full` or `memory`
    /// where too much waits already; `invalid` / `body-too-large`; `platform` / `disk-full` or `storage`, retryable,
    /// where the journal cannot be written (it may have been recorded then; a key makes trying again safe).
    pub async fn accept(&self, job: NewJob) -> Result<JobId, Error> {
        let submission = Box::new(self.submission(job, true, None).await?);
        self.ask(|reply| Request::Accept { submission, reply }).await
    }

    /// Runs a job and waits for its answer. Dropping the future cancels an unrecorded job and leaves a recorded one
    /// running.
    ///
    /// # Errors
    /// Those of [`Owner::accept`], and the job's own.
    pub async fn run(&self, job: NewJob, recorded: bool) -> Result<Answer, Error> {
        let submission = Box::new(self.submission(job, recorded, None).await?);
        let left = (!recorded).then_some(Left::Cancel(submission.accepted.job));
        let cancel = left.map(|left| Leftover::new(&self.shared.dropped, left));
        let answer = self.ask(|reply| Request::Run { submission, reply }).await;
        if let Some(cancel) = cancel {
            cancel.disarm();
        }
        answer
    }

    /// A job as it is now.
    ///
    /// # Errors
    /// `not-found` / `invocation`.
    pub async fn view(&self, job: JobId) -> Result<JobView, Error> {
        self.ask(|reply| Request::View { job, reply }).await
    }

    /// Watches a job: the receiver has its present view, is updated ten times a second at most, and closes after the
    /// view of its end.
    ///
    /// # Errors
    /// `not-found` / `invocation`.
    pub async fn watch(&self, job: JobId) -> Result<watch::Receiver<JobView>, Error> {
        self.ask(|reply| Request::Watch { job, reply }).await
    }

    /// The output of a job that ended well: its media type as far as it can be told, its length, and its bytes.
    ///
    /// # Errors
    /// `not-found` / `invocation`; `conflict` / `not-finished`, retryable, while it has not ended; the job's own error
    /// where it failed; `lost`.
    pub async fn output(&self, job: JobId) -> Result<(&'static str, u64, Body), Error> {
        let output = self.ask(|reply| Request::Output { job, reply }).await?;
        let (bytes, body) = outputs::open(&self.shared.store, output.as_ref()).await?;
        Ok((outputs::content_type(output.as_ref()), bytes, body))
    }

    /// What a job's tasks logged until now, as NDJSON lines, without the first `from` bytes.
    ///
    /// # Errors
    /// `not-found` / `invocation`; `lost` / `corrupt`.
    pub async fn logs(&self, job: JobId, from: usize) -> Result<Bytes, Error> {
        match self.ask(|reply| Request::Logs { job, from, reply }).await? {
            LogsFound::Live(logs) => Ok(logs),
            LogsFound::Stored => {
                let logs = self.shared.store.logs(job).await?.unwrap_or_default();
                Ok(logs.slice(from.min(logs.len())..))
            }
        }
    }

    /// Cancels a job; the view right after. Cancelling it again is fine.
    ///
    /// # Errors
    /// `not-found` / `invocation`; `conflict` / `already-finished`; the journal's.
    pub async fn cancel(&self, job: JobId) -> Result<JobView, Error> {
        self.ask(|reply| Request::Cancel { job, reply }).await
    }

    /// A page of jobs, newest first, older than `after`. `batch`: only those accepted as batch jobs or of functions that
    /// call others.
    ///
    /// # Errors
    /// None of its own.
    pub async fn list(
        &self,
        after: Option<JobId>,
        limit: usize,
        batch: bool,
    ) -> Result<Page<JobView>, Error> {
        self.ask(|reply| Request::List { before: after, limit, batch, reply }).await
    }

    /// A partition's length and bytes: of a live job, or an output of an ended one.
    ///
    /// # Errors
    /// `not-found` / `partition`; `lost` / `partition-lost`, retryable, where it is not in the object store yet.
    pub async fn partition(&self, partition: PartitionId) -> Result<(u64, Body), Error> {
        let output = self.ask(|reply| Request::Partition { partition, reply }).await?;
        outputs::open(&self.shared.store, output.as_ref()).await
    }

    /// A page of dead letters, newest first, older than `after`.
    ///
    /// # Errors
    /// None of its own.
    pub async fn dead_letters(
        &self,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Page<DeadLetterView>, Error> {
        self.ask(|reply| Request::DeadLetters { before: after, limit, reply }).await
    }

    /// Gives a dead letter another chance: a new job with the same input, run by what `latest` means now (that is how a
    /// mended function gets its input), or by the same version where the function was removed. Asked again, it gives
    /// the same new job.
    ///
    /// # Errors
    /// `not-found` / `dead-letter`; those of [`Owner::accept`]; `lost` where the input cannot be read.
    pub async fn retry_dead_letter(&self, job: JobId) -> Result<JobId, Error> {
        let (letter, again) = self.ask(|reply| Request::DeadLetter { job, reply }).await?;
        if let Some(again) = again {
            return Ok(again);
        }
        let letter = &letter.accepted;
        let function = self.version_for_retry(letter)?;
        let (input, content_type) = self.input_of(letter).await?;
        let new = NewJob {
            function,
            entry: letter.entry.clone(),
            input,
            content_type,
            idempotency: None,
            traceparent: letter.traceparent.clone(),
            batch: letter.batch,
            fired: letter.fired.clone(),
        };
        let submission = Box::new(self.submission(new, true, Some(job)).await?);
        self.ask(|reply| Request::Accept { submission, reply }).await
    }

    /// The answer stored under an idempotency key, if there is one.
    ///
    /// # Errors
    /// `conflict` / `idempotency-key` where the key was used for another request; `overloaded` / `memory` where there
    /// is none and no further answer could be kept: the call must not be made then.
    pub async fn answered(&self, key: Digest, request: Digest) -> Result<Option<StoredAnswer>, Error> {
        self.ask(|reply| Request::Answered { key, request, reply }).await
    }

    /// Stores an answer for 24 hours; durable on return. The first answer under a key stays.
    ///
    /// # Errors
    /// `limit` / `output-too-large` for a body over [`limit::INLINE_BYTES_MAX`]; the journal's.
    pub async fn remember(&self, key: Digest, answer: StoredAnswer) -> Result<(), Error> {
        if answer.body.len() > limit::INLINE_BYTES_MAX {
            let why = format!("an answer of {} bytes is not kept for an idempotency key", answer.body.len());
            return Err(Error::new(Kind::Limit, Code::OutputTooLarge, why));
        }
        self.ask(|reply| Request::Remember { key, answer, reply }).await
    }

    /// The owner's figures.
    ///
    /// # Errors
    /// None of its own.
    pub async fn metrics(&self) -> Result<Metrics, Error> {
        self.ask(|reply| Request::Metrics { reply }).await
    }

    fn version_for_retry(&self, letter: &Accepted) -> Result<Arc<FunctionVersion>, Error> {
        let latest = FunctionRef { name: letter.name.clone(), selector: None };
        let registry = &self.shared.registry;
        registry.resolve(&latest).or_else(|error| registry.version(&letter.version).ok_or(error))
    }

    /// A submission with a new id. A long input of a recorded job is stored first.
    pub(super) async fn submission(
        &self,
        new: NewJob,
        recorded: bool,
        retried_from: Option<JobId>,
    ) -> Result<Submission, Error> {
        let NewJob { function, entry, input, content_type, idempotency, traceparent, batch, fired } = new;
        let bytes = input.len() as u64;
        if bytes > limit::INPUT_BYTES_MAX {
            let why =
                format!("an input has at most {} bytes; put more in as an object", limit::INPUT_BYTES_MAX);
            return Err(Error::new(Kind::Invalid, Code::BodyTooLarge, why));
        }
        let job = crate::clock::new_job(self.shared.clock.now_ms(), self.shared.shard);
        let input = if recorded && input.len() > limit::INLINE_BYTES_MAX {
            self.shared.store.put_input(job, input).await?;
            Input::Stored { bytes, content_type }
        } else {
            Input::Inline { body: input.into(), content_type }
        };
        let (name, version) = (function.name.clone(), function.version);
        let at_ms = self.shared.clock.now_ms();
        let accepted = Accepted {
            job,
            name,
            version,
            entry,
            input,
            idempotency,
            traceparent,
            at_ms,
            retried_from,
            batch,
            fired,
        };
        Ok(Submission { function, accepted, recorded })
    }

    /// Whether it has ended; see [`Owner::ended`].
    pub fn has_ended(&self) -> bool {
        *self.shared.ended.borrow()
    }

    pub(super) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| self.shared.closed())?;
        answer.await.map_err(|_| self.shared.closed())?
    }
}

/// Runs the loop to its end, and says why it ended before the callers that it left unanswered can notice.
async fn run(mut owner: Loop, mut requests: mpsc::Receiver<Request>, shared: Arc<Shared>) {
    let ended = owner.run(&mut requests).await;
    if let Err(error) = &ended {
        tracing::error!(%error, "the owner of jobs gives up");
    }
    // Nobody else sets it.
    let _ = shared.closed.set(ended.as_ref().err().cloned().unwrap_or_else(draining));
    if ended.is_ok() {
        owner.finish_stop().await;
    }
    drop((owner, requests));
    shared.ended.send_replace(true);
}
