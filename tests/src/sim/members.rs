//! Executors of the simulated cluster: how they come, come back, drain and go.

use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, Kind,
    link::Held,
    message::{FromExecutor, Offer, Spent, ToExecutor, Usage},
    value::StoredKey,
};
use fanfold_scheduler::{Command, Event};
use rand::Rng as _;

use super::{
    owner::Fate,
    plan::Size,
    run::{Run, key_of},
    world::{Happening, Node},
};

impl Run {
    /// A new executor.
    pub(super) fn join(&mut self, size: Size) {
        let executor = ExecutorId(self.next_executor);
        self.next_executor += 1;
        let offer = Offer {
            executor,
            cpu_millis: size.cpu_millis,
            memory: size.memory,
            gpu: 0,
            adapter: None,
            custom: Default::default(),
        };
        let slow = if executor.0.is_multiple_of(2) { self.plan.slow } else { 1 };
        let node = Node {
            offer,
            most: size,
            slow,
            linked: false,
            draining: false,
            uploaded: Default::default(),
            cache: Default::default(),
            freed: Default::default(),
            machines: Default::default(),
        };
        self.world.nodes.insert(executor, node);
        self.dial(executor);
    }

    /// The executor says hello to the owner, if there is one and it has no link. While there is none it waits for one.
    pub(super) fn dial(&mut self, executor: ExecutorId) {
        let Some(node) = self.world.nodes.get_mut(&executor).filter(|node| !node.linked) else { return };
        if self.owner.scheduler.is_none() {
            return;
        }
        node.linked = true;
        *self.world.sessions.entry(executor).or_default() += 1;
        let Some(node) = self.world.nodes.get(&executor) else { return };
        let (offer, draining) = (node.offer.clone(), node.draining);
        let held = node.cache.keys().map(|key| Held { key: *key, durable: node.uploaded.contains(key) });
        let held: Vec<Held> = held.collect();
        if !held.is_empty() {
            self.world.note("an executor joined with what it had");
        }
        let held = held.into_iter().filter(|held| self.is_live(executor, held.key)).collect();
        self.step(Event::ExecutorJoined { offer, held });
        if draining {
            self.world.send(executor, None, FromExecutor::Leaving);
        }
    }

    /// Whether the copy is of a job that goes on. Those of others the owner sees to itself.
    fn is_live(&mut self, executor: ExecutorId, key: StoredKey) -> bool {
        let Some((n, job)) = self.owner.job(key.job) else { return false };
        let kept =
            |end: &fanfold_scheduler::JobEnd| end.kept.iter().any(|(_, output)| key_of(output) == Some(key));
        match &job.fate {
            Fate::Running | Fate::NotStarted => return true,
            Fate::Ended(end) | Fate::Announced(end) if kept(end) => {}
            Fate::Ended(_) => {
                let message = ToExecutor::Free(vec![key]);
                self.owner.jobs[n].frees.push(Command::Send { executor, message });
            }
            Fate::Announced(_) | Fate::Vanished => self.world.free(executor, &[key]),
        }
        false
    }

    fn any_node(&mut self) -> Option<ExecutorId> {
        let nodes: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
        let any = self.world.rng.random_range(0..nodes.len().max(1));
        nodes.get(any).copied()
    }

    /// A link breaks. The owner may hear of it only when the executor is back.
    pub(super) fn cut(&mut self) {
        let Some(executor) = self.any_node() else { return };
        self.world.note("a link broke");
        self.world.cut(executor);
        let epoch = self.world.epoch;
        self.world.within(100, Happening::Noticed { epoch, executor });
        let most_ms = if self.world.rng.random_bool(0.5) { 50 } else { 3000 };
        self.world.within(most_ms, Happening::Dial(executor));
    }

    /// An executor offers something else than before.
    pub(super) fn offer(&mut self) {
        let Some(executor) = self.any_node() else { return };
        let size = Size::any(&mut self.world.rng, self.plan.executor_memory);
        let Some(node) = self.world.nodes.get_mut(&executor) else { return };
        let less = size.memory < node.offer.memory || size.cpu_millis < node.offer.cpu_millis;
        (node.offer.memory, node.offer.cpu_millis) = (size.memory, size.cpu_millis);
        node.most.memory = node.most.memory.max(size.memory);
        node.most.cpu_millis = node.most.cpu_millis.max(size.cpu_millis);
        let offer = node.offer.clone();
        if less {
            self.world.note("an executor offered less");
        }
        self.world.send(executor, None, FromExecutor::Offer(offer));
    }

    /// An executor is asked to go; another one comes.
    pub(super) fn drain(&mut self) {
        let Some(executor) = self.any_node() else { return };
        let Some(node) = self.world.nodes.get_mut(&executor).filter(|node| !node.draining) else { return };
        node.draining = true;
        self.world.send(executor, None, FromExecutor::Leaving);
        self.world.within(100, Happening::Drained(executor));
        self.world.within(1000, Happening::Join);
    }

    pub(super) fn is_draining(&self, executor: ExecutorId) -> bool {
        self.world.nodes.get(&executor).is_some_and(|node| node.draining)
    }

    /// An executor that is about to leave does not begin the attempt.
    pub(super) fn hand_back(&mut self, executor: ExecutorId, attempt: AttemptId) {
        self.world.note("an attempt was handed back");
        let error = Error::new(Kind::Overloaded, Code::Draining, "the executor is stopping");
        let (usage, spent, logs) = (Usage::default(), Spent::default(), bytes::Bytes::new());
        let message = FromExecutor::Finished { attempt, result: Err(error), usage, spent, logs };
        self.world.send(executor, Some(attempt), message);
    }

    /// Goes on to leave, once nothing runs and everything is in the object store.
    pub(super) fn drained(&mut self, executor: ExecutorId) {
        let Some(node) = self.world.nodes.get(&executor) else { return };
        if !node.machines.is_empty() {
            return self.world.within(50, Happening::Drained(executor));
        }
        let keys = node.cache.keys().filter(|key| !node.uploaded.contains(*key));
        let keys: Vec<StoredKey> = keys.copied().collect();
        // Each when all that was said before has arrived.
        let (now_ms, step_ms) = (self.world.now_ms, self.world.delay_ms + 1);
        for key in keys {
            self.world.at(now_ms + step_ms, Happening::Upload { executor, key });
        }
        self.world.at(now_ms + 2 * step_ms + 1, Happening::Depart(executor));
    }

    pub(super) fn depart(&mut self, executor: ExecutorId) {
        let Some(node) = self.world.nodes.remove(&executor) else { return };
        self.world.note("an executor drained and left");
        if node.linked {
            self.step(Event::ExecutorLeft(executor));
        }
    }
}
