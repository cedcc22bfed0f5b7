//! Which runnable task starts where.
//!
//! *Where*: among the executors with room, the one with most bytes of the task's arguments, or as its placement
//! says; then the one with most free cpu. *Which*: see [`crate::ready`]. A class that fits nowhere while others keep
//! being started is given a *reservation*: one executor takes no other new work, until the class starts there or
//! [`RESERVE_MS`] have passed. So a large task does not starve, and does not idle the cluster for ever either.

use fanfold_protocol::{
    Code, Error, Kind,
    call::Placement,
    limit::CUSTOM_RESOURCES_MAX,
    value::{Output, Value},
};

use crate::{
    Scheduler,
    executor::Executor,
    interest::{ARGUMENT, Resolved},
    ready::{Class, Ready, Shape, Turn},
    slab::{ClassIx, ExecutorIx, JobIx, Key as _, TaskIx},
    task::{Part, Phase, Task},
    timer::Timer,
};

/// How long a class is overtaken before an executor is reserved for it: long enough for a slot of ordinary work to
/// come free by itself.
const RESERVE_AFTER_MS: u64 = 500;
/// How long an executor is kept for one class, and how long the class then has to do without.
const RESERVE_MS: u64 = 10_000;

/// The partitions that must exist before the task can start, with the number of the argument.
pub(crate) fn needed_args(task: &Task) -> impl Iterator<Item = (usize, Part)> + '_ {
    let values = task.spec.as_ref().map_or(&[][..], |spec| &*spec.args);
    let mut parts = task.args.iter().copied();
    values.iter().enumerate().filter_map(move |(n, value)| match value {
        Value::Inline(payload) => {
            payload.refs.iter().for_each(|_| {
                parts.next();
            });
            None
        }
        Value::Object(_) => None,
        Value::Partition(_) | Value::Blocks { .. } => Some((n, parts.next()?)),
    })
}

fn too_many_kinds(name: &str) -> Error {
    let why = format!(
        "custom resource `{name}`: {CUSTOM_RESOURCES_MAX} others are in use, and no more can be told apart"
    );
    Error::new(Kind::Invalid, Code::Call, why)
}

impl Scheduler {
    /// Has the task run as soon as its arguments exist and there is room.
    pub(crate) fn enqueue(&mut self, task: TaskIx) {
        self.unwatch(task);
        let mut missing = Vec::new();
        let mut failure = None;
        for (_, part) in needed_args(&self.tasks[task]) {
            match self.resolve(part) {
                Resolved::Ready(..) => {}
                Resolved::Pending(part) => missing.push(part),
                Resolved::Failed(error) => {
                    failure = Some(error.clone());
                    break;
                }
            }
        }
        if let Some(error) = failure {
            return self.argument_failed(task, error);
        }
        if missing.is_empty() {
            return self.arguments_ready(task);
        }
        self.tasks[task].phase = Phase::Waiting { missing: missing.len() as u32 };
        for part in missing {
            self.watch(task, part, ARGUMENT);
        }
    }

    /// Everything the task needs exists: into the queue.
    pub(crate) fn arguments_ready(&mut self, ix: TaskIx) {
        self.unwatch(ix);
        if self.reuse(ix) {
            return;
        }
        let task = &self.tasks[ix];
        let Some(spec) = &task.spec else { return };
        if let Err(name) = self.pool.kinds.learn(&spec.terms.custom) {
            return self.fail(ix, too_many_kinds(&name));
        }
        let Some(needs) = self.needs_of(ix) else { return };
        let only = match spec.terms.placement {
            // Made again, it may run anywhere: the executor it was bound to may be what was lost.
            Placement::On { executor, strict: true } if task.is_open() => Some(executor),
            _ => None,
        };
        if let Some(executor) = only
            && self.is_out_of_reach(executor)
        {
            let message = format!("executor {executor}, on which the task must run, has left or is leaving");
            return self.fail(ix, Error::new(Kind::Lost, Code::ExecutorLost, message));
        }
        let task = &self.tasks[ix];
        let turn = match task.attempt > 0 || task.is_committed() {
            true if self.may_come_back(ix) => Turn::Later(task.ordinal),
            true => Turn::Again(task.ordinal),
            false => Turn::Next,
        };
        let job = task.job;
        self.jobs[job].idle_since_ms = self.now_ms;
        let class = self.ready.push(job, &mut self.jobs[job], ix, Shape { needs, only }, turn);
        self.tasks[ix].phase = Phase::Ready(class);
    }

    /// Lets attempts go on that wait for a cpu, then starts what fits.
    pub(crate) fn place(&mut self) {
        loop {
            self.serve_resumes();
            self.settle_agenda();
            while let Some(class) = self.ready.unwanted.pop() {
                if self.ready.classes[class].jobs.is_empty() {
                    self.unreserve(class);
                }
            }
            let version = self.pool.version;
            let Some((class, job)) = self.ready.first(|class| class.blocked_at != Some(version)) else {
                return;
            };
            if self.ready.settle(job, &mut self.jobs[job], class) {
                self.place_head(class, job);
            }
        }
    }

    fn place_head(&mut self, class: ClassIx, job: JobIx) {
        let head = Ready::head(&self.jobs[job], class);
        let Some(task) = head.filter(|&task| self.may_start(class, task)) else {
            return self.ready.pop(job, &mut self.jobs[job], class);
        };
        let Some(executor) = self.choose(class, task) else {
            self.look_ahead(class);
            return self.class_blocked(class);
        };
        let task = self.meant_for(executor, class, job, task);
        self.ready.pop(job, &mut self.jobs[job], class);
        self.ready.charge_start(&mut self.jobs[job], self.ready.classes[class].shape.needs.cpu_millis);
        self.class_started(class);
        self.start(task, executor);
    }

    /// Whether a queued task is still to be started and its arguments are still there; if one was lost meanwhile, it
    /// waits anew.
    pub(crate) fn may_start(&mut self, class: ClassIx, ix: TaskIx) -> bool {
        let Some(task) = self.tasks.get(ix) else { return false };
        if !matches!(task.phase, Phase::Ready(queued) if queued == class) {
            return false; // Cancelled while it was queued, or queued anew elsewhere.
        }
        let there = |(_, part)| matches!(self.resolve(part), Resolved::Ready(..));
        if needed_args(task).all(there) {
            return true;
        }
        self.enqueue(ix);
        false
    }

    fn choose(&mut self, class: ClassIx, task: TaskIx) -> Option<ExecutorIx> {
        let room = |scheduler: &Self, executor: &Executor| {
            scheduler.has_room(class, &scheduler.ready.classes[class], executor)
        };
        if !self.pool.executors.iter().any(|(_, executor)| room(self, executor)) {
            return None;
        }
        self.score(task);
        let rated =
            self.pool.executors.iter().filter(|(_, executor)| room(self, executor)).map(|(ix, executor)| {
                let score = self.scores.get(ix.get()).copied().unwrap_or_default();
                let free = executor.free();
                let rank = (score, free.cpu_millis, free.memory, std::cmp::Reverse(ix));
                (rank, ix)
            });
        rated.max().map(|(_, ix)| ix)
    }

    fn has_room(&self, ix: ClassIx, class: &Class, executor: &Executor) -> bool {
        let Shape { needs, only } = class.shape;
        !executor.leaving
            && needs.fits(&executor.free())
            && only.is_none_or(|only| only == executor.id)
            && (executor.resumes.is_empty() || needs.cpu_millis == 0)
            && self.kept_for(executor).is_none_or(|kept| kept == ix)
    }

    /// The class the executor is kept free for. A reservation counts only while the class fits or may come to fit
    /// because something on the executor still computes.
    pub(crate) fn kept_for(&self, executor: &Executor) -> Option<ClassIx> {
        let (ix, _) = executor.reservation?;
        let class = self.ready.classes.get(ix)?;
        let empties = executor.used.cpu_millis > 0;
        let of_use = empties || class.shape.needs.fits(&executor.free());
        of_use.then_some(ix)
    }

    /// Rates the executors for the task: bytes of its arguments that are there, or its wish.
    fn score(&mut self, task: TaskIx) {
        let mut scores = std::mem::take(&mut self.scores);
        scores.clear();
        let task = &self.tasks[task];
        let placement = task.spec.as_ref().map(|spec| spec.terms.placement).unwrap_or_default();
        let wished = match placement {
            Placement::Spread => None,
            Placement::Local => {
                self.score_args(task, &mut scores);
                None
            }
            Placement::On { executor, .. } => self.pool.find(executor),
            Placement::Near(id) => self.part_seen(id).and_then(|part| self.place_of(part)),
        };
        if let Some(ix) = wished {
            scores.resize(self.pool.executors.bound(), 0);
            scores[ix.get()] = u64::MAX;
        }
        self.scores = scores;
    }

    fn score_args(&self, task: &Task, scores: &mut Vec<u64>) {
        for (n, part) in needed_args(task) {
            let Resolved::Ready(_, Output::Stored(stored)) = self.resolve(part) else { continue };
            let Some(ix) = stored.at.and_then(|at| self.pool.find(at)) else { continue };
            let bytes = match task.spec.as_ref().map(|spec| &spec.args[n]) {
                Some(Value::Blocks { count, .. }) => {
                    stored.meta.bytes / u64::from(stored.meta.blocks.max(1)) * u64::from(*count)
                }
                _ => stored.meta.bytes,
            };
            scores.resize(self.pool.executors.bound(), 0);
            scores[ix.get()] = scores[ix.get()].saturating_add(bytes);
        }
    }

    fn place_of(&self, part: Part) -> Option<ExecutorIx> {
        match self.resolve(part) {
            Resolved::Ready(_, Output::Stored(stored)) => stored.at.and_then(|at| self.pool.find(at)),
            _ => None,
        }
    }

    fn class_blocked(&mut self, ix: ClassIx) {
        let (now_ms, started) = (self.now_ms, self.ready.started);
        let class = &mut self.ready.classes[ix];
        class.blocked_at = Some(self.pool.version);
        let (since, started_then) = *class.blocked_since.get_or_insert((now_ms, started));
        let starves = started > started_then && now_ms >= since + RESERVE_AFTER_MS;
        if starves && !class.reserved && now_ms >= class.patient_until_ms {
            self.reserve(ix);
        }
    }

    /// Keeps the executor that is nearest to having room for the class free for it.
    fn reserve(&mut self, ix: ClassIx) {
        let Shape { needs, only } = self.ready.classes[ix].shape;
        let could = |executor: &Executor| {
            let most = executor.total.without(&executor.blocked);
            executor.reservation.is_none()
                && executor.could_fit(&needs)
                && needs.fits(&most)
                && only.is_none_or(|only| only == executor.id)
        };
        let candidates = self.pool.executors.iter().filter(|(_, executor)| could(executor));
        let nearest =
            candidates.max_by_key(|(ix, e)| (e.free().memory, e.free().cpu_millis, std::cmp::Reverse(*ix)));
        let Some(executor) = nearest.map(|(executor, _)| executor) else { return };
        let timer = self.timers.set(self.now_ms + RESERVE_MS, Timer::Reservation(executor));
        self.pool.executors[executor].reservation = Some((ix, timer));
        self.ready.classes[ix].reserved = true;
    }

    fn class_started(&mut self, ix: ClassIx) {
        self.ready.classes[ix].blocked_since = None;
        if self.ready.classes[ix].reserved {
            self.unreserve(ix);
        }
    }

    pub(crate) fn unreserve(&mut self, ix: ClassIx) {
        for (_, executor) in self.pool.executors.iter_mut() {
            if let Some((_, timer)) = executor.reservation.take_if(|(class, _)| *class == ix) {
                self.timers.cancel(timer);
            }
        }
        self.ready.classes[ix].reserved = false;
        self.pool.version += 1;
    }

    pub(crate) fn reservation_passed(&mut self, executor: ExecutorIx) {
        let Some((class, _)) = self.pool.executors[executor].reservation else { return };
        self.unreserve(class);
        let now_ms = self.now_ms;
        let class = &mut self.ready.classes[class];
        class.patient_until_ms = now_ms + RESERVE_MS;
    }
}
