//! What a job or a task waits for, in words that tell a user what to change. Nothing here changes anything.

use fanfold_protocol::{Code, ExecutorId, JobId};

use crate::{
    Scheduler,
    executor::{Executor, Kinds, Resources},
    slab::TaskIx,
    task::{Blocked, Cpu, Outcome, Phase},
};

/// How far "waits for y, which waits for x" is followed.
const REASON_DEPTH_MAX: usize = 8;

impl Scheduler {
    /// What the job's next step waits for, in words; empty if something of it is running.
    pub fn waiting_reason(&self, job: JobId) -> Option<String> {
        let job = self.jobs.get(*self.job_index.get(&job)?)?;
        if job.computing > 0 {
            return Some(String::new());
        }
        if job.end.timer.is_some() {
            return Some("waits for the object store to take its result".to_owned());
        }
        Some(self.reason(job.root?, REASON_DEPTH_MAX))
    }

    fn reason(&self, ix: TaskIx, depth: usize) -> String {
        let task = &self.tasks[ix];
        match &task.phase {
            Phase::Ready(_) => self.reason_not_placed(ix),
            Phase::Backoff((at_ms, _)) => {
                let error = task.error.as_ref().map(|error| error.message.as_ref()).unwrap_or_default();
                let wait_ms = at_ms.saturating_sub(self.now_ms);
                format!("tries again in {wait_ms} ms after attempt {} failed: {error}", task.attempt)
            }
            Phase::Running(run) => match (&run.blocked, run.cpu) {
                (_, Cpu::Queued) => {
                    format!("waits for a cpu on executor {} to go on", self.pool.executors[run.executor].id)
                }
                (Some(Blocked::Next { generator, output, .. }), _) => format!(
                    "waits for output {output} of generator {}{}",
                    self.tasks[*generator].id,
                    self.which(*generator, depth)
                ),
                (Some(Blocked::Wait(_)), _) => self.reason_awaited(ix, depth),
                (None, Cpu::Held) => "is running".to_owned(),
                (None, _) => "is held back until its consumer takes what it has yielded".to_owned(),
            },
            Phase::Waiting { .. } => self.reason_awaited(ix, depth),
            Phase::Idle => match &task.outcome {
                Outcome::Committed if self.first_awaited(ix).is_some() => self.reason_awaited(ix, depth),
                _ => format!("is {}", task.state_name()),
            },
        }
    }

    fn which(&self, ix: TaskIx, depth: usize) -> String {
        match depth.checked_sub(1) {
            Some(depth) => format!(", which {}", self.reason(ix, depth)),
            None => String::new(),
        }
    }

    fn reason_awaited(&self, ix: TaskIx, depth: usize) -> String {
        let Some(part) = self.first_awaited(ix) else { return "waits".to_owned() };
        let id = self.partition_id(part);
        let away = self.slot(part).and_then(|slot| slot.gone()?.away()?.at);
        if let Some(executor) = away.filter(|_| self.holdings.is_grace()) {
            return format!("waits for executor {executor}, which has partition {id}, to come back");
        }
        format!("waits for partition {id} made by task {}{}", id.task, self.which(part.task, depth))
    }

    pub(crate) fn needs_of(&self, ix: TaskIx) -> Option<Resources> {
        let task = &self.tasks[ix];
        let terms = &task.spec.as_ref()?.terms;
        let custom = self.pool.kinds.places(&terms.custom);
        Some(Resources { cpu_millis: terms.cpu_millis, memory: task.memory, gpu: terms.gpu, custom })
    }

    fn reason_not_placed(&self, ix: TaskIx) -> String {
        let task = &self.tasks[ix];
        let (Some(needs), Phase::Ready(class)) = (self.needs_of(ix), &task.phase) else {
            return "waits".to_owned();
        };
        let only = self.ready.classes.get(*class).and_then(|class| class.shape.only);
        let reason = self.reason_no_room(&needs, only);
        match task.error.as_deref().filter(|error| error.code == Code::ExecutorLost) {
            Some(lost) => format!("lost its attempt ({}) and {reason}", lost.message),
            None => reason,
        }
    }

    /// Why nothing of this size starts now.
    pub(crate) fn reason_no_room(&self, needs: &Resources, only: Option<ExecutorId>) -> String {
        let all = self.pool.executors.iter().map(|(_, executor)| executor);
        let all: Vec<&Executor> = all.filter(|e| only.is_none_or(|only| only == e.id)).collect();
        if all.is_empty() {
            return match only {
                Some(only) => format!("waits for executor {only}, the only one it may run on, to come"),
                None if self.pool.has_had_any => {
                    "waits: there is no executor, for every one has left".to_owned()
                }
                None => "waits: there is no executor, for none has joined".to_owned(),
            };
        }
        let offered: Vec<Resources> = all.iter().filter(|e| !e.leaving).map(|e| e.total).collect();
        if offered.is_empty() {
            return "waits: every executor is leaving".to_owned();
        }
        if let Some((needed, most)) = shortest(needs, &offered, &self.pool.kinds) {
            let whose = only.map_or("the largest executor".to_owned(), |only| {
                format!("executor {only}, the only one it may run on,")
            });
            return format!("needs {needed}, {whose} offers {most}");
        }
        let free: Vec<Resources> = all.iter().filter(|e| e.could_fit(needs)).map(|e| e.free()).collect();
        reason_not_free(needs, &free, &self.pool.kinds)
    }
}

/// Why nothing of this size starts where `free` is free, on executors that are large enough.
fn reason_not_free(needs: &Resources, free: &[Resources], kinds: &Kinds) -> String {
    let (cpus, memory) = (cpus(needs.cpu_millis), size(needs.memory));
    if free.is_empty() {
        return format!("needs {cpus} with {memory}, and no executor offers both");
    }
    if free.iter().any(|free| needs.fits(free)) {
        return "waits for its turn: what is free is kept for larger tasks or those that go on".to_owned();
    }
    if free.iter().all(|free| free.memory < needs.memory) {
        let most = free.iter().map(|free| free.memory).max().unwrap_or_default();
        return format!(
            "waits for memory: needs {memory}, and at most {} is free on an executor",
            size(most)
        );
    }
    match shortest(needs, free, kinds) {
        Some(_) if free.iter().all(|free| free.gpu < needs.gpu) => "waits for a gpu".to_owned(),
        Some((needed, _)) if free.iter().any(|free| free.cpu_millis >= needs.cpu_millis) => {
            format!("waits for {needed} to be free")
        }
        Some(_) => format!("waits for {cpus} to be free"),
        None => format!("waits for {cpus} and {memory} to be free on one executor"),
    }
}

/// A resource of which none of `there` has what is needed: how much is needed, and the most there is.
fn shortest(needs: &Resources, there: &[Resources], kinds: &Kinds) -> Option<(String, String)> {
    let cpu_millis = there.iter().map(|there| there.cpu_millis).max()?;
    let memory = there.iter().map(|there| there.memory).max()?;
    let gpu = there.iter().map(|there| there.gpu).max()?;
    if needs.cpu_millis > cpu_millis {
        return Some((cpus(needs.cpu_millis), format!("{}", f64::from(cpu_millis) / 1000.0)));
    }
    if needs.memory > memory {
        return Some((format!("{} of memory", size(needs.memory)), size(memory)));
    }
    if needs.gpu > gpu {
        return Some((count(f64::from(needs.gpu), "gpu"), gpu.to_string()));
    }
    needs.custom.iter().enumerate().find_map(|(place, needed)| {
        let most = there.iter().map(|there| there.custom[place]).max()?;
        (*needed > most).then(|| (format!("{needed} of `{}`", kinds.name(place)), most.to_string()))
    })
}

fn cpus(millis: u32) -> String {
    count(f64::from(millis) / 1000.0, "cpu")
}

fn count(number: f64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1.0 { "" } else { "s" })
}

fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(shift, name)| format!("{:.1} {name}", bytes as f64 / (1u64 << shift) as f64),
    )
}
