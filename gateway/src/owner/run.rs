//! The owner's loop: one task that takes what happened, feeds it to the scheduler and carries out what that asks for.
//!
//! A turn takes everything that is ready (requests, messages of every executor, the journal's and the store's
//! outcomes, time) and works it off without waiting for anything. What it leads to is either sent at once (messages,
//! into an outbox where a channel is full), queued for the journal, or handed to [`super::work::Work`].
//!
//! Nothing grows without bound. Requests are not taken while the journal has much to write; executors are not read
//! while theirs is the longest queue of all or, with the disk full, while very much is held. None of these pauses
//! waits for something that waits for it: the journal needs neither requests nor executors to go on, and an executor
//! takes messages without waiting for the owner to read.

use std::{
    collections::HashMap,
    future::{Future as _, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use fanfold_protocol::{
    AttemptId, Digest, Error, ExecutorId, JobId, TaskId, message::FromExecutor, value::StoredKey,
};
use fanfold_scheduler::{Command, Event, Scheduler};
use fanfold_store::Journal;
use tokio::{sync::mpsc, time::Sleep};

use super::{
    Config,
    consequences::Consequence,
    dropped::Left,
    history::History,
    lane::{Lane, Written},
    link::Link,
    live::{Accepting, Live, Running},
    memos::Memos,
    messages::{ExecutorLink, Reply, Request},
    mirrored::Mirrored,
    places::Places,
    retention::Retention,
    runs::Runs,
    shared::Shared,
    state::State,
    stop::Stopping,
    watch::Watched,
    work::{Done, Work},
};

/// Requests taken in one turn.
const REQUESTS_PER_TURN: usize = 256;
/// Time between two looks at what is only a matter of age.
const HOUSEKEEPING_MS: u64 = 1000;

/// All state of the owner; see the module's documentation.
pub(super) struct Loop {
    pub shared: Arc<Shared>,
    pub config: Config,
    pub journal: Journal,
    pub scheduler: Scheduler,
    /// The fold of everything durable.
    pub state: State,
    /// Jobs without a durable end.
    pub live: HashMap<JobId, Live>,
    /// Jobs whose acceptance is not durable.
    pub accepting: HashMap<JobId, Accepting>,
    /// Idempotency keys of these.
    pub accepting_keys: HashMap<Digest, (Digest, JobId)>,
    /// Dead letters that are being retried, until that is durable.
    pub retrying: HashMap<JobId, JobId>,
    /// Root tasks of live jobs.
    pub roots: HashMap<TaskId, JobId>,
    pub running: HashMap<AttemptId, Running>,
    pub places: Places,
    pub runs: Runs,
    pub input_bytes: usize,
    pub lane: Lane<Consequence>,
    pub links: Vec<Link>,
    /// Executors that have said their last word.
    pub left: Vec<ExecutorId>,
    /// Executors to connect before anything else.
    pub joining: Vec<ExecutorLink>,
    pub watched: Watched,
    pub history: History,
    pub retention: Retention,
    pub memos: Memos,
    pub mirrored: Mirrored,
    pub work: Work,
    pub housekeeping: Housekeeping,
    pub totals: Totals,
    pub stopping: Option<Stopping>,
    /// The time of this turn.
    pub now_ms: u64,
    /// When the scheduler wants a tick.
    pub wake_at_ms: Option<u64>,
    pub commands: Vec<Command>,
}

/// What is due some time, and what of it is under way.
#[derive(Default)]
pub(super) struct Housekeeping {
    pub due_ms: u64,
    pub answers_due_ms: u64,
    pub removing: usize,
    /// Those who asked for a removal.
    pub removers: HashMap<JobId, Reply<()>>,
    pub freeing: bool,
    pub to_free: Vec<StoredKey>,
    /// Whether a checkpoint was begun, and whether its records are being made.
    pub checkpointing: bool,
    pub compacting: bool,
    /// About how long the last checkpoint was.
    pub checkpoint_bytes: u64,
}

/// Counts since the start.
#[derive(Default)]
pub(super) struct Totals {
    pub accepted: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub attempts: u64,
}

/// What one turn works off; its buffers are used again.
#[derive(Default)]
struct Inbox {
    requests: Vec<Request>,
    no_handles: bool,
    messages: Vec<Vec<FromExecutor>>,
    gone: Vec<usize>,
    written: Option<Written<Consequence>>,
    done: Vec<Done>,
    dropped: Vec<Left>,
}

impl Loop {
    /// An owner over the state that the journal gave, not connected to its executors yet.
    pub fn new(
        config: Config,
        shared: Arc<Shared>,
        journal: Journal,
        state: State,
        executors: Vec<ExecutorLink>,
    ) -> Self {
        let mirrored = Mirrored::new(config.mirror.clone());
        Self {
            config,
            scheduler: Scheduler::new(journal.epoch()),
            lane: Lane::new(journal.clone()),
            journal,
            state,
            live: HashMap::new(),
            accepting: HashMap::new(),
            accepting_keys: HashMap::new(),
            retrying: HashMap::new(),
            roots: HashMap::new(),
            running: HashMap::new(),
            places: Places::default(),
            runs: Runs::default(),
            input_bytes: 0,
            links: Vec::new(),
            left: Vec::new(),
            joining: executors,
            watched: Watched::default(),
            history: History::default(),
            retention: Retention::default(),
            memos: Memos::default(),
            mirrored,
            work: Work::new(shared.store.clone()),
            housekeeping: Housekeeping::default(),
            totals: Totals::default(),
            stopping: None,
            now_ms: 0,
            wake_at_ms: None,
            commands: Vec::new(),
            shared,
        }
    }

    /// Runs until it was stopped or the journal belongs to another owner.
    pub async fn run(&mut self, requests: &mut mpsc::Receiver<Request>) -> Result<(), Error> {
        let mut inbox = Inbox::default();
        let mut timer = pin!(tokio::time::sleep(std::time::Duration::ZERO));
        self.now_ms = self.shared.clock.now_ms();
        self.begin();
        while !self.is_stopped() {
            self.arm(timer.as_mut());
            poll_fn(|cx| self.poll(cx, requests, timer.as_mut(), &mut inbox)).await;
            self.now_ms = self.shared.clock.now_ms();
            self.turn(&mut inbox)?;
        }
        Ok(())
    }

    /// Lines up the jobs that the journal says are unfinished, and connects the executors.
    fn begin(&mut self) {
        self.recall_memos();
        self.resume();
        // They may have something of those jobs.
        for link in std::mem::take(&mut self.joining) {
            self.executor_joined(link);
        }
        self.start_waiting();
    }

    /// Takes in what is ready; pending while nothing is.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        requests: &mut mpsc::Receiver<Request>,
        timer: Pin<&mut Sleep>,
        inbox: &mut Inbox,
    ) -> Poll<()> {
        let mut ready = timer.poll(cx).is_ready();
        // While the journal fails, requests are taken to be refused.
        let room = !self.lane.is_full() || self.lane.refusal().is_some();
        if room
            && !inbox.no_handles
            && let Poll::Ready(taken) = requests.poll_recv_many(cx, &mut inbox.requests, REQUESTS_PER_TURN)
        {
            inbox.no_handles = taken == 0;
            ready = true;
        }
        let reading = !self.lane.is_overflowing() && (!self.lane.is_full() || self.lane.refusal().is_some());
        inbox.messages.resize_with(self.links.len(), Vec::new);
        for (index, link) in self.links.iter_mut().enumerate() {
            link.poll_flush(cx);
            if reading && let Poll::Ready(there) = link.poll_messages(cx, &mut inbox.messages[index]) {
                ready = true;
                if !there {
                    inbox.gone.push(index);
                }
            }
        }
        if let Poll::Ready(written) = self.lane.poll(cx) {
            inbox.written = Some(written);
            ready = true;
        }
        while let Poll::Ready(Some(done)) = self.work.poll(cx) {
            inbox.done.push(done);
            ready = true;
        }
        if let Poll::Ready(dropped) = self.shared.dropped.poll(cx) {
            inbox.dropped = dropped;
            ready = true;
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Works off what was taken in. The journal's outcome comes first, so that what depends on it is not later than
    /// it must be.
    fn turn(&mut self, inbox: &mut Inbox) -> Result<(), Error> {
        match inbox.written.take() {
            Some(Written::Durable(entries)) => self.durable(entries),
            Some(Written::Failed { error, refused }) => self.refused(&error, refused),
            Some(Written::Checkpoint(result)) => self.checkpointed(result),
            Some(Written::Ended(error)) => return Err(error),
            None => {}
        }
        for (index, messages) in inbox.messages.iter_mut().enumerate() {
            let executor = self.links[index].id();
            for message in messages.drain(..) {
                self.message(executor, message);
            }
        }
        // From the last to the first, so that the places of the others stay right.
        for index in inbox.gone.drain(..).rev() {
            self.executor_left(index);
        }
        while let Some(executor) = self.left.pop() {
            if let Some(index) = self.links.iter().position(|link| link.id() == executor) {
                self.executor_left(index);
            }
        }
        for done in inbox.done.drain(..) {
            self.done(done);
        }
        for request in inbox.requests.drain(..) {
            self.request(request);
        }
        for left in inbox.dropped.drain(..) {
            self.left_behind(left);
        }
        if inbox.no_handles && self.stopping.is_none() {
            self.stopping = Some(Stopping::new(self.now_ms, self.config.drain, None));
        }
        self.time();
        self.start_waiting();
        self.compact();
        Ok(())
    }

    /// Everything that is due by now.
    fn time(&mut self) {
        if self.wake_at_ms.is_some_and(|at| at <= self.now_ms) {
            self.wake_at_ms = None;
            self.step(Event::Tick);
        }
        if self.housekeeping.due_ms <= self.now_ms {
            self.housekeeping.due_ms = self.now_ms + HOUSEKEEPING_MS;
            self.keep_house();
        }
        if self.watched.is_due(self.now_ms) {
            self.update_watched();
        }
        if self.mirrored.is_due(self.now_ms) {
            self.tell_mirror();
        }
    }

    /// Sets the timer to the next thing that is due. A timer that is early only makes a turn without events, so one
    /// that is armed for an earlier moment stays: setting it costs more than such a turn.
    fn arm(&self, mut timer: Pin<&mut Sleep>) {
        let due = [
            self.wake_at_ms,
            Some(self.housekeeping.due_ms),
            self.watched.due_ms(),
            self.mirrored.due_ms(),
            self.stop_check_ms(),
        ];
        let Some(due_ms) = due.into_iter().flatten().min() else { return };
        let due = self.shared.clock.instant(due_ms);
        if timer.is_elapsed() || due < timer.deadline() {
            timer.as_mut().reset(due);
        }
    }
}
