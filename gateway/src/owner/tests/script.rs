//! An executor that does what a task's entry says, and lets a test hold attempts and look at what was asked of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, JobId, Kind, PartitionId, TaskId,
    call::{Call, Options},
    custom::Custom,
    message::{Assignment, FromExecutor, Offer, Spent, ToExecutor, Usage},
    value::{Output, Payload, Stored, StoredKey, Value},
};
use fanfold_store::{Index, Store};
use tokio::sync::{mpsc, watch};

use crate::owner::ExecutorLink;

/// What a test sees and steers.
#[derive(Clone)]
pub struct Script {
    seen: Arc<Mutex<Seen>>,
    starts: watch::Sender<usize>,
    control: mpsc::Sender<Control>,
}

#[derive(Default)]
struct Seen {
    runs: Vec<Assignment>,
    stopped: Vec<AttemptId>,
}

enum Control {
    /// Finish every held attempt.
    Release,
    /// Close both channels.
    Leave,
}

impl Script {
    /// An executor and its link, whose channels hold `capacity` messages.
    pub fn start(store: &Store, id: u64, capacity: usize) -> (Self, ExecutorLink) {
        let (to, inbox) = mpsc::channel(capacity);
        let (outbox, from) = mpsc::channel(capacity);
        let (control, controls) = mpsc::channel(4);
        let script = Self { seen: Arc::default(), starts: watch::Sender::new(0), control };
        let executor = Executor {
            store: store.clone(),
            script: script.clone(),
            outbox,
            unsent: VecDeque::new(),
            held: HashMap::new(),
            driving: HashMap::new(),
        };
        tokio::spawn(executor.run(inbox, controls));
        let offer = Offer {
            executor: ExecutorId(id),
            cpu_millis: 64_000,
            memory: 64 << 30,
            gpu: 0,
            adapter: None,
            custom: Custom::new(),
        };
        (script, ExecutorLink { offer, held: Vec::new(), name: "script".to_owned(), peer: None, to, from })
    }

    pub fn runs(&self) -> Vec<Assignment> {
        self.seen.lock().unwrap().runs.clone()
    }

    /// Attempts that were started of a job's root.
    pub fn root_runs(&self, job: JobId) -> usize {
        let root = TaskId::root(job);
        self.seen.lock().unwrap().runs.iter().filter(|run| run.attempt.task == root).count()
    }

    pub fn stopped(&self) -> Vec<AttemptId> {
        self.seen.lock().unwrap().stopped.clone()
    }

    /// Waits until so many attempts were started.
    pub async fn started(&self, count: usize) {
        self.starts.subscribe().wait_for(|starts| *starts >= count).await.unwrap();
    }

    /// Lets held attempts finish.
    pub async fn release(&self) {
        self.control.send(Control::Release).await.unwrap();
    }

    /// The executor goes away.
    pub async fn leave(&self) {
        self.control.send(Control::Leave).await.unwrap();
    }
}

struct Executor {
    store: Store,
    script: Script,
    outbox: mpsc::Sender<FromExecutor>,
    /// Reading must not wait for writing: see `ExecutorLink`.
    unsent: VecDeque<FromExecutor>,
    held: HashMap<AttemptId, Assignment>,
    driving: HashMap<AttemptId, Assignment>,
}

impl Executor {
    async fn run(mut self, mut inbox: mpsc::Receiver<ToExecutor>, mut controls: mpsc::Receiver<Control>) {
        let (mut batch, outbox) = (Vec::new(), self.outbox.clone());
        loop {
            tokio::select! {
                taken = inbox.recv_many(&mut batch, 512) => {
                    if taken == 0 {
                        return;
                    }
                    for message in batch.drain(..) {
                        self.take(message).await;
                    }
                }
                Ok(permit) = outbox.reserve(), if !self.unsent.is_empty() => {
                    permit.send(self.unsent.pop_front().unwrap());
                }
                control = controls.recv() => match control {
                    Some(Control::Release) => {
                        for (_, assignment) in std::mem::take(&mut self.held) {
                            let echo = Ok(vec![Output::Inline(argument(&assignment).into())]);
                            self.finish(assignment.attempt, echo, Bytes::new());
                        }
                    }
                    Some(Control::Leave) | None => return,
                },
            }
        }
    }

    async fn take(&mut self, message: ToExecutor) {
        match message {
            ToExecutor::Run(assignment) => {
                if assignment.entry != "noop" {
                    self.script.seen.lock().unwrap().runs.push((*assignment).clone());
                    self.script.starts.send_modify(|starts| *starts += 1);
                }
                self.start(*assignment).await;
            }
            ToExecutor::Stop { attempt, error } => {
                self.script.seen.lock().unwrap().stopped.push(attempt);
                if self.held.remove(&attempt).is_some() || self.driving.remove(&attempt).is_some() {
                    self.finish(attempt, Err(error), Bytes::new());
                }
            }
            ToExecutor::Woken { attempt, ready, .. } => self.woken(attempt, &ready),
            ToExecutor::Next { .. }
            | ToExecutor::MayYield { .. }
            | ToExecutor::Free(_)
            | ToExecutor::Prefetch(_)
            | ToExecutor::Peers(_) => {}
        }
    }

    async fn start(&mut self, assignment: Assignment) {
        let attempt = assignment.attempt;
        let input = argument(&assignment);
        let nothing = Bytes::new();
        match assignment.entry.as_str() {
            "noop" => self.finish(attempt, Ok(vec![Output::Inline(nothing.clone().into())]), nothing),
            "fail" => self.finish(attempt, Err(guest("this always fails")), nothing),
            "flaky" => {
                let tries = self.script.runs().iter().filter(|run| run.attempt.task == attempt.task).count();
                let result = if tries < 3 { Err(guest("not yet")) } else { Ok(vec![inline(input)]) };
                self.finish(attempt, result, nothing);
            }
            "log" => {
                let logs = Bytes::from_static(b"{\"at_us\":1,\"stream\":\"stdout\",\"line\":\"hello\"}\n");
                self.finish(attempt, Ok(vec![inline(input)]), logs);
            }
            "hold" => _ = self.held.insert(attempt, assignment),
            "big" => {
                let output = self.store_partition(&assignment, &input).await;
                self.finish(attempt, Ok(vec![output]), nothing);
            }
            "fan" | "fan-hold" | "helper" | "helper-hold" | "name" => self.drive(assignment, &input),
            _ => self.finish(attempt, Ok(vec![inline(input)]), nothing),
        }
    }

    /// Calls as many tasks as the input says and waits for all.
    fn drive(&mut self, assignment: Assignment, input: &Bytes) {
        let attempt = assignment.attempt;
        let count: u64 = std::str::from_utf8(input).unwrap().parse().unwrap();
        let (function, entry) = match assignment.entry.as_str() {
            "helper" | "helper-hold" => (Some("helper".to_owned()), "echo"),
            "fan-hold" => (None, "hold"),
            "name" => (None, "big"),
            _ => (None, "noop"),
        };
        let held = u64::from(assignment.entry == "helper-hold");
        for index in 0..count + held {
            let (function, entry) = if index < count { (function.clone(), entry) } else { (None, "hold") };
            let call = Box::new(Call {
                function,
                entry: entry.to_owned(),
                args: vec![Value::Inline(Bytes::from(index.to_string()).into())],
                outputs: 1,
                generator: false,
                options: Options::default(),
            });
            self.send(FromExecutor::Submit { attempt, index, call });
        }
        let count = count + held;
        let on = (0..count).map(|index| PartitionId { task: attempt.task.child(index), output: 0 }).collect();
        self.driving.insert(attempt, assignment);
        self.send(FromExecutor::Wait { attempt, wait: 0, on, count: count as u32, timeout_ms: None });
    }

    fn woken(&mut self, attempt: AttemptId, ready: &[(u32, Result<Output, Error>)]) {
        let Some(assignment) = self.driving.remove(&attempt) else { return };
        let failed = ready.iter().find_map(|(_, output)| output.as_ref().err());
        let result = match failed {
            Some(error) => Err(error.clone()),
            None => {
                let bytes = Bytes::from(ready.len().to_string());
                let child = PartitionId { task: attempt.task.child(0), output: 0 };
                let refs = if assignment.entry == "name" { vec![child] } else { Vec::new() };
                Ok(vec![Output::Inline(Payload { bytes, refs })])
            }
        };
        self.finish(attempt, result, Bytes::new());
    }

    async fn store_partition(&self, assignment: &Assignment, data: &Bytes) -> Output {
        let AttemptId { task, epoch, number } = assignment.attempt;
        let key = StoredKey {
            job: assignment.job,
            partition: PartitionId { task, output: 0 },
            epoch,
            attempt: number,
        };
        let index = Index::of(data);
        self.store.partitions().put(key, data.clone(), &index).await.unwrap();
        Output::Stored(Stored { key, meta: index.meta(), at: None, durable: true, refs: Vec::new() })
    }

    fn finish(&mut self, attempt: AttemptId, result: Result<Vec<Output>, Error>, logs: Bytes) {
        let usage = Usage { run_us: 1, ..Usage::default() };
        let spent = Spent::default();
        self.send(FromExecutor::Finished { attempt, result, usage, spent, logs });
    }

    fn send(&mut self, message: FromExecutor) {
        if !self.unsent.is_empty() {
            return self.unsent.push_back(message);
        }
        match self.outbox.try_send(message) {
            Err(mpsc::error::TrySendError::Full(message)) => self.unsent.push_back(message),
            // The owner has gone.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }
}

fn argument(assignment: &Assignment) -> Bytes {
    match &assignment.args[0].value {
        Value::Inline(payload) => payload.bytes.clone(),
        other => panic!("a root's input is inline, not {other:?}"),
    }
}

fn inline(bytes: Bytes) -> Output {
    Output::Inline(bytes.into())
}

fn guest(message: &'static str) -> Error {
    Error::new(Kind::Guest, Code::ErrorReturned, message)
}
