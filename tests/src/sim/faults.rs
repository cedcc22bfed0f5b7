//! The faults of a run, and the gateway's return.

use fanfold_protocol::{Code, Error, ExecutorId, Kind, value::StoredKey};
use fanfold_scheduler::{Event, Scheduler};
use rand::Rng as _;

use super::{
    owner::Fate,
    plan::{Company, Fault},
    run::Run,
    world::Happening,
};

impl Run {
    pub(super) fn fault(&mut self, fault: Fault) {
        if self.owner.jobs.iter().all(|job| matches!(job.fate, Fate::Announced(_) | Fate::Vanished)) {
            return;
        }
        self.trace.fact(self.world.now_ms, format_args!("fault: {fault:?}"));
        match fault {
            Fault::Kill => self.kill_one(),
            Fault::KillThis(victim) if self.world.nodes.contains_key(&victim) => self.kill(victim),
            Fault::KillThis(_) => {}
            Fault::Join => self.happen(Happening::Join),
            Fault::Rot => self.rot(),
            Fault::Drain => self.drain(),
            Fault::Offer => self.offer(),
            Fault::Link => self.cut(),
            Fault::Gateway(company) => self.gateway_down(company),
            Fault::Cancel(n) => {
                let job = &mut self.owner.jobs[n];
                if matches!(job.fate, Fate::Running) && self.owner.scheduler.is_some() {
                    job.cancelled = true;
                    let error = Error::new(Kind::Platform, Code::Cancelled, "asked").retryable(false);
                    let job = job.id;
                    self.step(Event::Cancel { job, error });
                }
            }
        }
    }

    pub(super) fn kill_one(&mut self) {
        let victims: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
        if victims.is_empty() {
            return;
        }
        let victim = victims[self.world.rng.random_range(0..victims.len())];
        self.kill(victim);
    }

    pub(super) fn kill(&mut self, victim: ExecutorId) {
        self.world.nodes.remove(&victim);
        self.world.note("an executor died");
        let epoch = self.world.epoch;
        self.world.within(100, Happening::Noticed { epoch, executor: victim });
        self.world.within(1000, Happening::Join);
    }

    pub(super) fn rot(&mut self) {
        let copies: Vec<(ExecutorId, StoredKey)> =
            self.world.nodes.iter().flat_map(|(id, node)| node.cache.keys().map(|key| (*id, *key))).collect();
        if copies.is_empty() {
            return;
        }
        let (executor, key) = copies[self.world.rng.random_range(0..copies.len())];
        self.world.note("a copy rotted");
        self.rotted.insert(key);
        self.world.store.remove(&key);
        if let Some(node) = self.world.nodes.get_mut(&executor) {
            node.cache.remove(&key);
            node.freed.insert(key);
        }
    }

    pub(super) fn gateway_down(&mut self, company: Company) {
        if self.owner.scheduler.is_none() {
            return;
        }
        self.owner.die(self.world.now_ms);
        self.world.epoch += 1;
        self.told.clear();
        self.members.clear();
        self.believed.clear();
        // Executors end the attempts of an owner they have lost. What is on its way to it may still arrive.
        let executors: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
        executors.into_iter().for_each(|executor| self.world.cut(executor));
        match company {
            Company::Stays => {}
            Company::Goes => {
                let executors: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
                executors.into_iter().for_each(|executor| self.kill(executor));
            }
            Company::Returns => {
                for node in self.world.nodes.values_mut() {
                    node.cache.clear();
                    node.freed.clear();
                    node.uploaded.clear();
                }
            }
        }
        self.world.within(300, Happening::GatewayUp);
    }

    pub(super) fn gateway_up(&mut self) {
        self.world.note("a gateway started from a journal");
        self.owner.scheduler = Some(Scheduler::new(self.world.epoch));
        self.finished.clear();
        // Some are here before the owner has read its journal; others come when they hear of it.
        let executors: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
        for executor in executors {
            match self.world.rng.random_range(0..4) {
                0..2 => self.dial(executor),
                2 => self.world.within(100, Happening::Dial(executor)),
                _ => self.world.within(4000, Happening::Dial(executor)),
            }
        }
        for n in 0..self.owner.jobs.len() {
            if !matches!(self.owner.jobs[n].fate, Fate::Running) {
                continue;
            }
            let store = self.plan.owner_probes.then_some(&self.world.store);
            match self.owner.replay(self.owner.jobs[n].id, store) {
                Some(replay) => {
                    if !replay.committed.is_empty() {
                        self.world.note("a job went on with what had been committed");
                    }
                    self.begin(n, replay);
                }
                None => self.world.violation(format!("job{n} ended durably and was not announced")),
            }
        }
    }
}
