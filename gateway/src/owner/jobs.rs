//! The life of a job: accepted, waiting for a place, begun, ended, announced.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, JobId, Kind, TaskId,
    function::FunctionVersion,
    limit,
    message::{Spent, Usage},
    record::{Fired, Input, Record},
    rest::State,
    value::Payload,
};
use fanfold_scheduler::{Event, JobEnd, JobStart, Replay};
use fanfold_store::Failpoint;

use super::{
    calls,
    consequences::{Consequence, cancelled},
    live::{Accepting, Live, Stage, Waiter},
    messages::{Answer, Reply, Submission, tell},
    run::Loop,
    shared::draining,
    state::Log,
};

/// What an accept came to.
enum Admitted {
    /// It is a new job.
    New,
    /// The same request was accepted before.
    Known(JobId),
    /// The same request is on its way to the journal.
    Pending(JobId),
}

impl Loop {
    /// Accepts a recorded job, or finds the one that the same request made before.
    pub fn accept(&mut self, submission: Submission, waiter: Waiter) {
        let admitted = self.admit(&submission);
        if !matches!(admitted, Ok(Admitted::New)) && is_stored(&submission.accepted.input) {
            // It was stored under an id that nobody will use.
            self.work.remove(submission.accepted.job, false);
        }
        match admitted {
            Err(error) => waiter.refuse(error),
            Ok(Admitted::Known(job)) => self.wait_for(job, waiter),
            Ok(Admitted::Pending(job)) => {
                if let Some(accepting) = self.accepting.get_mut(&job) {
                    accepting.waiters.push(waiter);
                }
            }
            Ok(Admitted::New) => {
                Failpoint::AcceptDecided.pass();
                self.journal_accept(submission, waiter);
            }
        }
    }

    fn admit(&self, submission: &Submission) -> Result<Admitted, Error> {
        let accepted = &submission.accepted;
        if let Some((key, request)) = accepted.idempotency
            && let Some(admitted) = self.same_key(key, request)?
        {
            return Ok(admitted);
        }
        if let Some(dead) = accepted.retried_from
            && let Some(admitted) = self.same_letter(dead)
        {
            return Ok(admitted);
        }
        if self.stopping.is_some() {
            return Err(draining());
        }
        if let Some(error) = self.lane.refusal() {
            return Err(error.clone());
        }
        let overloaded = |code, why| Err(Error::new(Kind::Overloaded, code, why));
        let has_turns = accepted.fired.as_ref().is_none_or(|fired| self.runs.has_room(fired));
        if !has_turns || !self.places.has_room(&submission.function) {
            return overloaded(
                Code::QueueFull,
                format!("too many invocations of `{}` wait already", accepted.name),
            );
        }
        if self.input_bytes + inline_bytes(&accepted.input) > limit::ASYNC_INPUT_BYTES_MAX {
            return overloaded(
                Code::Memory,
                String::from("the inputs of waiting invocations fill the memory for them"),
            );
        }
        Ok(Admitted::New)
    }

    fn same_key(&self, key: Digest, request: Digest) -> Result<Option<Admitted>, Error> {
        if self.state.is_held(key) {
            let why = "the event waits for its batch already";
            return Err(Error::new(Kind::Overloaded, Code::IdempotencyKey, why));
        }
        let known = self.state.job_of_key(key).and_then(|job| {
            let (_, request) = job.accepted.idempotency?;
            Some((request, Admitted::Known(job.accepted.job)))
        });
        let pending =
            || self.accepting_keys.get(&key).map(|(request, job)| (*request, Admitted::Pending(*job)));
        match known.or_else(pending) {
            Some((first, _)) if first != request => Err(key_conflict()),
            found => Ok(found.map(|(_, admitted)| admitted)),
        }
    }

    fn same_letter(&self, dead: JobId) -> Option<Admitted> {
        if let Some(again) = self.state.job(dead).and_then(|job| job.retried_as) {
            return Some(Admitted::Known(again));
        }
        self.retrying.get(&dead).copied().map(Admitted::Pending)
    }

    fn journal_accept(&mut self, submission: Submission, waiter: Waiter) {
        let Submission { function, accepted, .. } = submission;
        let job = accepted.job;
        let input_bytes = inline_bytes(&accepted.input);
        self.input_bytes += input_bytes;
        if let Some((key, request)) = accepted.idempotency {
            self.accepting_keys.insert(key, (request, job));
        }
        let mut more = Vec::new();
        if let Some(dead) = accepted.retried_from {
            self.retrying.insert(dead, job);
            more.push(Record::Retried { job: dead, again: job });
        }
        let stored_input = is_stored(&accepted.input);
        self.accepting.insert(job, Accepting { function, input_bytes, stored_input, waiters: vec![waiter] });
        self.lane.push_refusable(Record::Accepted(Box::new(accepted)), more, Consequence::Accepted(job));
    }

    /// Answers for a job that is durable already.
    fn wait_for(&mut self, job: JobId, waiter: Waiter) {
        match waiter {
            Waiter::Id(reply) => tell(reply, Ok(job)),
            Waiter::Answer(reply) => match self.live.get_mut(&job) {
                Some(live) => live.waiters.push(reply),
                None => tell(reply, self.answer(job, Bytes::new())),
            },
        }
    }

    /// Begins an unrecorded job at once; the caller's admission bounds how many there are.
    pub fn run_unrecorded(&mut self, submission: Submission, reply: Reply<Answer>) {
        if self.stopping.is_some() {
            return tell(reply, Err(draining()));
        }
        if reply.is_closed() {
            return; // Its caller left before its turn came.
        }
        let Submission { function, accepted, .. } = submission;
        let job = accepted.job;
        let mut live = Live::new(function, &accepted, false);
        live.waiters.push(reply);
        live.stage = Stage::Started;
        let Input::Inline { body, .. } = accepted.input.clone() else { return };
        let root = calls::root(&accepted, &live.function, body, false);
        self.totals.accepted += 1;
        self.roots.insert(TaskId::root(job), job);
        self.live.insert(job, live);
        self.step(Event::JobStarted(Box::new(JobStart {
            job,
            root,
            recorded: false,
            weight: 1,
            replay: Replay::default(),
        })));
    }

    /// Lines up an accepted job once it is its turn.
    pub fn line_up(&mut self, job: JobId, live: Live) {
        self.roots.insert(TaskId::root(job), job);
        if self.has_its_turn(job) {
            self.places.wait(&live.function, job);
        }
        self.live.insert(job, live);
        self.mirror_job(job);
    }

    /// Lines up what the journal says is unfinished, those that had begun before the others.
    pub fn resume(&mut self) {
        self.retention.extend(self.state.jobs().map(AsRef::as_ref));
        let mut unfinished: Vec<_> = self.state.jobs().filter(|job| job.end.is_none()).cloned().collect();
        unfinished.sort_by_key(|job| (job.log.is_none() && job.failed_attempts.is_empty(), job.accepted.job));
        for job in unfinished {
            let id = job.accepted.job;
            let Some(function) = self.shared.registry.version(&job.accepted.version) else {
                tracing::error!(job = %id, version = %job.accepted.version, "the journal has no version of this job");
                let why = format!(
                    "version {} of `{}` is not known",
                    job.accepted.version.short(),
                    job.accepted.name
                );
                let record = ended_unstarted(id, self.now_ms, Error::not_found(Code::Version, why));
                self.push_end(id, record);
                continue;
            };
            let mut live = Live::new(function, &job.accepted, true);
            live.input_bytes = job.input_bytes();
            self.input_bytes += live.input_bytes;
            live.error = job.failed_attempts.last().map(|failed| failed.error.clone());
            live.attempts = u32::try_from(job.failed_attempts.len()).unwrap_or(u32::MAX);
            live.resolved = self.resolved(job.log.as_deref());
            self.line_up(id, live);
            if job.cancel_asked {
                self.end_unstarted(id, cancelled());
            }
        }
    }

    fn resolved(&self, log: Option<&Log>) -> HashMap<String, Arc<FunctionVersion>> {
        let names = log.into_iter().flat_map(|log| &log.resolved);
        names
            .filter_map(|(name, digest)| Some((name.clone(), self.shared.registry.version(digest)?)))
            .collect()
    }

    /// Begins waiting jobs that may: there is a place, and memory for the input. Nothing begins while the process
    /// stops, or while the journal cannot take what it would lead to.
    pub fn start_waiting(&mut self) {
        while self.stopping.is_none() && self.lane.refusal().is_none() {
            let Some(job) = self.places.next() else { return };
            let stored = match self.state.job(job).map(|job| &job.accepted.input) {
                Some(Input::Stored { bytes, .. }) => Some(usize::try_from(*bytes).unwrap_or(usize::MAX)),
                _ => None,
            };
            let Some(live) = self.live.get_mut(&job) else { continue };
            live.placed = true;
            match stored {
                None => self.start(job, None),
                Some(bytes)
                    if self.input_bytes > 0 && self.input_bytes + bytes > limit::ASYNC_INPUT_BYTES_MAX =>
                {
                    live.placed = false;
                    let function = live.function.name.clone();
                    return self.places.put_back(&function, job);
                }
                Some(bytes) => {
                    live.stage = Stage::Fetching;
                    live.input_bytes = bytes;
                    self.input_bytes += bytes;
                    self.work.read_input(job);
                }
            }
        }
    }

    /// A stored input was read, or could not be.
    pub fn input_read(&mut self, job: JobId, result: Result<Bytes, Error>) {
        // It was cancelled meanwhile unless it still waits for this.
        if !self.live.get(&job).is_some_and(|live| matches!(live.stage, Stage::Fetching)) {
            return;
        }
        match result {
            Ok(input) => self.start(job, Some(input)),
            Err(error) => self.end_unstarted(job, error),
        }
    }

    /// Hands a recorded job to the scheduler with what its log says. `input`: what was read from the store.
    fn start(&mut self, id: JobId, input: Option<Bytes>) {
        let Some(job) = self.state.job(id).cloned() else { return };
        let Some(live) = self.live.get_mut(&id) else { return };
        live.stage = Stage::Started;
        let input = match (input, &job.accepted.input) {
            (Some(bytes), _) => Payload::from(bytes),
            (None, Input::Inline { body, .. }) => body.clone(),
            (None, Input::Stored { .. }) => return,
        };
        let root = calls::root(&job.accepted, &live.function, input, true);
        let replay = job.replay();
        self.step(Event::JobStarted(Box::new(JobStart { job: id, root, recorded: true, weight: 1, replay })));
    }

    /// Ends a job that the scheduler does not have.
    pub fn end_unstarted(&mut self, job: JobId, error: Error) {
        let Some(live) = self.live.get_mut(&job) else { return };
        if matches!(live.stage, Stage::Waiting) {
            self.places.leave(&live.function.name, job);
        }
        live.stage = Stage::Ending;
        self.free_place(job);
        let record = ended_unstarted(job, self.now_ms, error);
        self.push_end(job, record);
    }

    /// The scheduler ended a job. A recorded one is announced when its end is durable, its logs and graph are stored before that.
    pub fn ended(&mut self, end: JobEnd) {
        let job = end.job;
        self.free_place(job);
        let Some(live) = self.live.get_mut(&job) else { return };
        if !live.recorded {
            return self.answer_unrecorded(end);
        }
        live.attempts = end.attempts;
        live.stage = Stage::Ending;
        let graph = (end.tasks > 1).then(|| Arc::new(end.graph));
        live.graph = graph.clone();
        let logs = (!live.log.is_empty()).then(|| live.log.snapshot());
        if let Some(graph) = &graph {
            self.history.remember(job, end.progress, graph);
        }
        let mut kept = end.kept;
        kept.retain(|(partition, _)| partition.task != TaskId::root(job));
        if !kept.is_empty() {
            self.lane.push(Record::Kept { job, partitions: kept }, None);
        }
        if logs.is_none() && graph.is_none() {
            self.journal_end(job);
        } else {
            self.work.store_end(job, logs, graph);
        }
    }

    /// Queues the `Ended` that the scheduler made.
    pub fn journal_end(&mut self, job: JobId) {
        let Some(record) = self.live.get_mut(&job).and_then(|live| live.end.take()) else { return };
        Failpoint::EndDecided.pass();
        self.push_end(job, record);
    }

    /// A job's end is durable: tells whoever waits or watches.
    pub fn announce(&mut self, id: JobId) {
        let Some(job) = self.state.job(id).cloned() else { return };
        self.retention.add(&job);
        match job.state() {
            State::Succeeded => self.totals.succeeded += 1,
            State::Cancelled => self.totals.cancelled += 1,
            _ => self.totals.failed += 1,
        }
        self.roots.remove(&TaskId::root(id));
        if job.accepted.fired.is_some() || job.follow {
            self.shared.events.notify_one();
        }
        if let Some(live) = self.live.remove(&id) {
            self.input_bytes -= live.input_bytes;
            let logs = if live.waiters.is_empty() { Bytes::new() } else { live.log.snapshot() };
            for waiter in live.waiters {
                tell(waiter, self.answer(id, logs.clone()));
            }
        }
        self.end_watch(id);
        self.mirror_end(id);
        if let Some(fired) = &job.accepted.fired {
            self.next_turns(id, fired);
        }
    }

    /// Whether a job may line up; where it may not yet, it is told by [`Self::next_turns`].
    fn has_its_turn(&mut self, job: JobId) -> bool {
        let fired = self.state.job(job).and_then(|job| job.accepted.fired.as_deref());
        fired.is_none_or(|fired| self.runs.ask(job, fired))
    }

    /// Lines up the runs whose turn it is after one of their trigger has ended.
    fn next_turns(&mut self, ended: JobId, fired: &Fired) {
        for job in self.runs.end(ended, fired) {
            // One that was cancelled while it waited keeps its turn until its end is durable.
            let waits = self.live.get(&job).is_some_and(|live| matches!(live.stage, Stage::Waiting));
            if waits
                && self.has_its_turn(job)
                && let Some(live) = self.live.get(&job)
            {
                self.places.wait(&live.function, job);
            }
        }
    }

    /// Gives a job's place back, if it has one.
    pub fn free_place(&mut self, job: JobId) {
        if let Some(live) = self.live.get_mut(&job)
            && std::mem::take(&mut live.placed)
        {
            self.places.give_back(&live.function.name);
        }
    }
}

fn ended_unstarted(job: JobId, at_ms: u64, error: Error) -> Record {
    Record::Ended {
        job,
        at_ms,
        result: Err(error),
        usage: Usage::default(),
        spent: Spent::default(),
        tasks: 0,
        follow: false,
    }
}

fn is_stored(input: &Input) -> bool {
    matches!(input, Input::Stored { .. })
}

fn inline_bytes(input: &Input) -> usize {
    match input {
        Input::Inline { body, .. } => body.bytes.len(),
        Input::Stored { .. } => 0,
    }
}

/// An idempotency key that was used for another request.
pub(super) fn key_conflict() -> Error {
    let why = "this Idempotency-Key was used for another request: use a new one";
    Error::new(Kind::Conflict, Code::IdempotencyKey, why)
}
