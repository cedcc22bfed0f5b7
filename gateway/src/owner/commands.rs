//! Between executors and the scheduler: messages in, commands out.

use std::{mem, sync::Arc};

use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, JobId, Kind, TaskId,
    call::{Call, TaskSpec},
    function::{FunctionRef, FunctionVersion},
    limit,
    link::{Held, Peer},
    message::{Assignment, FromExecutor, ToExecutor},
    record::Record,
    value::StoredKey,
};
use fanfold_scheduler::{Command, Event};
use fanfold_store::Failpoint;

use super::{calls, link::Link, live::Running, messages::ExecutorLink, run::Loop};

impl Loop {
    /// Feeds an event to the scheduler and carries out what it asks for.
    pub fn step(&mut self, event: Event) {
        let mut commands = mem::take(&mut self.commands);
        self.scheduler.step(self.now_ms, event, &mut commands);
        for command in commands.drain(..) {
            self.carry_out(command);
        }
        self.commands = commands;
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Send { executor, message } => self.send(executor, message),
            Command::Record(record) => self.record(record),
            Command::WakeAt(at_ms) => self.wake_at_ms = Some(at_ms),
            Command::JobEnded(end) => self.ended(*end),
            Command::Free(mut keys) => {
                self.memos.withhold(None, &mut keys);
                self.free(keys);
            }
            Command::Memoise { key, outputs } => self.memoise(key, outputs),
            Command::Stalled { job, reason } => {
                tracing::warn!(%job, %reason, "a job has runnable work and nothing of it ran for five seconds");
            }
        }
    }

    fn send(&mut self, executor: ExecutorId, mut message: ToExecutor) {
        match &mut message {
            ToExecutor::Run(assignment) if !self.note_run(executor, assignment) => return,
            ToExecutor::Run(_) => Failpoint::AttemptChosen.pass(),
            ToExecutor::Woken { attempt, .. } | ToExecutor::Next { attempt, .. } => {
                self.note_wait(*attempt, false)
            }
            ToExecutor::Free(keys) => self.memos.withhold(Some(executor), keys),
            _ => {}
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.id() == executor) {
            link.send(message);
        }
    }

    /// Remembers who runs what. `false`: the attempt shall not start, because the process is about to end and its job
    /// goes on after a restart.
    fn note_run(&mut self, executor: ExecutorId, assignment: &Assignment) -> bool {
        let Assignment { attempt, job, version, .. } = *assignment;
        if self.stopping.is_some() && self.live.get(&job).is_some_and(|live| live.recorded) {
            return false;
        }
        // The version was resolved when the task was made, so the registry has it; should it not, the executor says
        // so by failing the attempt, and only logs and calls of it are ignored here.
        if let Some(function) = self.shared.registry.version(&version) {
            self.running.insert(attempt, Running { job, function, executor, waits: false });
        }
        self.totals.attempts += 1;
        if self.roots.contains_key(&attempt.task)
            && let Some(live) = self.live.get_mut(&job)
            && live.recorded
            && !mem::replace(&mut live.placed, true)
        {
            self.places.take(&live.function.name);
            self.mirror_job(job);
        }
        true
    }

    fn note_wait(&mut self, attempt: AttemptId, waits: bool) {
        if let Some(running) = self.running.get_mut(&attempt) {
            running.waits = waits;
        }
    }

    fn record(&mut self, record: Record) {
        match &record {
            // It is journalled when the job's logs and graph are stored: see `ended`.
            Record::Ended { job, .. } => {
                if let Some(live) = self.live.get_mut(job) {
                    live.end = Some(record);
                }
                return;
            }
            Record::AttemptFailed { job, error, .. } => {
                if let Some(live) = self.live.get_mut(job) {
                    live.error = Some(error.clone());
                }
                self.free_place(*job);
                self.mirror_job(*job);
            }
            Record::Committed(committed) => {
                Failpoint::CommitDecided.pass();
                self.mirror_task(committed.job, committed.attempt.task);
            }
            _ => {}
        }
        self.lane.push(record, None);
    }

    /// Takes a message of an executor.
    pub fn message(&mut self, executor: ExecutorId, mut message: FromExecutor) {
        match &mut message {
            FromExecutor::Submit { .. } => {
                let FromExecutor::Submit { attempt, index, call } = message else { return };
                return self.submit(attempt, index, *call);
            }
            FromExecutor::Logs { attempt, lines } => return self.logged(*attempt, lines),
            FromExecutor::Status { attempt, text } => {
                let (attempt, text) = (*attempt, mem::take(text));
                return self.stands(attempt, text);
            }
            FromExecutor::Wrote { attempt, object } => return self.wrote(*attempt, object),
            FromExecutor::Finished { attempt, logs, .. } => {
                Failpoint::ResultReceived.pass();
                let (attempt, logs) = (*attempt, mem::take(logs));
                self.attempt_finished(attempt, &logs);
            }
            FromExecutor::Wait { attempt, .. } | FromExecutor::Next { attempt, .. } => {
                self.note_wait(*attempt, true)
            }
            FromExecutor::Lost { key, .. } if key.is_memo() => self.memo_lost(*key),
            FromExecutor::Left => return self.left.push(executor),
            FromExecutor::Offer(offer) => {
                if let Some(link) = self.links.iter_mut().find(|link| link.id() == executor) {
                    link.offer = offer.clone();
                }
            }
            _ => {}
        }
        self.step(Event::From { executor, message });
    }

    /// A driver's call. Its function is resolved here, because names are not the scheduler's business.
    fn submit(&mut self, attempt: AttemptId, index: u64, call: Call) {
        let Some(Running { job, function, .. }) = self.running.get(&attempt) else { return };
        let (job, own, task) = (*job, Arc::clone(function), attempt.task.child(index));
        let spec = self.spec(job, own, attempt.task, task, call);
        self.step(Event::Submitted { attempt, task, spec: Box::new(spec) });
    }

    fn spec(
        &mut self,
        job: JobId,
        own: Arc<FunctionVersion>,
        parent: TaskId,
        task: TaskId,
        mut call: Call,
    ) -> Result<TaskSpec, Error> {
        let function = match call.function.take() {
            None => own,
            Some(name) => self.resolve(job, name)?,
        };
        calls::child(parent, task, call, &function, self.now_ms)
    }

    /// What a function's name means to a job: always the same, once it was used.
    fn resolve(&mut self, job: JobId, name: String) -> Result<Arc<FunctionVersion>, Error> {
        let gone = || Error::new(Kind::Platform, Code::Cancelled, "the job has ended").retryable(false);
        let live = self.live.get_mut(&job).ok_or_else(gone)?;
        if let Some(known) = live.resolved.get(&name) {
            return Ok(Arc::clone(known));
        }
        let reference: FunctionRef = name.parse()?;
        let function = self.shared.registry.resolve(&reference)?;
        live.resolved.insert(name.clone(), Arc::clone(&function));
        if live.recorded {
            self.lane.push(Record::Resolved { job, function: name, version: function.version }, None);
        }
        Ok(function)
    }

    fn attempt_finished(&mut self, attempt: AttemptId, logs: &[u8]) {
        self.logged(attempt, logs);
        self.running.remove(&attempt);
    }

    /// An attempt has written these lines.
    fn logged(&mut self, attempt: AttemptId, lines: &[u8]) {
        if !lines.is_empty()
            && let Some(Running { job, .. }) = self.running.get(&attempt)
            && let Some(live) = self.live.get_mut(job)
        {
            live.log.append(attempt, lines);
        }
    }

    /// A task says how its job stands. Only the root task knows.
    fn stands(&mut self, attempt: AttemptId, text: String) {
        if text.len() <= limit::STATUS_BYTES_MAX
            && let Some(Running { job, .. }) = self.running.get(&attempt)
            && attempt.task == TaskId::root(*job)
            && let Some(live) = self.live.get_mut(job)
        {
            live.status = Some(text);
        }
    }

    /// An executor came: it gets work, and everybody learns where everybody is.
    pub fn executor_joined(&mut self, link: ExecutorLink) {
        let (offer, held) = (link.offer.clone(), link.held.clone());
        if let Some(before) = self.links.iter().position(|other| other.id() == offer.executor) {
            // Its last link broke, and it noticed before we did.
            self.executor_left(before);
        }
        let mut link = Link::new(link, self.now_ms);
        let others: Vec<Peer> = self.links.iter().filter_map(Link::peer).collect();
        if let Some(peer) = link.peer() {
            self.links.iter_mut().for_each(|other| other.send(ToExecutor::Peers(vec![peer.clone()])));
            link.send(ToExecutor::Peers(others));
        }
        // The scheduler knows live jobs only, and has copies freed that it does not know.
        let (live, ended): (Vec<Held>, Vec<Held>) =
            held.into_iter().partition(|held| self.live.contains_key(&held.key.job));
        let useless = ended.into_iter().map(|held| held.key).filter(|key| !self.is_kept(*key));
        let useless: Vec<StoredKey> = useless.collect();
        if !useless.is_empty() {
            link.send(ToExecutor::Free(useless));
        }
        self.links.push(link);
        self.step(Event::ExecutorJoined { offer, held: live });
    }

    /// Whether a copy is of the result of an ended job that can still be read.
    fn is_kept(&self, key: StoredKey) -> bool {
        self.state.job(key.job).is_some_and(|job| job.stored().any(|stored| stored.key == key))
    }

    /// An executor's channel closed.
    pub fn executor_left(&mut self, index: usize) {
        let link = self.links.remove(index);
        let executor = link.id();
        tracing::warn!(%executor, "an executor is gone");
        self.running.retain(|_, running| running.executor != executor);
        self.step(Event::ExecutorLeft(executor));
        if let Some(peer) = link.peer() {
            let gone = Peer { address: None, ..peer };
            self.links.iter_mut().for_each(|other| other.send(ToExecutor::Peers(vec![gone.clone()])));
        }
    }
}
