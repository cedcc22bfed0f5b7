//! The simulated machines: virtual time, the network, executors with their caches, and the object store.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use fanfold_protocol::{
    AttemptId, ExecutorId, PartitionId, TaskId,
    call::Durability,
    message::{FromExecutor, Offer, ToExecutor},
    value::{Stored, StoredKey},
};
use rand::{Rng as _, rngs::SmallRng};

use super::{
    machine::Machine,
    plan::{Fault, Size},
    program::Program,
};

/// The bytes of a partition: a number, and what it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    pub value: u64,
    pub refs: Vec<PartitionId>,
}

/// Something that will happen.
#[derive(Clone, Debug)]
pub enum Happening {
    ToOwner {
        epoch: u64,
        session: u64,
        executor: ExecutorId,
        message: Box<FromExecutor>,
    },
    ToExecutor {
        epoch: u64,
        session: u64,
        executor: ExecutorId,
        message: Box<ToExecutor>,
    },
    /// An attempt has computed for as long as it wanted to.
    Computed {
        executor: ExecutorId,
        attempt: AttemptId,
    },
    Upload {
        executor: ExecutorId,
        key: StoredKey,
    },
    Tick {
        epoch: u64,
        at_ms: u64,
    },
    StartJob(usize),
    /// The end of a job is durable.
    Announce {
        epoch: u64,
        job: usize,
    },
    Fault(Fault),
    /// The owner notices that an executor is gone.
    Noticed {
        epoch: u64,
        executor: ExecutorId,
    },
    Join,
    /// An executor that lives on dials the owner.
    Dial(ExecutorId),
    /// A draining executor looks whether it may go.
    Drained(ExecutorId),
    Depart(ExecutorId),
    GatewayUp,
}

#[derive(Debug)]
pub struct Node {
    pub offer: Offer,
    /// The most it has ever offered.
    pub most: Size,
    /// How much longer than elsewhere one thing of three takes.
    pub slow: u64,
    /// Whether it has a link to the owner.
    pub linked: bool,
    pub draining: bool,
    /// What it has put into the object store.
    pub uploaded: BTreeSet<StoredKey>,
    pub cache: BTreeMap<StoredKey, Data>,
    /// Keys that are to be dropped wherever they turn up.
    pub freed: BTreeSet<StoredKey>,
    pub machines: BTreeMap<AttemptId, Machine>,
}

/// All that attempts can reach.
#[derive(Debug)]
pub struct Machines {
    pub now_ms: u64,
    pub epoch: u64,
    pub rng: SmallRng,
    pub programs: Vec<Program>,
    pub nodes: BTreeMap<ExecutorId, Node>,
    pub store: BTreeMap<StoredKey, Data>,
    pub seen: BTreeMap<&'static str, u64>,
    pub violations: Vec<String>,
    /// Whether every copy that an attempt is told of must be readable: nothing was ever lost.
    pub nothing_lost: bool,
    /// Whether tasks may be bound to an executor: none of them goes.
    pub may_bind: bool,
    /// Counts each executor's links.
    pub sessions: BTreeMap<ExecutorId, u64>,
    /// Until when what was on its way over a broken link still arrives.
    pub cut_links: BTreeMap<(ExecutorId, u64), u64>,
    pub delay_ms: u64,
    pub duplicates: u32,
    pub failed_once: BTreeSet<TaskId>,
    /// Keys whose executor died before it was told to drop them.
    pub unswept: BTreeSet<StoredKey>,
    /// Attempts that were told to stop.
    pub stopped: BTreeSet<AttemptId>,
    queue: BinaryHeap<Reverse<(u64, u64, Ordered)>>,
    sequence: u64,
    /// When the last message of an attempt arrives, each way: messages of one attempt stay in order.
    channels: BTreeMap<(AttemptId, bool), u64>,
}

/// Happenings are ordered by time and number only.
#[derive(Debug)]
struct Ordered(Happening);

impl PartialEq for Ordered {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Machines {
    pub fn new(rng: SmallRng, programs: Vec<Program>) -> Self {
        Self {
            now_ms: 0,
            epoch: 1,
            rng,
            programs,
            nodes: BTreeMap::new(),
            store: BTreeMap::new(),
            seen: BTreeMap::new(),
            violations: Vec::new(),
            nothing_lost: true,
            may_bind: true,
            sessions: BTreeMap::new(),
            cut_links: BTreeMap::new(),
            delay_ms: 0,
            duplicates: 0,
            failed_once: BTreeSet::new(),
            stopped: BTreeSet::new(),
            unswept: BTreeSet::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            channels: BTreeMap::new(),
        }
    }

    /// Has something happen at a time.
    pub fn at(&mut self, at_ms: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse((at_ms, self.sequence, Ordered(happening))));
    }

    /// Has something happen within the next `most_ms`, by chance.
    pub fn within(&mut self, most_ms: u64, happening: Happening) {
        let delay_ms = self.rng.random_range(0..=most_ms);
        self.at(self.now_ms + delay_ms, happening);
    }

    /// The next happening; time moves to it.
    pub fn next(&mut self) -> Option<Happening> {
        let Reverse((at_ms, _, Ordered(happening))) = self.queue.pop()?;
        self.now_ms = self.now_ms.max(at_ms);
        Some(happening)
    }

    /// A branch that is seldom taken was taken.
    pub fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Whether the task has not failed by itself before.
    pub fn first_time(&mut self, task: TaskId) -> bool {
        self.failed_once.insert(task)
    }

    pub fn compute(&mut self, executor: ExecutorId, attempt: AttemptId, ms: u64) {
        let slow = self.nodes.get(&executor).map_or(1, |node| node.slow);
        let slow = if slow > 1 && self.rng.random_ratio(1, 3) { slow } else { 1 };
        self.at(self.now_ms + ms * slow, Happening::Computed { executor, attempt });
    }

    fn arrival(&mut self, attempt: Option<AttemptId>, to_owner: bool) -> u64 {
        let arrival = self.now_ms + self.rng.random_range(0..=self.delay_ms);
        let Some(attempt) = attempt else { return arrival };
        let last = self.channels.entry((attempt, to_owner)).or_default();
        *last = arrival.max(*last);
        *last
    }

    pub fn session(&self, executor: ExecutorId) -> u64 {
        self.sessions.get(&executor).copied().unwrap_or_default()
    }

    /// The executor's link is gone, and with it its attempts and what was on its way.
    pub fn cut(&mut self, executor: ExecutorId) {
        let arrives_until_ms = self.now_ms + self.rng.random_range(0..=self.delay_ms);
        self.cut_links.insert((executor, self.session(executor)), arrives_until_ms);
        *self.sessions.entry(executor).or_default() += 1;
        if let Some(node) = self.nodes.get_mut(&executor) {
            node.linked = false;
            node.machines.clear();
        }
    }

    /// A message to an executor was lost with its link. What it was to drop it drops when it is back; if it never is,
    /// what it has put into the object store stays there, until its job's prefix is swept.
    pub fn undelivered(&mut self, message: &ToExecutor) {
        if let ToExecutor::Free(keys) = message {
            self.unswept.extend(keys);
        }
    }

    /// Whether a message that was sent over that link still arrives.
    pub fn arrives(&mut self, epoch: u64, session: u64, executor: ExecutorId) -> bool {
        if session == self.session(executor) {
            return true;
        }
        self.note("a message came late, for a former owner or link");
        let until_ms = self.cut_links.get(&(executor, session)).copied().unwrap_or_default();
        if epoch == self.epoch { self.now_ms <= until_ms } else { self.rng.random_bool(0.5) }
    }

    /// Sends a message to the owner.
    pub fn send(&mut self, executor: ExecutorId, attempt: Option<AttemptId>, message: FromExecutor) {
        if self.nodes.get(&executor).is_some_and(|node| !node.linked) {
            return;
        }
        let at_ms = self.arrival(attempt, true);
        let (epoch, session) = (self.epoch, self.session(executor));
        let happening = Happening::ToOwner { epoch, session, executor, message: Box::new(message) };
        if self.duplicates > 0 && self.rng.random_ratio(self.duplicates, 1000) {
            let later = at_ms + self.rng.random_range(0..=100);
            self.at(later, happening.clone());
            self.note("a message came twice");
        }
        self.at(at_ms, happening);
    }

    /// Sends a message to an executor.
    pub fn send_down(&mut self, executor: ExecutorId, message: ToExecutor) {
        if self.nodes.get(&executor).is_some_and(|node| !node.linked) {
            return self.undelivered(&message); // The owner has not noticed yet that the link is broken.
        }
        let attempt = match &message {
            ToExecutor::Run(run) => Some(run.attempt),
            ToExecutor::Stop { attempt, .. }
            | ToExecutor::Woken { attempt, .. }
            | ToExecutor::Next { attempt, .. }
            | ToExecutor::MayYield { attempt, .. } => Some(*attempt),
            ToExecutor::Free(_) | ToExecutor::Prefetch(_) | ToExecutor::Peers(_) => None,
        };
        let at_ms = self.arrival(attempt, false);
        let message = Box::new(message);
        let (epoch, session) = (self.epoch, self.session(executor));
        self.at(at_ms, Happening::ToExecutor { epoch, session, executor, message });
    }

    /// What a reader on `executor` gets: from its cache, a peer's, or the object store.
    pub fn read(&self, executor: ExecutorId, stored: &Stored) -> Option<Data> {
        let cached = |id: ExecutorId| self.nodes.get(&id)?.cache.get(&stored.key);
        let found = cached(executor).or_else(|| cached(stored.at?)).or_else(|| self.store.get(&stored.key));
        found.cloned()
    }

    pub fn could_not_read(&mut self, attempt: AttemptId, stored: &Stored) {
        if stored.at.is_none() && !stored.durable {
            return self.note("a replay wanted what it had been told of and was given up");
        }
        self.note("a copy could not be read");
        if self.nothing_lost && !self.stopped.contains(&attempt) {
            self.violation(format!("{attempt:?} could not read {:?}, which nothing had taken", stored.key));
        }
    }

    pub fn write(&mut self, executor: ExecutorId, key: StoredKey, data: Data, durability: Durability) {
        match durability {
            Durability::Eager => {
                self.store.insert(key, data.clone());
                self.nodes.entry(executor).and_modify(|node| {
                    node.uploaded.insert(key);
                });
            }
            Durability::Lazy => self.within(300, Happening::Upload { executor, key }),
            Durability::None => {}
        }
        if let Some(node) = self.nodes.get_mut(&executor) {
            node.cache.insert(key, data);
        }
    }

    pub fn upload(&mut self, executor: ExecutorId, key: StoredKey) {
        let Some(node) = self.nodes.get_mut(&executor).filter(|node| !node.freed.contains(&key)) else {
            return;
        };
        let Some(data) = node.cache.get(&key).cloned() else { return };
        self.store.insert(key, data);
        node.uploaded.insert(key);
        self.send(executor, None, FromExecutor::Durable(key));
    }

    /// The owner removes an object.
    pub fn remove(&mut self, key: StoredKey) {
        self.store.remove(&key);
        if self.nodes.values().any(|node| node.cache.contains_key(&key)) {
            self.unswept.insert(key); // An executor without a link may upload it after this, and never come back.
        }
    }

    pub fn free(&mut self, executor: ExecutorId, keys: &[StoredKey]) {
        let Some(node) = self.nodes.get_mut(&executor) else {
            // It died before it was told: what it had put into the object store stays there, until its job's prefix
            // is swept.
            self.unswept.extend(keys);
            return;
        };
        for key in keys {
            node.cache.remove(key);
            node.freed.insert(*key);
            self.store.remove(key);
        }
    }

    /// What the attempts on an executor occupy must never be more than it has. (A generator that was held back may
    /// compute for a moment without a slot; see `fanfold-scheduler`.)
    pub fn check_room(&mut self, executor: ExecutorId) {
        let Some(node) = self.nodes.get(&executor) else { return };
        let memory: u64 = node.machines.values().map(|machine| machine.memory).sum();
        let generators = node.machines.values().any(|machine| machine.is_generator);
        let computing = node.machines.values().filter(|machine| machine.computes());
        let cpu_millis: u32 = computing.map(|machine| machine.cpu_millis).sum();
        if memory > node.most.memory || (!generators && cpu_millis > node.most.cpu_millis) {
            let what = format!("{executor} runs more than it has: {memory} memory, {cpu_millis} cpu");
            self.violation(what);
        }
    }
}
