//! What callers ask: one exhaustive match, each arm a question answered from memory or the begin of something.

use std::sync::Arc;

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, JobId, Kind, PartitionId, TaskId, limit,
    message::Offer,
    record::Record,
    rest::{JobView, State},
    value::{Output, Stored},
};
use fanfold_scheduler::{Event, JobEnd};

use super::{
    consequences::{Consequence, cancelled},
    dropped::{Left, Leftover},
    events::BATCHES_MAX,
    jobs::key_conflict,
    live::{Stage, Waiter},
    messages::{Answer, ExecutorMetrics, JournalMetrics, LogsFound, Metrics, Reply, Request, tell},
    outputs,
    run::Loop,
    shared::draining,
    state::{End, StoredAnswer},
    stop::Stopping,
    views::no_job,
};

impl Loop {
    /// Answers a request, or begins what it asks for. A caller that is gone by then misses its answer only.
    pub fn request(&mut self, request: Request) {
        match request {
            Request::Accept { submission, reply } => self.accept(*submission, Waiter::Id(reply)),
            Request::Run { submission, reply } if submission.recorded => {
                self.accept(*submission, Waiter::Answer(reply));
            }
            Request::Run { submission, reply } => self.run_unrecorded(*submission, reply),
            Request::View { job, reply } => tell(reply, self.view(job)),
            Request::Watch { job, reply } => self.watch(job, reply),
            Request::Output { job, reply } => tell(reply, self.output(job)),
            Request::Logs { job, from, reply } => tell(reply, self.logs(job, from)),
            Request::Cancel { job, reply } => self.cancel(job, reply),
            Request::List { before, limit, batch, reply } => tell(reply, Ok(self.list(before, limit, batch))),
            Request::Graph { job, reply } => tell(reply, self.graph(job)),
            Request::Lineage { partition, job, reply } => tell(reply, self.lineage(partition, job)),
            Request::Partition { partition, reply } => tell(reply, self.partition(partition)),
            Request::DeadLetters { before, limit, reply } => {
                tell(reply, Ok(self.dead_letters(before, limit)))
            }
            Request::DeadLetter { job, reply } => tell(reply, self.dead_letter(job)),
            Request::RemoveLetter { job, reply } => self.remove_letter(job, reply),
            Request::Answered { key, request, reply } => tell(reply, self.answered(key, request)),
            Request::Remember { key, answer, reply } => self.remember(key, answer, reply),
            Request::Hold { events, reply } => self.hold(events, reply),
            Request::Triggers { reply } => tell(reply, Ok(self.triggers())),
            Request::Held { trigger, batch, reply } => {
                tell(reply, Ok(self.state.held(&trigger, &batch, BATCHES_MAX)));
            }
            Request::Pass { trigger, at_ms, reply } => self.pass(trigger, at_ms, reply),
            Request::Fired { trigger, limit, reply } => tell(reply, Ok(self.fired(&trigger, limit))),
            Request::Ending { job, reply } => tell(reply, Ok(self.ending(job))),
            Request::Followed { job, reply } => self.followed(job, reply),
            Request::GiveUp { submission, error, reply } => self.give_up(*submission, error, reply),
            Request::Metrics { reply } => tell(reply, Ok(self.metrics())),
            Request::Cluster { reply } => tell(reply, Ok(self.cluster())),
            Request::Join(link) => self.executor_joined(*link),
            Request::Stop { reply } => self.begin_stop(reply),
        }
    }

    /// What callers left behind.
    pub fn left_behind(&mut self, left: Left) {
        match left {
            Left::Cancel(job) => {
                if self.live.get(&job).is_some_and(|live| !live.recorded) {
                    self.step(Event::Cancel { job, error: cancelled() });
                }
            }
            Left::Free(stored) => self.free_result(&stored),
        }
    }

    /// The answer of a recorded job that has ended.
    pub fn answer(&self, id: JobId, logs: Bytes) -> Result<Answer, Error> {
        let job = self.state.job(id).ok_or_else(|| no_job(id))?;
        let End { result, usage, tasks, .. } = job.end.as_deref().ok_or_else(|| not_ended(id))?;
        let outputs = result.clone()?;
        Ok(Answer {
            job: id,
            content_type: outputs::content_type(outputs.first()),
            outputs,
            usage: *usage,
            tasks: *tasks,
            logs,
            shared: self.shared.clone(),
            leftover: None,
        })
    }

    /// Answers the callers of an unrecorded job that has ended, and forgets it.
    pub fn answer_unrecorded(&mut self, end: JobEnd) {
        let JobEnd { job, result, usage, tasks, kept, .. } = end;
        self.roots.remove(&TaskId::root(job));
        let Some(mut live) = self.live.remove(&job) else { return };
        match &result {
            Ok(_) => self.totals.succeeded += 1,
            Err(error) if error.code == Code::Cancelled => self.totals.cancelled += 1,
            Err(_) => self.totals.failed += 1,
        }
        self.end_watch(job);
        let shared = self.shared.clone();
        let logs = live.log.snapshot();
        let stored: Vec<Stored> = kept
            .into_iter()
            .filter_map(|(_, output)| match output {
                Output::Stored(stored) => Some(stored),
                Output::Inline(_) | Output::Alias(_) => None,
            })
            .collect();
        let leftover =
            (!stored.is_empty()).then(|| Arc::new(Leftover::new(&shared.dropped, Left::Free(stored))));
        let answer = result.map(|outputs| Answer {
            job,
            content_type: outputs::content_type(outputs.first()),
            outputs,
            usage,
            tasks,
            logs,
            shared,
            leftover,
        });
        // An unrecorded job has exactly one caller.
        if let Some(waiter) = live.waiters.pop() {
            tell(waiter, answer);
        }
    }

    fn output(&self, id: JobId) -> Result<Option<Output>, Error> {
        let job = match self.state.job(id) {
            Some(job) => job,
            None if self.live.contains_key(&id) => return Err(not_ended(id)),
            None => return Err(no_job(id)),
        };
        let end = job.end.as_deref().ok_or_else(|| not_ended(id))?;
        let outputs = end.result.as_ref().map_err(Clone::clone)?;
        Ok(outputs.first().cloned())
    }

    fn logs(&self, id: JobId, from: usize) -> Result<LogsFound, Error> {
        match self.live.get(&id) {
            Some(live) => Ok(LogsFound::Live(live.log.since(from))),
            None => self.state.job(id).map(|_| LogsFound::Stored).ok_or_else(|| no_job(id)),
        }
    }

    fn partition(&self, id: PartitionId) -> Result<Option<Output>, Error> {
        if let Some(output) = self.scheduler.output(id) {
            return Ok(Some(output.clone()));
        }
        let none = || {
            Error::not_found(Code::Partition, format!("partition {id} is not known, not made yet or freed"))
        };
        let job = self.state.job_of_maker(id.task).ok_or_else(none)?;
        job.output(id).cloned().map(Some).ok_or_else(none)
    }

    fn cancel(&mut self, id: JobId, reply: Reply<JobView>) {
        let view = match self.view(id) {
            Ok(view) => view,
            Err(error) => return tell(reply, Err(error)),
        };
        let Some(live) = self.live.get(&id).filter(|live| !matches!(live.stage, Stage::Ending)) else {
            let again = view.state == State::Cancelled;
            return tell(reply, if again { Ok(view) } else { Err(already_finished(id)) });
        };
        if !live.recorded {
            self.step(Event::Cancel { job: id, error: cancelled() });
            return tell(reply, Ok(view));
        }
        match self.lane.refusal() {
            Some(error) => tell(reply, Err(error.clone())),
            None => {
                self.lane.push_refusable(
                    Record::CancelAsked { job: id },
                    Vec::new(),
                    Consequence::Cancelled(id, reply),
                );
            }
        }
    }

    fn answered(&self, key: Digest, request: Digest) -> Result<Option<StoredAnswer>, Error> {
        match self.state.stored_answer(key) {
            Some(answer) if answer.request != request => Err(key_conflict()),
            Some(answer) => Ok(Some(StoredAnswer::clone(answer))),
            None if self.state.answer_bytes() > limit::ANSWERS_KEPT_BYTES_MAX => {
                let why =
                    "the answers kept for idempotency keys fill the memory for them; call without a key";
                Err(Error::new(Kind::Overloaded, Code::Memory, why))
            }
            None => Ok(None),
        }
    }

    fn remember(&mut self, key: Digest, answer: StoredAnswer, reply: Reply<()>) {
        if let Some(error) = self.lane.refusal() {
            return tell(reply, Err(error.clone()));
        }
        let StoredAnswer { request, at_ms, status, content_type, body } = answer;
        let record = Record::Answered { key, request, at_ms, status, content_type, body };
        self.lane.push_refusable(record, Vec::new(), Consequence::Recorded(reply));
    }

    fn begin_stop(&mut self, reply: Reply<()>) {
        match &self.stopping {
            Some(_) => tell(reply, Err(draining())),
            None => self.stopping = Some(Stopping::new(self.now_ms, self.config.drain, Some(reply))),
        }
    }

    fn metrics(&self) -> Metrics {
        let (kept, dead_letters) = self.retention.len();
        let waiting = self.places.waiting();
        Metrics {
            waiting,
            input_bytes: self.input_bytes,
            running: self.live.len() - waiting.min(self.live.len()),
            kept,
            dead_letters,
            accepted: self.totals.accepted,
            succeeded: self.totals.succeeded,
            failed: self.totals.failed,
            cancelled: self.totals.cancelled,
            attempts: self.totals.attempts,
            executors: self.executors(),
            journal: JournalMetrics {
                waiting: self.lane.len(),
                failing: self.lane.refusal().cloned(),
                epoch: self.journal.epoch(),
                segments: self.journal.segments_since_checkpoint(),
            },
        }
    }

    fn executors(&self) -> Vec<ExecutorMetrics> {
        let free = |offer: &Offer| self.scheduler.executors().find(|view| view.id == offer.executor);
        let metrics = self.links.iter().map(|link| {
            let view = free(&link.offer);
            ExecutorMetrics {
                executor: link.id(),
                offer: link.offer.clone(),
                cpu_millis_free: view.as_ref().map_or(0, |view| view.free.cpu_millis),
                memory_free: view.as_ref().map_or(0, |view| view.free.memory),
                attempts: view.as_ref().map_or(0, |view| view.attempts),
                unsent: link.unsent(),
            }
        });
        metrics.collect()
    }
}

fn not_ended(job: JobId) -> Error {
    let why = format!("job {job} has not ended: ask again, or wait for it with ?wait=30s");
    Error::new(Kind::Conflict, Code::NotFinished, why).retryable(true)
}

fn already_finished(job: JobId) -> Error {
    Error::new(Kind::Conflict, Code::AlreadyFinished, format!("job {job} has ended already"))
}
