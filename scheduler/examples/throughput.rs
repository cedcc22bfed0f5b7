//! What the scheduler itself costs: microseconds per task through `step` alone (call, start, finish, wake and the job's
//! end), and memory per finished task.
//!
//! `cargo run --release -p fanfold-scheduler --example throughput [TASKS]` prints one JSON line per shape of work.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use bytes::Bytes;
use fanfold_protocol::{
    AttemptId, Digest, ExecutorId, JobId, PartitionId, TaskId,
    call::{Durability, Placement, TaskSpec, Terms},
    message::{FromExecutor, Offer, Spent, ToExecutor, Usage},
    value::{Output, Value},
};
use fanfold_scheduler::{Command, Event, JobStart, Replay, Scheduler};

#[global_allocator]
static COUNTING: Counting = Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Counts live bytes.
struct Counting;

#[allow(unsafe_code, reason = "an allocator is unsafe to implement; this one only counts and passes on")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn main() {
    let tasks = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let works = [
        ("fan-out", false, Order::AllAtOnce),
        ("fan-out, recorded", true, Order::AllAtOnce),
        ("one by one", false, Order::OneByOne),
        ("as completed", false, Order::AsCompleted),
    ];
    for (name, recorded, order) in works {
        // As completed, each wait names all that are left: the messages alone are quadratic.
        let tasks = if order == Order::AsCompleted { tasks.min(2000) } else { tasks };
        let runs: Vec<Run> = (0..5).map(|_| Bench::new(recorded).run(tasks, order)).collect();
        let best = runs.iter().map(|run| run.us_per_task).fold(f64::INFINITY, f64::min);
        println!(
            r#"{{"bench":"scheduler","work":"{name}","tasks":{tasks},"us_per_task":{best:.3},"bytes_per_finished_task":{}}}"#,
            runs[0].bytes_per_task
        );
    }
}

/// How the driver waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    AllAtOnce,
    OneByOne,
    AsCompleted,
}

struct Run {
    us_per_task: f64,
    bytes_per_task: usize,
}

struct Bench {
    scheduler: Scheduler,
    out: Vec<Command>,
    root: AttemptId,
    running: Vec<AttemptId>,
    woken: bool,
}

const EXECUTOR: ExecutorId = ExecutorId(1);

impl Bench {
    fn new(recorded: bool) -> Self {
        let mut scheduler = Scheduler::new(1);
        let mut out = Vec::new();
        let offer = Offer {
            executor: EXECUTOR,
            cpu_millis: 4000,
            memory: 1 << 40,
            gpu: 0,
            adapter: None,
            custom: Default::default(),
        };
        scheduler.step(0, Event::ExecutorJoined { offer, held: Vec::new() }, &mut out);
        let job = JobId(uuid::Uuid::from_u128(1));
        let root = TaskId::root(job);
        let start =
            JobStart { job, root: spec(root, None, 1000), recorded, weight: 1, replay: Replay::default() };
        scheduler.step(0, Event::JobStarted(Box::new(start)), &mut out);
        out.clear();
        let root = AttemptId { task: root, epoch: 1, number: 1 };
        Self { scheduler, out, root, running: Vec::new(), woken: false }
    }

    fn step(&mut self, event: Event) {
        self.scheduler.step(0, event, &mut self.out);
        for command in self.out.drain(..) {
            match command {
                Command::Send { message: ToExecutor::Run(run), .. } => self.running.push(run.attempt),
                Command::Send { message: ToExecutor::Woken { .. }, .. } => self.woken = true,
                _ => {}
            }
        }
    }

    fn from(&mut self, message: FromExecutor) {
        self.step(Event::From { executor: EXECUTOR, message });
    }

    fn submit(&mut self, task: TaskId) {
        let spec = Box::new(Ok(spec(task, Some(self.root.task), 1)));
        self.step(Event::Submitted { attempt: self.root, task, spec });
    }

    fn finish_all(&mut self) {
        while let Some(attempt) = self.running.pop() {
            self.finish(attempt);
        }
    }

    fn finish(&mut self, attempt: AttemptId) {
        let result = Ok(vec![Output::Inline(Bytes::new().into())]);
        let (usage, spent, logs) = (Usage::default(), Spent::default(), Bytes::new());
        self.from(FromExecutor::Finished { attempt, result, usage, spent, logs });
    }

    fn wait(&mut self, wait: u64, on: Vec<PartitionId>) {
        let count = on.len() as u32;
        self.wait_for(wait, on, count);
    }

    fn wait_for(&mut self, wait: u64, on: Vec<PartitionId>, count: u32) {
        self.from(FromExecutor::Wait { attempt: self.root, wait, on, count, timeout_ms: None });
    }

    fn run(mut self, tasks: u64, order: Order) -> Run {
        // Hashing ids is the executor's and the owner's cost.
        let ids: Vec<TaskId> = (0..tasks).map(|n| self.root.task.child(n)).collect();
        let futures: Vec<PartitionId> = ids.iter().map(|&task| PartitionId { task, output: 0 }).collect();
        let before = LIVE.load(Ordering::Relaxed);
        let start = Instant::now();
        match order {
            Order::AllAtOnce => {
                ids.iter().for_each(|&id| self.submit(id));
                self.wait(0, futures);
                self.finish_all();
            }
            Order::OneByOne => {
                for (n, &id) in ids.iter().enumerate() {
                    self.submit(id);
                    self.wait_for(n as u64, vec![futures[n]], 1);
                    self.finish_all();
                }
            }
            Order::AsCompleted => {
                ids.iter().for_each(|&id| self.submit(id));
                for n in 0..ids.len() {
                    self.wait_for(n as u64, futures[n..].to_vec(), 1);
                    let first = self.running.remove(0);
                    self.finish(first);
                }
            }
        }
        assert!(std::mem::take(&mut self.woken), "the driver was not woken");
        let bytes_per_task = (LIVE.load(Ordering::Relaxed) - before) / tasks as usize;
        self.finish(self.root);
        let us_per_task = start.elapsed().as_secs_f64() * 1e6 / tasks as f64;
        assert!(self.scheduler.is_empty(), "the job was not forgotten");
        Run { us_per_task, bytes_per_task }
    }
}

fn spec(id: TaskId, parent: Option<TaskId>, cpu_millis: u32) -> TaskSpec {
    let terms = Terms {
        version: Digest([7; 32]),
        entry: "noop".to_owned(),
        outputs: 1,
        generator: false,
        cpu_millis: cpu_millis.max(1000),
        memory: 128 << 20,
        memory_max: 128 << 20,
        gpu: 0,
        custom: Default::default(),
        placement: Placement::Local,
        attempts: 3,
        backoff_ms: 1000,
        timeout_ms: 30_000,
        deadline_at_ms: None,
        deterministic: true,
        durability: Durability::Lazy,
        memo: false,
    };
    TaskSpec { id, parent, args: vec![Value::Inline(Bytes::from_static(b"0123456789").into())], terms }
}
