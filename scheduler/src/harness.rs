//! The one way the unit tests speak to the scheduler: a script.
//!
//! A line is an event; the lines after it that start with `>` are the commands it must give, in order (timers are left
//! out). [`check`] plays the events and compares the whole transcript.
//!
//! Tasks are called by path (`a` is job a's root, `a/0` its first call), outputs `a/0.0`, puts `a.p0`, executors `e1`.
//! Values: `'text'` inline, `@100` stored with 100 bytes, `=a/0.0` an alias, `'text'+a/0.0` inline with a reference.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use fanfold_protocol::{
    AttemptId, Code, Digest, Error, ExecutorId, JobId, Kind, PartitionId, TaskId,
    call::{Durability, Placement, TaskSpec, Terms},
    custom::Custom,
    link::Held,
    message::{FromExecutor, Offer, Spent, Usage},
    record::Record,
    value::{Output, PartitionMeta, Payload, Stored, StoredKey, Value},
};

use crate::{Event, JobStart, Replay, Scheduler};

mod show;

const MIB: u64 = 1 << 20;

/// Plays `script` and compares what happens with what it says.
#[track_caller]
pub(crate) fn check(script: &str) {
    let mut world = World::new();
    let mut wanted = String::new();
    let mut seen = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        wanted += &format!("{line}\n");
        if line.starts_with('>') {
            continue;
        }
        seen += &format!("{line}\n");
        for command in world.play(line) {
            seen += &format!("> {}\n", world.with_names(&command).trim());
        }
    }
    if wanted != seen {
        panic!("the script says\n\n{wanted}\nbut this happened\n\n{seen}");
    }
}

pub(crate) struct World {
    scheduler: Scheduler,
    epoch: u64,
    now_ms: u64,
    names: HashMap<TaskId, String>,
    /// The last attempt of each task, and where it ran; and the one before it.
    attempts: HashMap<TaskId, (AttemptId, ExecutorId)>,
    earlier: HashMap<TaskId, (AttemptId, ExecutorId)>,
    copies: HashMap<PartitionId, StoredKey>,
    specs: HashMap<TaskId, TaskSpec>,
    offers: Vec<Offer>,
    /// What each executor has, and whether the object store has it too.
    held: BTreeMap<ExecutorId, BTreeMap<StoredKey, bool>>,
    starts: Vec<JobStart>,
    log: Vec<Record>,
    /// What the scheduler told of last.
    memoised: Option<(Digest, Vec<Output>)>,
}

impl World {
    fn new() -> Self {
        Self {
            scheduler: Scheduler::new(1),
            epoch: 1,
            now_ms: 0,
            names: HashMap::new(),
            attempts: HashMap::new(),
            earlier: HashMap::new(),
            copies: HashMap::new(),
            specs: HashMap::new(),
            offers: Vec::new(),
            held: BTreeMap::new(),
            starts: Vec::new(),
            log: Vec::new(),
            memoised: None,
        }
    }

    /// The text with task ids replaced by names.
    fn with_names(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (id, name)| text.replace(&id.to_string(), name))
    }

    fn play(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [verb, rest @ ..] = words.as_slice() else { return Vec::new() };
        let events = match *verb {
            "reason" => {
                return vec![self.scheduler.waiting_reason(job_id(rest[0])).unwrap_or_default()];
            }
            "kept" => return vec![self.scheduler.tasks_kept().to_string()],
            "empty" => return vec![self.scheduler.is_empty().to_string()],
            "restart" => self.restart(rest),
            // The last entry was not durable when its owner died.
            "unlogged" => {
                self.log.pop();
                return Vec::new();
            }
            // What follows is said by the last attempt but one.
            "earlier" => {
                let task = self.task(rest[1]);
                let last = self.attempts.insert(task, self.earlier[&task]);
                let event = self.event(rest[0], &rest[1..]);
                self.attempts.extend(last.map(|last| (task, last)));
                vec![event]
            }
            "tick" => {
                self.now_ms += rest[0].parse::<u64>().unwrap();
                vec![Event::Tick]
            }
            _ => vec![self.event(verb, rest)],
        };
        let mut out = Vec::new();
        for event in events {
            self.scheduler.step(self.now_ms, event, &mut out);
        }
        out.into_iter().filter_map(|command| self.show(command)).collect()
    }

    fn event(&mut self, verb: &str, rest: &[&str]) -> Event {
        let attempt = |world: &Self, name: &str| world.attempts[&world.task(name)].0;
        let message = match verb {
            "join" => return self.join(rest),
            "offer" => {
                let offer = offer(rest);
                return Event::From { executor: offer.executor, message: FromExecutor::Offer(offer) };
            }
            "leaving" => {
                return Event::From { executor: executor(rest[0]), message: FromExecutor::Leaving };
            }
            "leave" => {
                self.offers.retain(|offer| offer.executor != executor(rest[0]));
                return Event::ExecutorLeft(executor(rest[0]));
            }
            "job" => return self.job(rest),
            "call" => return self.call(rest),
            "memo" => return self.memo(rest),
            "cancel" => {
                let error = Error::new(Kind::Platform, Code::Cancelled, "asked").retryable(false);
                return Event::Cancel { job: job_id(rest[0]), error };
            }
            "wait" => FromExecutor::Wait {
                attempt: attempt(self, rest[0]),
                wait: rest[1].parse().unwrap(),
                on: self.parts(&rest[2..]),
                count: option(rest, "count").unwrap_or(self.parts(&rest[2..]).len() as u32),
                timeout_ms: option(rest, "timeout"),
            },
            "next" => FromExecutor::Next {
                attempt: attempt(self, rest[0]),
                wait: rest[1].parse().unwrap(),
                generator: self.task(rest[2]),
                output: rest[3].parse().unwrap(),
            },
            "yield" | "put" => self.made(verb, rest),
            "drop" => FromExecutor::Drop { attempt: attempt(self, rest[0]), futures: self.parts(&rest[1..]) },
            "cancel-futures" => {
                FromExecutor::Cancel { attempt: attempt(self, rest[0]), futures: self.parts(&rest[1..]) }
            }
            "lost" => {
                FromExecutor::Lost { attempt: attempt(self, rest[0]), key: self.copies[&self.part(rest[1])] }
            }
            "lost-memo" => FromExecutor::Lost {
                attempt: attempt(self, rest[0]),
                key: StoredKey { epoch: 0, attempt: 0, ..self.copies[&self.part(rest[1])] },
            },
            "durable" => {
                let key = self.copies[&self.part(rest[0])];
                let executors = self.held.values_mut().filter_map(|held| held.get_mut(&key));
                executors.for_each(|durable| *durable = true);
                FromExecutor::Durable(key)
            }
            "done" => self.done(rest),
            "fail" => {
                let error = parse_error(rest[1]).retryable(rest.contains(&"retryable"));
                self.finished(self.task(rest[0]), Err(error))
            }
            _ => panic!("{verb}?"),
        };
        let name = if verb == "durable" { rest[0].split('.').next().unwrap() } else { rest[0] };
        Event::From { executor: self.attempts[&self.task(name)].1, message }
    }

    /// `bare`: it has lost what it had. Otherwise it has what it made here and was not told to drop.
    fn join(&mut self, rest: &[&str]) -> Event {
        let offer = offer(rest);
        if rest.contains(&"bare") {
            self.held.remove(&offer.executor);
        }
        self.offers.retain(|known| known.executor != offer.executor);
        self.offers.push(offer.clone());
        self.joined(offer)
    }

    fn joined(&self, offer: Offer) -> Event {
        let held = self.held.get(&offer.executor).into_iter().flatten();
        let held = held.map(|(&key, &durable)| Held { key, durable }).collect();
        Event::ExecutorJoined { offer, held }
    }

    fn made(&mut self, verb: &str, rest: &[&str]) -> FromExecutor {
        let task = self.task(rest[0]);
        let n: u32 = rest[1].parse().unwrap();
        let output = if verb == "put" { PartitionId::FIRST_PUT + n } else { n };
        let value = self.value(rest[2], PartitionId { task, output });
        let attempt = self.attempts[&task].0;
        match verb {
            "put" => FromExecutor::Put { attempt, output, value },
            _ => FromExecutor::Yield { attempt, output, value },
        }
    }

    /// What equal calls are answered with, or (`gone`) no longer: what the last `memoise` told, copied.
    fn memo(&self, rest: &[&str]) -> Event {
        let (key, outputs) = self.memoised.clone().unwrap();
        let copied = |output: Output| match output {
            Output::Stored(stored) => {
                let key = StoredKey { epoch: 0, attempt: 0, ..stored.key };
                Output::Stored(Stored { key, at: None, durable: true, ..stored })
            }
            output => output,
        };
        let outputs = outputs.into_iter().map(copied).collect();
        Event::Memo { key, outputs: (!rest.contains(&"gone")).then_some(outputs) }
    }

    /// `durable`: the object store has what it stored.
    fn done(&mut self, rest: &[&str]) -> FromExecutor {
        let task = self.task(rest[0]);
        let texts = rest[1..].iter().filter(|text| **text != "durable").enumerate();
        let value = |(n, text): (usize, &&str)| self.value(text, PartitionId { task, output: n as u32 });
        let mut outputs: Vec<Output> = texts.map(value).collect();
        for output in outputs.iter_mut().filter(|_| rest.contains(&"durable")) {
            if let Output::Stored(stored) = output {
                stored.durable = true;
            }
        }
        self.finished(task, Ok(outputs))
    }

    fn finished(&self, task: TaskId, result: Result<Vec<Output>, Error>) -> FromExecutor {
        let attempt = self.attempts[&task].0;
        let (usage, spent, logs) = (Usage::default(), Spent::default(), Bytes::new());
        FromExecutor::Finished { attempt, result, usage, spent, logs }
    }

    fn job(&mut self, rest: &[&str]) -> Event {
        let job = job_id(rest[0]);
        self.names.insert(TaskId::root(job), rest[0].to_owned());
        let root = self.spec(TaskId::root(job), None, rest);
        let start = JobStart {
            job,
            root,
            recorded: rest.contains(&"recorded"),
            weight: option(rest, "weight").unwrap_or(1),
            replay: Replay::default(),
        };
        self.starts.push(start.clone());
        Event::JobStarted(Box::new(start))
    }

    fn call(&mut self, rest: &[&str]) -> Event {
        let (parent, index) = rest[0].rsplit_once('/').unwrap();
        let parent = self.task(parent);
        let task = parent.child(index.parse().unwrap());
        self.names.insert(task, rest[0].to_owned());
        let spec = self.spec(task, Some(parent), rest);
        self.specs.insert(task, spec.clone());
        Event::Submitted { attempt: self.attempts[&parent].0, task, spec: Box::new(Ok(spec)) }
    }

    fn spec(&self, id: TaskId, parent: Option<TaskId>, rest: &[&str]) -> TaskSpec {
        let memory = option(rest, "mem").unwrap_or(100) * MIB;
        let terms = Terms {
            version: Digest([7; 32]),
            entry: option::<String>(rest, "entry").unwrap_or_default(),
            outputs: option(rest, "outs").unwrap_or(1) * u32::from(!rest.contains(&"generator")),
            generator: rest.contains(&"generator"),
            cpu_millis: option(rest, "cpu").map_or(1000, |cpu: u32| cpu * 1000),
            memory,
            memory_max: option(rest, "max").map_or(memory, |max: u64| max * MIB),
            gpu: option(rest, "gpu").unwrap_or(0),
            custom: custom(rest),
            placement: self.placement(rest),
            attempts: option(rest, "attempts").unwrap_or(3),
            backoff_ms: 1000,
            timeout_ms: 60_000,
            deadline_at_ms: option(rest, "deadline"),
            deterministic: !rest.contains(&"random"),
            durability: if rest.contains(&"fleeting") { Durability::None } else { Durability::Lazy },
            memo: rest.contains(&"memo"),
        };
        let args = self.parts(rest).into_iter().map(Value::Partition).collect();
        TaskSpec { id, parent, args, terms }
    }

    fn placement(&self, rest: &[&str]) -> Placement {
        let wish = |key| option::<String>(rest, key);
        match (wish("on"), wish("rather"), wish("near")) {
            (Some(name), ..) => Placement::On { executor: executor(&name), strict: true },
            (_, Some(name), _) => Placement::On { executor: executor(&name), strict: false },
            (_, _, Some(part)) => Placement::Near(self.part(&part.replace(':', "."))),
            _ if rest.contains(&"spread") => Placement::Spread,
            _ => Placement::Local,
        }
    }

    /// A new owner with what the log says, and the executors that are there (`alone`: they have yet to join).
    fn restart(&mut self, rest: &[&str]) -> Vec<Event> {
        self.epoch += 1;
        self.scheduler = Scheduler::new(self.epoch);
        let mut replay = Replay::default();
        for record in &self.log {
            match record.clone() {
                Record::Committed(c) => drop(replay.committed.insert(c.attempt.task, *c)),
                Record::Made { attempt, output, value, .. } => {
                    replay.made.insert(PartitionId { task: attempt.task, output }, value);
                }
                Record::Waited { task, wait, ready, .. } => drop(replay.waited.insert((task, wait), ready)),
                Record::Failed { task, error, .. } => drop(replay.failed.insert(task, error)),
                Record::AttemptFailed { .. } => replay.root_attempts_failed += 1,
                _ => {}
            }
        }
        let offers = if rest.contains(&"alone") { Vec::new() } else { self.offers.clone() };
        let joins: Vec<Event> = offers.into_iter().map(|offer| self.joined(offer)).collect();
        let jobs = self.starts.iter().cloned().map(|start| {
            let replay = replay.clone();
            Event::JobStarted(Box::new(JobStart { replay, ..start }))
        });
        joins.into_iter().chain(jobs).collect()
    }

    fn task(&self, name: &str) -> TaskId {
        let mut parts = name.split('/');
        let root = TaskId::root(job_id(parts.next().unwrap()));
        parts.fold(root, |task, index| task.child(index.parse().unwrap()))
    }

    fn part(&self, name: &str) -> PartitionId {
        let (task, output) = name.split_once('.').unwrap();
        let output = match output.strip_prefix('p') {
            Some(put) => PartitionId::FIRST_PUT + put.parse::<u32>().unwrap(),
            None => output.parse().unwrap(),
        };
        PartitionId { task: self.task(task), output }
    }

    fn parts(&self, words: &[&str]) -> Vec<PartitionId> {
        words.iter().filter(|word| word.contains('.')).map(|word| self.part(word)).collect()
    }

    fn value(&mut self, text: &str, id: PartitionId) -> Output {
        if let Some(name) = text.strip_prefix('=') {
            return Output::Alias(Box::new(Value::Partition(self.part(name))));
        }
        if let Some(bytes) = text.strip_prefix('@') {
            let (attempt, at) = self.attempts[&id.task];
            let key =
                StoredKey { job: job_id("a"), partition: id, epoch: attempt.epoch, attempt: attempt.number };
            self.copies.insert(id, key);
            self.held.entry(at).or_default().insert(key, false);
            let meta = PartitionMeta { bytes: bytes.parse().unwrap(), blocks: 1, crc32c: 0 };
            return Output::Stored(Stored { key, meta, at: Some(at), durable: false, refs: Vec::new() });
        }
        let (text, refs) = text.split_once('+').unwrap_or((text, ""));
        let bytes = Bytes::copy_from_slice(text.trim_matches('\'').as_bytes());
        Output::Inline(Payload { bytes, refs: self.parts(&[refs]) })
    }
}

fn job_id(name: &str) -> JobId {
    JobId(uuid::Uuid::from_u128(u128::from(name.bytes().next().unwrap())))
}

fn executor(name: &str) -> ExecutorId {
    ExecutorId(name.trim_start_matches('e').parse().unwrap())
}

fn offer(rest: &[&str]) -> Offer {
    Offer {
        executor: executor(rest[0]),
        cpu_millis: option(rest, "cpu").map_or(1000, |cpu: u32| cpu * 1000),
        memory: option(rest, "mem").unwrap_or(1000) * MIB,
        gpu: option(rest, "gpu").unwrap_or(0),
        adapter: None,
        custom: custom(rest),
    }
}

/// `seats=N` and `tapes=N`.
fn custom(rest: &[&str]) -> Custom {
    let named = |name: &str| Some((name.to_owned(), option(rest, name)?));
    ["seats", "tapes"].into_iter().filter_map(named).collect()
}

fn option<T: std::str::FromStr>(words: &[&str], key: &str) -> Option<T> {
    let value = words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
    value.parse().ok()
}

fn parse_error(text: &str) -> Error {
    let (kind, code) = text.split_once('/').unwrap();
    let json = format!(r#"{{"kind":"{kind}","code":"{code}","message":"","retryable":false}}"#);
    serde_json::from_str(&json).unwrap()
}
