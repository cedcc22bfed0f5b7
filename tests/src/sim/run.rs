//! One run: the plan's faults, the owner's steps, and what must hold at each.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_protocol::{
    AttemptId, ExecutorId, JobId, TaskId,
    message::{FromExecutor, ToExecutor},
    record::Record,
    value::{Output, StoredKey},
};
use fanfold_scheduler::{Command, Event, JobEnd, JobStart, Replay, Scheduler};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use super::{
    machine::Machine,
    owner::{Fate, JobRun, Owner},
    plan::{Fault, Plan, Size},
    program,
    trace::Trace,
    world::{Happening, Machines},
};

/// More happenings than any run has that goes on.
const HAPPENINGS_MAX: u64 = 400_000;
/// More virtual time than any run takes.
const TIME_MS_MAX: u64 = 30 * 60_000;

/// What a run gave.
#[derive(Debug)]
pub struct Report {
    /// What was wrong; empty if nothing.
    pub violations: Vec<String>,
    /// Rare branches that were taken, and how often.
    pub seen: BTreeMap<&'static str, u64>,
    /// Of everything that happened, in order.
    pub hash: u64,
    /// How much happened.
    pub happenings: u64,
}

/// Runs the plan of `seed`.
pub fn run(seed: u64, print: bool) -> Report {
    let mut rng = SmallRng::seed_from_u64(seed);
    let plan = Plan::new(&mut rng);
    Run::new(plan, rng, print).play()
}

pub(super) struct Run {
    pub(super) plan: Plan,
    pub(super) world: Machines,
    pub(super) owner: Owner,
    pub(super) trace: Trace,
    pub(super) next_executor: u64,
    /// Attempts that were started, by task: no token is used twice.
    pub(super) started: BTreeSet<AttemptId>,
    pub(super) runs: BTreeMap<TaskId, u32>,
    /// Attempts that are believed, by task, and where they are.
    pub(super) believed: BTreeMap<TaskId, BTreeMap<AttemptId, ExecutorId>>,
    pub(super) own_failures: BTreeMap<TaskId, u32>,
    /// Tasks that have finished well in this epoch.
    pub(super) finished: BTreeSet<TaskId>,
    /// What each wait asked for, and those that were answered short.
    pub(super) waits: BTreeMap<(TaskId, u64), (u32, usize)>,
    /// Waits of each attempt that are recorded.
    pub(super) choices: BTreeMap<AttemptId, BTreeMap<u64, u64>>,
    pub(super) short: BTreeMap<(TaskId, u64), AttemptId>,
    /// Keys the present owner was told of.
    pub(super) told: BTreeSet<StoredKey>,
    pub(super) rotted: BTreeSet<StoredKey>,
    /// Executors that the present owner has.
    pub(super) members: BTreeSet<ExecutorId>,
    /// Tasks that have waited.
    pub(super) drivers: BTreeSet<TaskId>,
    /// Whether a task that had called others failed by itself and was replayed.
    pub(super) replayed: bool,
}

impl Run {
    pub(super) fn new(mut plan: Plan, rng: SmallRng, print: bool) -> Self {
        let programs = std::mem::take(&mut plan.programs);
        let jobs = plan.jobs.iter().enumerate().map(|(n, job)| JobRun {
            id: JobId(uuid_of(n)),
            program: job.program,
            recorded: job.recorded,
            weight: job.weight,
            expected: program::evaluate(&programs, job.program, &[]),
            fate: Fate::NotStarted,
            frees: Vec::new(),
            cancelled: false,
        });
        let owner = Owner::new(jobs.collect(), plan.random_tasks);
        let mut world = Machines::new(rng, programs);
        (world.delay_ms, world.duplicates) = (plan.delay_ms, plan.duplicates);
        world.nothing_lost =
            !plan.has(|fault| matches!(fault, Fault::Kill | Fault::Rot | Fault::Link | Fault::Gateway(_)));
        world.may_bind = world.nothing_lost && !plan.has(|fault| matches!(fault, Fault::Drain));
        Self {
            plan,
            world,
            owner,
            trace: Trace::new(print),
            next_executor: 1,
            started: BTreeSet::new(),
            runs: BTreeMap::new(),
            believed: BTreeMap::new(),
            own_failures: BTreeMap::new(),
            finished: BTreeSet::new(),
            waits: BTreeMap::new(),
            choices: BTreeMap::new(),
            short: BTreeMap::new(),
            told: BTreeSet::new(),
            rotted: BTreeSet::new(),
            members: BTreeSet::new(),
            drivers: BTreeSet::new(),
            replayed: false,
        }
    }

    pub(super) fn play(mut self) -> Report {
        for (n, program) in self.world.programs.iter().enumerate() {
            self.trace.fact(0, format_args!("program {n}: {program:?}"));
        }
        self.owner.scheduler = Some(Scheduler::new(self.world.epoch));
        for size in std::mem::take(&mut self.plan.executors) {
            self.join(size);
        }
        for (n, job) in self.plan.jobs.iter().enumerate() {
            self.world.at(job.start_ms, Happening::StartJob(n));
        }
        for &(at_ms, fault) in &self.plan.faults {
            self.world.at(at_ms, Happening::Fault(fault));
        }
        let mut happenings = 0;
        while self.world.violations.is_empty()
            && let Some(happening) = self.world.next()
        {
            happenings += 1;
            if happenings > HAPPENINGS_MAX || self.world.now_ms > TIME_MS_MAX {
                self.world.violation("it does not end".to_owned());
            }
            self.happen(happening);
        }
        if self.world.violations.is_empty() {
            self.check_at_the_end();
        }
        let Machines { violations, seen, .. } = self.world;
        Report { violations, seen, hash: self.trace.hash(), happenings }
    }

    pub(super) fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ToOwner { epoch, session, executor, message } => {
                self.at_owner(epoch, session, executor, *message);
            }
            Happening::ToExecutor { epoch, session, executor, message }
                if epoch == self.world.epoch && session == self.world.session(executor) =>
            {
                self.at_executor(executor, *message);
            }
            Happening::ToExecutor { message, .. } => self.world.undelivered(&message),
            Happening::Computed { executor, attempt } => self.resume(executor, attempt, None),
            Happening::Upload { executor, key } => self.world.upload(executor, key),
            Happening::Tick { epoch, at_ms } => {
                if epoch == self.world.epoch && self.owner.wake_at_ms == Some(at_ms) {
                    self.owner.wake_at_ms = None;
                    self.step(Event::Tick);
                }
            }
            Happening::StartJob(n) => self.start_job(n),
            Happening::Announce { epoch, job } if epoch == self.world.epoch => self.announce(job),
            Happening::Announce { .. } => {}
            Happening::Fault(fault) => self.fault(fault),
            Happening::Noticed { epoch, executor } => {
                let back = self.world.nodes.get(&executor).is_some_and(|node| node.linked);
                if epoch == self.world.epoch && !back {
                    self.step(Event::ExecutorLeft(executor));
                }
            }
            Happening::Join => {
                let size = Size::any(&mut self.world.rng, self.plan.executor_memory);
                self.join(size);
            }
            Happening::Dial(executor) => self.dial(executor),
            Happening::Drained(executor) => self.drained(executor),
            Happening::Depart(executor) => self.depart(executor),
            Happening::GatewayUp => self.gateway_up(),
        }
    }

    pub(super) fn at_executor(&mut self, executor: ExecutorId, message: ToExecutor) {
        if let ToExecutor::Free(keys) = &message {
            return self.world.free(executor, keys);
        }
        if !self.world.nodes.contains_key(&executor) {
            return;
        }
        match message {
            ToExecutor::Run(run) if self.is_draining(executor) => self.hand_back(executor, run.attempt),
            ToExecutor::Run(run) => {
                let (attempt, program) = (run.attempt, run.entry.parse().unwrap_or_default());
                let machine = Machine::new(*run, executor, program, &self.world.programs);
                if let Some(node) = self.world.nodes.get_mut(&executor) {
                    node.machines.insert(attempt, machine);
                }
                self.world.check_room(executor);
                self.resume(executor, attempt, None);
            }
            ToExecutor::Stop { attempt, error } => {
                let machine =
                    self.world.nodes.get_mut(&executor).and_then(|node| node.machines.remove(&attempt));
                if let Some(mut machine) = machine {
                    machine.send_finished(Err(error), &mut self.world);
                }
            }
            ToExecutor::Free(_) | ToExecutor::Prefetch(_) | ToExecutor::Peers(_) => {}
            ToExecutor::Woken { attempt, .. }
            | ToExecutor::Next { attempt, .. }
            | ToExecutor::MayYield { attempt, .. } => self.resume(executor, attempt, Some(message)),
        }
    }

    pub(super) fn resume(&mut self, executor: ExecutorId, attempt: AttemptId, message: Option<ToExecutor>) {
        let node = self.world.nodes.get_mut(&executor);
        let Some(mut machine) = node.and_then(|node| node.machines.remove(&attempt)) else { return };
        match message {
            Some(message) => machine.told(message, &mut self.world),
            None => machine.computed(),
        }
        let finished = machine.advance(&mut self.world);
        if !finished && let Some(node) = self.world.nodes.get_mut(&executor) {
            node.machines.insert(attempt, machine);
        }
        self.world.check_room(executor);
    }

    pub(super) fn step(&mut self, event: Event) {
        match &event {
            Event::ExecutorJoined { offer, held } => {
                self.told.extend(held.iter().map(|held| held.key));
                self.members.insert(offer.executor);
                self.watch_left(offer.executor);
            }
            Event::ExecutorLeft(executor) => {
                self.members.remove(executor);
                self.watch_left(*executor);
            }
            _ => {}
        }
        let Some(mut scheduler) = self.owner.scheduler.take() else { return };
        let now_ms = self.world.now_ms;
        self.trace.event(now_ms, &event, &self.owner.names);
        let mut out = Vec::new();
        let held = match &event {
            Event::ExecutorJoined { held, .. } => held.clone(),
            _ => Vec::new(),
        };
        scheduler.step(now_ms, event, &mut out);
        self.watch_held(&held, &out);
        for view in scheduler.executors() {
            if !view.free.fits(&view.total) {
                self.world.violation(format!("more is free than there is: {view:?}"));
            }
            let starts = |command: &Command| matches!(command, Command::Send { executor, message: ToExecutor::Run(_) } if *executor == view.id);
            if (view.leaving || !view.used.fits(&view.total)) && out.iter().any(starts) {
                self.world.violation(format!("something was started where there is no room: {view:?}"));
            }
        }
        self.owner.scheduler = Some(scheduler);
        let mut ended = None;
        for command in out {
            self.trace.command(now_ms, &command, &self.owner.names);
            match (&command, ended) {
                (Command::JobEnded(end), _) => {
                    ended = self.owner.job(end.job).filter(|(_, job)| job.recorded).map(|(n, _)| n);
                }
                // What a recorded job leaves is removed when its end is durable.
                (Command::Free(_) | Command::Send { message: ToExecutor::Free(_), .. }, Some(n)) => {
                    self.owner.jobs[n].frees.push(command);
                    continue;
                }
                _ => {}
            }
            self.obey(command);
        }
    }

    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Send { executor, message } => {
                self.watch_sent(executor, &message);
                self.world.send_down(executor, message);
            }
            Command::Record(record) => self.record(record),
            Command::WakeAt(at_ms) => {
                self.owner.wake_at_ms = Some(at_ms);
                let (at_ms_real, epoch) = (at_ms.max(self.world.now_ms), self.world.epoch);
                self.world.at(at_ms_real, Happening::Tick { epoch, at_ms });
            }
            Command::JobEnded(end) => self.job_ended(end),
            Command::Free(keys) => {
                self.world.note("an object was removed by the owner");
                for key in keys {
                    self.world.remove(key);
                }
            }
            // No simulated call asks for it.
            Command::Memoise { key, .. } => self.world.violation(format!("{key} was to be memoised")),
            Command::Stalled { reason, .. } => self.world.violation(format!("stalled: {reason}")),
        }
    }

    pub(super) fn record(&mut self, record: Record) {
        match &record {
            Record::Waited { task, wait, ready, .. } => self.watch_answer(*task, *wait, ready),
            Record::AttemptFailed { .. } => self.world.note("a root was tried again"),
            _ => {}
        }
        let delay_ms = self.world.rng.random_range(0..=self.plan.journal_ms);
        let ended = match &record {
            Record::Ended { job, .. } => self.owner.job(*job).map(|(n, _)| n),
            _ => None,
        };
        let (durable_at_ms, again) = self.owner.append(self.world.now_ms, delay_ms, record);
        if again {
            self.world.violation("a task committed twice in the log".to_owned());
        }
        if let Some(job) = ended {
            let epoch = self.world.epoch;
            self.world.at(durable_at_ms, Happening::Announce { epoch, job });
        }
    }

    pub(super) fn job_ended(&mut self, end: Box<JobEnd>) {
        let Some((n, job)) = self.owner.job(end.job) else { return };
        if !matches!(job.fate, Fate::Running) {
            return self.world.violation(format!("job{n} ended twice"));
        }
        let recorded = job.recorded;
        job.fate = Fate::Ended(end);
        if !recorded {
            self.announce(n);
        }
    }

    pub(super) fn start_job(&mut self, n: usize) {
        if self.owner.scheduler.is_none() {
            return self.world.within(50, Happening::StartJob(n)); // Nobody to accept it; the client tries again.
        }
        self.owner.jobs[n].fate = Fate::Running;
        self.begin(n, Replay::default());
    }

    pub(super) fn begin(&mut self, n: usize, replay: Replay) {
        let root = self.owner.root(n, &self.world.programs);
        let JobRun { id, recorded, weight, .. } = self.owner.jobs[n];
        let start = JobStart { job: id, root, recorded, weight, replay };
        self.step(Event::JobStarted(Box::new(start)));
    }

    pub(super) fn at_owner(&mut self, epoch: u64, session: u64, executor: ExecutorId, message: FromExecutor) {
        let late = session != self.world.session(executor);
        let of_link = matches!(message, FromExecutor::Offer(_) | FromExecutor::Leaving);
        if (late && of_link) || !self.world.arrives(epoch, session, executor) {
            return;
        }
        if epoch == self.world.epoch && self.members.contains(&executor) {
            self.watch_received(&message);
        }
        match self.owner.resolve(self.world.now_ms, &self.world.programs, &message) {
            Some((task, spec)) => {
                let FromExecutor::Submit { attempt, .. } = message else { return };
                self.step(Event::Submitted { attempt, task, spec: Box::new(spec) });
            }
            None => self.step(Event::From { executor, message }),
        }
    }
}

pub(super) fn key_of(output: &Output) -> Option<StoredKey> {
    match output {
        Output::Stored(stored) => Some(stored.key),
        _ => None,
    }
}

fn uuid_of(n: usize) -> uuid::Uuid {
    uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n as u128)
}
