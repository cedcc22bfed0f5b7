//! One run: the plan's faults, the owner's steps, and what must hold at each.

use std::collections::{BTreeMap, BTreeSet};

use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, JobId, Kind, TaskId,
    message::{FromExecutor, Offer, ToExecutor},
    record::Record,
    value::{Output, StoredKey},
};
use fanfold_scheduler::{Command, Event, JobEnd, JobStart, Replay, Scheduler};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use super::{
    machine::{self, Machine},
    owner::{Fate, JobRun, Owner},
    plan::{Fault, Plan},
    program::{self, Future},
    trace::Trace,
    world::{Happening, Machines, Node},
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

struct Run {
    plan: Plan,
    world: Machines,
    owner: Owner,
    trace: Trace,
    next_executor: u64,
    /// Attempts that were started, by task: no token is used twice.
    started: BTreeSet<AttemptId>,
    runs: BTreeMap<TaskId, u32>,
    own_failures: BTreeMap<TaskId, u32>,
    /// Tasks that have finished well in this epoch.
    finished: BTreeSet<TaskId>,
    /// What each wait asked for, and those that were answered short.
    waits: BTreeMap<(TaskId, u64), (u32, usize)>,
    /// Waits of each attempt that are recorded.
    choices: BTreeMap<AttemptId, BTreeMap<u64, u64>>,
    short: BTreeMap<(TaskId, u64), AttemptId>,
    /// Keys the present owner was told of.
    told: BTreeSet<StoredKey>,
    rotted: BTreeSet<StoredKey>,
    /// Executors that the present owner has.
    members: BTreeSet<ExecutorId>,
    /// Tasks that have waited.
    drivers: BTreeSet<TaskId>,
    /// Whether a task that had called others failed by itself and was replayed.
    replayed: bool,
}

impl Run {
    fn new(mut plan: Plan, rng: SmallRng, print: bool) -> Self {
        let programs = std::mem::take(&mut plan.programs);
        let jobs = plan.jobs.iter().enumerate().map(|(n, job)| JobRun {
            id: JobId(uuid_of(n)),
            program: job.program,
            recorded: job.recorded,
            weight: job.weight,
            expected: program::evaluate(&programs, job.program, &[]),
            fate: Fate::NotStarted,
            cancelled: false,
        });
        let owner = Owner::new(jobs.collect());
        let mut world = Machines::new(rng, programs);
        (world.delay_ms, world.duplicates) = (plan.delay_ms, plan.duplicates);
        world.nothing_lost =
            !plan.has(|fault| matches!(fault, Fault::Kill | Fault::Rot | Fault::Gateway { .. }));
        Self {
            plan,
            world,
            owner,
            trace: Trace::new(print),
            next_executor: 1,
            started: BTreeSet::new(),
            runs: BTreeMap::new(),
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

    fn play(mut self) -> Report {
        for (n, program) in self.world.programs.iter().enumerate() {
            self.trace.fact(0, format_args!("program {n}: {program:?}"));
        }
        self.owner.scheduler = Some(Scheduler::new(self.world.epoch));
        for cpu_millis in std::mem::take(&mut self.plan.executors) {
            self.join(cpu_millis);
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

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ToOwner { epoch, executor, message } => self.to_owner(epoch, executor, *message),
            Happening::ToExecutor { epoch, executor, message } if epoch == self.world.epoch => {
                self.to_executor(executor, *message);
            }
            Happening::ToExecutor { .. } => {}
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
                if epoch == self.world.epoch {
                    self.step(Event::ExecutorLeft(executor));
                }
            }
            Happening::Join => {
                let cpu_millis = self.world.rng.random_range(1..=4) * 1000;
                self.join(cpu_millis);
            }
            Happening::GatewayUp => self.gateway_up(),
        }
    }

    // Executors.

    fn join(&mut self, cpu_millis: u32) {
        let executor = ExecutorId(self.next_executor);
        self.next_executor += 1;
        let offer = Offer { executor, cpu_millis, memory: self.plan.executor_memory, gpu: 0 };
        let node = Node {
            offer: offer.clone(),
            cache: BTreeMap::new(),
            freed: BTreeSet::new(),
            machines: BTreeMap::new(),
        };
        self.world.nodes.insert(executor, node);
        if self.owner.scheduler.is_some() {
            self.step(Event::ExecutorJoined(offer));
        }
    }

    fn to_executor(&mut self, executor: ExecutorId, message: ToExecutor) {
        if let ToExecutor::Free(keys) = &message {
            return self.world.free(executor, keys);
        }
        if !self.world.nodes.contains_key(&executor) {
            return;
        }
        match message {
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
            ToExecutor::Free(_) => {}
            ToExecutor::Woken { attempt, .. }
            | ToExecutor::Next { attempt, .. }
            | ToExecutor::MayYield { attempt, .. } => self.resume(executor, attempt, Some(message)),
        }
    }

    fn resume(&mut self, executor: ExecutorId, attempt: AttemptId, message: Option<ToExecutor>) {
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

    // The owner.

    fn step(&mut self, event: Event) {
        match &event {
            Event::ExecutorJoined(offer) => drop(self.members.insert(offer.executor)),
            Event::ExecutorLeft(executor) => drop(self.members.remove(executor)),
            _ => {}
        }
        let Some(mut scheduler) = self.owner.scheduler.take() else { return };
        let now_ms = self.world.now_ms;
        self.trace.event(now_ms, &event, &self.owner.names);
        let mut out = Vec::new();
        scheduler.step(now_ms, event, &mut out);
        for view in scheduler.executors() {
            if !view.free.fits(&view.total) {
                self.world.violation(format!("more is free than there is: {view:?}"));
            }
        }
        self.owner.scheduler = Some(scheduler);
        for command in out {
            self.trace.command(now_ms, &command, &self.owner.names);
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send { executor, message } => {
                self.watch_sent(&message);
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
                    self.world.store.remove(&key);
                }
            }
            Command::Stalled { reason, .. } => self.world.violation(format!("stalled: {reason}")),
        }
    }

    fn record(&mut self, record: Record) {
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

    fn job_ended(&mut self, end: Box<JobEnd>) {
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

    fn start_job(&mut self, n: usize) {
        if self.owner.scheduler.is_none() {
            return self.world.within(50, Happening::StartJob(n)); // Nobody to accept it; the client tries again.
        }
        self.owner.jobs[n].fate = Fate::Running;
        self.begin(n, Replay::default());
    }

    fn begin(&mut self, n: usize, replay: Replay) {
        let root = self.owner.root(n, &self.world.programs);
        let JobRun { id, recorded, weight, .. } = self.owner.jobs[n];
        let start = JobStart { job: id, root, recorded, weight, replay };
        self.step(Event::JobStarted(Box::new(start)));
    }

    fn to_owner(&mut self, epoch: u64, executor: ExecutorId, message: FromExecutor) {
        if epoch != self.world.epoch {
            if self.world.rng.random_bool(0.5) {
                return;
            }
            self.world.note("a message came for a former owner");
        } else if self.members.contains(&executor) {
            self.watch_received(&message);
        }
        match self.owner.resolve(&self.world.programs, &message) {
            Some((task, spec)) => {
                let FromExecutor::Submit { attempt, .. } = message else { return };
                self.step(Event::Submitted { attempt, task, spec: Box::new(spec) });
            }
            None => self.step(Event::From { executor, message }),
        }
    }

    // Faults.

    fn fault(&mut self, fault: Fault) {
        if self.owner.jobs.iter().all(|job| matches!(job.fate, Fate::Announced(_) | Fate::Vanished)) {
            return;
        }
        self.trace.fact(self.world.now_ms, format_args!("fault: {fault:?}"));
        match fault {
            Fault::Kill => self.kill_one(),
            Fault::Join => self.happen(Happening::Join),
            Fault::Rot => self.rot(),
            Fault::Gateway { alone } => self.gateway_down(alone),
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

    fn kill_one(&mut self) {
        let victims: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
        if victims.is_empty() {
            return;
        }
        let victim = victims[self.world.rng.random_range(0..victims.len())];
        self.kill(victim);
    }

    fn kill(&mut self, victim: ExecutorId) {
        self.world.nodes.remove(&victim);
        self.world.note("an executor died");
        let epoch = self.world.epoch;
        self.world.within(100, Happening::Noticed { epoch, executor: victim });
        self.world.within(1000, Happening::Join);
    }

    fn rot(&mut self) {
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

    fn gateway_down(&mut self, alone: bool) {
        if self.owner.scheduler.is_none() {
            return;
        }
        self.owner.die(self.world.now_ms);
        self.world.epoch += 1;
        self.told.clear();
        self.members.clear();
        // Executors end the attempts of an owner they have lost. What is on its way to either may still arrive.
        for node in self.world.nodes.values_mut() {
            node.machines.clear();
        }
        if !alone {
            let executors: Vec<ExecutorId> = self.world.nodes.keys().copied().collect();
            executors.into_iter().for_each(|executor| self.kill(executor));
        }
        self.world.within(300, Happening::GatewayUp);
    }

    fn gateway_up(&mut self) {
        self.world.note("a gateway started from a journal");
        self.owner.scheduler = Some(Scheduler::new(self.world.epoch));
        self.finished.clear();
        let offers: Vec<Offer> = self.world.nodes.values().map(|node| node.offer.clone()).collect();
        offers.into_iter().for_each(|offer| self.step(Event::ExecutorJoined(offer)));
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

    // What must hold, and what should be seen at least once.

    fn watch_sent(&mut self, message: &ToExecutor) {
        match message {
            ToExecutor::Run(run) => {
                let task = run.attempt.task;
                if !self.started.insert(run.attempt) {
                    self.world.violation(format!("{:?} was started twice", run.attempt));
                }
                *self.runs.entry(task).or_default() += 1;
                let program: usize = run.entry.parse().unwrap_or_default();
                if run.memory > self.world.programs[program].memory {
                    self.world.note("memory was doubled");
                }
                if self.finished.contains(&task) {
                    self.world.note("a committed task ran again");
                }
            }
            ToExecutor::Stop { attempt, error } => {
                self.world.stopped.insert(*attempt);
                match error.code {
                    Code::PartitionLost => {
                        self.world.note("an attempt was started anew for what it had made")
                    }
                    Code::Cancelled if error.message.contains("nothing refers") => {
                        self.world.note("an orphan was cancelled");
                    }
                    _ => {}
                }
            }
            ToExecutor::Woken { attempt, wait, ready } => {
                let choice = self.choices.get(attempt).and_then(|choices| choices.get(wait));
                let first = choice.and_then(|choice| self.short.get(&(attempt.task, *choice)));
                if first.is_some_and(|first| first != attempt) {
                    self.world.note("a short answer was given again to a replay");
                }
                for (_, result) in ready {
                    match result.as_ref().map_err(|error| error.code) {
                        Err(Code::NonDeterministic) => self.world.note("a lie was found out"),
                        Err(Code::PartitionLost) => self.world.note("a partition was lost for good"),
                        Ok(Output::Stored(stored)) if stored.at.is_none() && !stored.durable => {
                            self.world.note("a replay was told of what was given up");
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn watch_answer(&mut self, task: TaskId, wait: u64, ready: &[u32]) {
        let Some(&(count, _)) = self.waits.get(&(task, wait)) else { return };
        let latest = self
            .started
            .range(AttemptId { task, epoch: 0, number: 0 }..)
            .take_while(|a| a.task == task)
            .last();
        if let Some(&attempt) = latest {
            if ready.len() < count as usize {
                self.world.note("a timed-out wait was recorded");
            }
            self.short.insert((task, wait), attempt);
        }
    }

    fn watch_received(&mut self, message: &FromExecutor) {
        match message {
            FromExecutor::Wait { attempt, wait, on, count, timeout_ms } => {
                if timeout_ms.is_some() || (*count as usize) < on.len() {
                    let choices = self.choices.entry(*attempt).or_default();
                    let number = choices.len() as u64;
                    let number = *choices.entry(*wait).or_insert(number);
                    self.waits.insert((attempt.task, number), (*count, on.len()));
                }
                self.drivers.insert(attempt.task);
            }
            FromExecutor::Finished { attempt, result, .. } => self.watch_finished(*attempt, result),
            FromExecutor::Put { value, .. } | FromExecutor::Yield { value, .. } => {
                self.told.extend(key_of(value))
            }
            _ => {}
        }
    }

    fn watch_finished(&mut self, attempt: AttemptId, result: &Result<Vec<Output>, Error>) {
        match result {
            Ok(outputs) => {
                if self.world.stopped.contains(&attempt) {
                    self.world.note("a late result was fenced");
                } else {
                    self.finished.insert(attempt.task);
                }
                self.told.extend(outputs.iter().filter_map(key_of));
            }
            Err(_) if self.world.stopped.contains(&attempt) => {}
            Err(_) => {
                *self.own_failures.entry(attempt.task).or_default() += 1;
                self.replayed |= self.drivers.contains(&attempt.task);
            }
        }
    }

    fn announce(&mut self, n: usize) {
        let job = &mut self.owner.jobs[n];
        let fate = std::mem::replace(&mut job.fate, Fate::Vanished);
        let Fate::Ended(end) = fate else {
            job.fate = fate;
            return;
        };
        let expected = job.expected.clone();
        let cancelled =
            job.cancelled && end.result.as_ref().is_err_and(|error| error.code == Code::Cancelled);
        job.fate = Fate::Announced(end.clone());
        if cancelled {
            self.world.note("a job was cancelled");
        } else if !self.plan.random_tasks {
            self.check_result(n, &end, &expected);
        }
    }

    fn check_result(&mut self, n: usize, end: &JobEnd, expected: &Result<Vec<Future>, Code>) {
        let fails = match expected {
            Ok(futures) => futures.iter().any(|future| future.is_err()),
            Err(_) => true,
        };
        let wrong = match (&end.result, expected) {
            (Err(error), _) => (!fails || !program::is_own_error(error.code)).then(|| format!("{error:?}")),
            (Ok(_), Err(code)) => Some(format!("success, not {code:?}")),
            (Ok(outputs), Ok(futures)) => {
                let pairs = outputs.iter().zip(futures);
                let differs = pairs.filter_map(|(output, future)| self.differs(end, output, future)).next();
                (outputs.len() != futures.len()).then(|| "a wrong number of outputs".to_owned()).or(differs)
            }
        };
        if let Some(wrong) = wrong {
            self.world.violation(format!("job{n} gave {wrong}"));
        }
    }

    /// How an output of a job that ended differs from what the oracle says.
    fn differs(&self, end: &JobEnd, output: &Output, expected: &Future) -> Option<String> {
        let Ok(known) = expected.as_ref() else { return Some("a value instead of an error".to_owned()) };
        let (value, refs) = match output {
            Output::Inline(payload) => (machine::inline_value(payload), &payload.refs),
            Output::Stored(stored) => {
                let cached = stored.at.and_then(|at| self.world.nodes.get(&at)?.cache.get(&stored.key));
                match cached.or_else(|| self.world.store.get(&stored.key)) {
                    Some(data) => (data.value, &stored.refs),
                    // It may have been lost after the job ended, if it was in one place only.
                    None if self.rotted.contains(&stored.key) || !stored.durable => return None,
                    None => return Some(format!("{:?}, which is nowhere", stored.key)),
                }
            }
            Output::Alias(value) => return Some(format!("an unresolved alias {value:?}")),
        };
        if value != known.value || refs.len() != known.names.len() {
            return Some(format!("{value}, not {}", known.value));
        }
        let mut named = refs.iter().zip(&known.names);
        named.find_map(|(id, name)| match end.kept.iter().find(|(kept, _)| kept == id) {
            Some((_, output)) => self.differs(end, output, name),
            // Kept under the name of what it is an alias of, or failed.
            None => None,
        })
    }

    fn check_at_the_end(&mut self) {
        for (n, job) in self.owner.jobs.iter().enumerate() {
            if !matches!(job.fate, Fate::Announced(_) | Fate::Vanished) {
                self.world.violations.push(format!("job{n} never ended: {:?}", job.fate));
            }
        }
        match &self.owner.scheduler {
            Some(scheduler) if scheduler.is_empty() => {}
            Some(_) => self.world.violations.push("the scheduler still remembers something".to_owned()),
            None => self.world.violations.push("the gateway never came back".to_owned()),
        }
        self.check_freed();
        self.check_runs();
    }

    /// Whatever the last owner was told of and no result consists of was freed.
    fn check_freed(&mut self) {
        let mut kept = BTreeSet::new();
        for job in &self.owner.jobs {
            if let Fate::Announced(end) = &job.fate {
                kept.extend(end.kept.iter().filter_map(|(_, output)| key_of(output)));
            }
        }
        let cached = self.world.nodes.values().flat_map(|node| node.cache.keys());
        let left = cached.chain(self.world.store.keys());
        let mut garbage = left.filter(|key| {
            self.told.contains(*key) && !kept.contains(*key) && !self.world.unswept.contains(*key)
        });
        if let Some(key) = garbage.next() {
            let name = self.owner.names.get(&key.partition.task).cloned().unwrap_or_default();
            let what = format!("output {} of {name}, {key:?}, was never freed", key.partition.output);
            self.world.violations.push(what);
        }
    }

    /// Where nothing was lost and nothing replayed, no task ran more often than its own failures explain.
    fn check_runs(&mut self) {
        if !self.world.nothing_lost || self.replayed || self.plan.random_tasks {
            return;
        }
        self.world.note("a run lost nothing");
        for (task, runs) in &self.runs {
            let failures = self.own_failures.get(task).copied().unwrap_or_default();
            if *runs > failures + 1 {
                let name = self.owner.names.get(task).cloned().unwrap_or_default();
                self.world.violations.push(format!("{name} ran {runs} times with {failures} failures"));
            }
        }
    }
}

fn key_of(output: &Output) -> Option<StoredKey> {
    match output {
        Output::Stored(stored) => Some(stored.key),
        _ => None,
    }
}

fn uuid_of(n: usize) -> uuid::Uuid {
    uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n as u128)
}
