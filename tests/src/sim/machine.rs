//! A simulated attempt: an interpreter of one program that talks to its owner as a real executor's host calls do.
//!
//! It keeps what its real counterpart would keep in the guest and the host (registers, outputs it was told of, data
//! it reads) and nothing else, so that a replay starts from nothing.

use std::collections::{BTreeMap, VecDeque};

use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, Kind, PartitionId, TaskId,
    call::{Call, Options, Placement},
    message::{Assignment, FromExecutor, ToExecutor},
    value::{Output, Value},
};

use super::{
    making::payload,
    program::{Arg, Op, Program, Shape, Wish, error_value, mix},
    reading::{Purpose, Reading},
    world::Machines,
};

/// One step of an operation.
#[derive(Clone, Debug)]
pub(super) enum Micro {
    Operation(usize),
    /// Reads a value and what it names, at a depth; at depth 0 the sum is added to the program's.
    Read(PartitionId),
    /// Waits for a future, whatever becomes of it.
    Ignore(PartitionId),
    Drop(PartitionId),
    Any {
        on: Vec<PartitionId>,
        follow: Option<usize>,
    },
    Timed {
        on: Vec<PartitionId>,
        timeout_ms: u64,
        extra: usize,
    },
    Take {
        generator: TaskId,
        output: u32,
        most: u32,
    },
    Yield(Shape),
    Finish,
}

/// Why an attempt does not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Held {
    /// It computes until it is called again.
    Computing,
    Waiting(u64),
    Asking(u64),
    Credit,
}

#[derive(Debug)]
pub struct Machine {
    pub attempt: AttemptId,
    pub executor: ExecutorId,
    pub memory: u64,
    pub cpu_millis: u32,
    pub is_generator: bool,
    pub(super) assignment: Assignment,
    pub(super) program: usize,
    pub(super) todo: VecDeque<Micro>,
    pub(super) held: Option<Held>,
    pub(super) reading: Option<Reading>,
    pub(super) args_left: VecDeque<usize>,
    pub(super) registers: Vec<PartitionId>,
    pub(super) sum: u64,
    pub(super) known: BTreeMap<PartitionId, Result<Output, Error>>,
    pub(super) calls: u64,
    pub(super) waits: u64,
    pub(super) puts: u32,
    pub(super) yields: u32,
    pub(super) below: u32,
    /// What a lying program adds to its results.
    pub(super) noise: u64,
}

impl Machine {
    pub fn new(assignment: Assignment, executor: ExecutorId, program: usize, programs: &[Program]) -> Self {
        let text = &programs[program];
        let mut known = BTreeMap::new();
        for argument in &assignment.args {
            if let (Some(id), Some(output)) = (argument.value.needs(), &argument.output) {
                known.insert(id, Ok(output.clone()));
            }
        }
        let number = u64::from(assignment.attempt.number) + (assignment.attempt.epoch << 32);
        let varies = text.lies || !text.deterministic;
        Self {
            attempt: assignment.attempt,
            executor,
            memory: assignment.memory,
            cpu_millis: text.cpu_millis,
            is_generator: assignment.generator,
            program,
            todo: (0..text.ops.len()).map(Micro::Operation).chain([Micro::Finish]).collect(),
            held: None,
            reading: None,
            args_left: (0..assignment.args.len()).collect(),
            assignment,
            registers: Vec::new(),
            sum: 0,
            known,
            calls: 0,
            waits: 0,
            puts: 0,
            yields: 0,
            below: 0,
            noise: if varies { mix(number) } else { 0 },
        }
    }

    /// Whether it uses its cpu.
    pub fn computes(&self) -> bool {
        matches!(self.held, None | Some(Held::Computing))
    }

    /// It has computed for as long as it wanted to.
    pub fn computed(&mut self) {
        if self.held == Some(Held::Computing) {
            self.held = None;
        }
    }

    /// A message from its owner.
    pub fn told(&mut self, message: ToExecutor, world: &mut Machines) {
        match message {
            ToExecutor::Woken { wait, ready, .. } if self.held == Some(Held::Waiting(wait)) => {
                self.held = None;
                self.woken(ready, world);
            }
            ToExecutor::Next { wait, result, .. } if self.held == Some(Held::Asking(wait)) => {
                self.held = None;
                self.answered(result);
            }
            ToExecutor::MayYield { below, .. } => {
                self.below = below;
                if self.held == Some(Held::Credit) && self.yields < below {
                    self.held = None;
                }
            }
            _ => {}
        }
    }

    pub(super) fn woken(&mut self, ready: Vec<(u32, Result<Output, Error>)>, world: &mut Machines) {
        if self.reading.is_some() || matches!(self.todo.front(), Some(Micro::Ignore(_))) {
            let id = self.awaited();
            if let (Some(id), Some((_, result))) = (id, ready.into_iter().next()) {
                self.known.insert(id, result);
            }
            return;
        }
        match self.todo.pop_front() {
            Some(Micro::Any { on, follow }) => self.some_ready(on, follow, ready, world),
            Some(Micro::Timed { on, extra, .. }) => {
                let all = ready.len() == on.len();
                for (n, result) in ready {
                    self.known.insert(on[n as usize], result);
                }
                if !all {
                    world.note("a wait timed out");
                    let futures = self.call(extra, &[], world);
                    for id in futures.into_iter().rev() {
                        self.todo.push_front(Micro::Drop(id));
                        self.todo.push_front(Micro::Ignore(id));
                    }
                }
            }
            other => world.violation(format!("{:?} was woken at {other:?}", self.attempt)),
        }
    }

    /// The one partition that a read or an ignoring wait is for.
    pub(super) fn awaited(&self) -> Option<PartitionId> {
        match (&self.reading, self.todo.front()) {
            (Some(reading), _) => reading.stack.last()?.left.last().copied(),
            (None, Some(Micro::Ignore(id))) => Some(*id),
            _ => None,
        }
    }

    pub(super) fn some_ready(
        &mut self,
        mut on: Vec<PartitionId>,
        follow: Option<usize>,
        ready: Vec<(u32, Result<Output, Error>)>,
        world: &mut Machines,
    ) {
        let mut reads = Vec::new();
        let mut positions: Vec<usize> = Vec::new();
        for (n, result) in ready {
            let id = on[n as usize];
            self.known.insert(id, result);
            reads.push(Micro::Read(id));
            positions.push(n as usize);
            if let Some(follow) = follow {
                // What is called, and when, depends on what was ready: a replay has to be told the same.
                let futures = self.call_values(follow, vec![Value::Partition(id)], world);
                reads.push(Micro::Read(futures[0]));
            }
        }
        for position in positions.into_iter().rev() {
            on.remove(position);
        }
        if !on.is_empty() {
            self.todo.push_front(Micro::Any { on, follow });
        }
        for read in reads.into_iter().rev() {
            self.todo.push_front(read);
        }
    }

    pub(super) fn answered(&mut self, result: Result<Option<PartitionId>, Error>) {
        let Some(Micro::Take { generator, output, most }) = self.todo.pop_front() else { return };
        match result {
            Ok(Some(id)) => {
                self.todo.push_front(Micro::Take { generator, output: output + 1, most });
                self.todo.push_front(Micro::Drop(id));
                self.todo.push_front(Micro::Read(id));
            }
            Ok(None) => {}
            Err(error) => self.sum = self.sum.wrapping_add(mix(error_value(error.code))),
        }
    }

    /// Goes on until it has to wait, computes or has finished. Returns whether it has finished.
    pub fn advance(&mut self, world: &mut Machines) -> bool {
        if self.memory < self.text(world).memory_taken {
            world.note("out of memory");
            return self.fail(Error::new(Kind::Limit, Code::OutOfMemory, "memory"), world);
        }
        while self.held.is_none() {
            let finished = match self.reading {
                Some(_) => self.read_on(world),
                None => self.next_micro(world),
            };
            if finished {
                return true;
            }
        }
        false
    }

    pub(super) fn next_micro(&mut self, world: &mut Machines) -> bool {
        if let Some(n) = self.args_left.pop_front() {
            self.read_argument(n, world);
            return false;
        }
        match self.todo.front().cloned() {
            Some(Micro::Operation(n)) => {
                self.todo.pop_front();
                let op = self.text(world).ops[n].clone();
                self.operate(op, world);
            }
            Some(Micro::Read(id)) => {
                self.todo.pop_front();
                self.begin_reading(vec![id], 0, Purpose::Future);
            }
            Some(Micro::Ignore(id)) => match self.known.contains_key(&id) {
                true => drop(self.todo.pop_front()),
                false => self.wait(vec![id], 1, None, world),
            },
            Some(Micro::Drop(id)) => {
                self.todo.pop_front();
                self.known.remove(&id);
                self.send(FromExecutor::Drop { attempt: self.attempt, futures: vec![id] }, world);
            }
            Some(Micro::Any { on, .. }) => self.wait(on, 1, None, world),
            Some(Micro::Timed { on, timeout_ms, .. }) => {
                let count = on.len() as u32;
                self.wait(on, count, Some(timeout_ms), world);
            }
            Some(Micro::Take { output, most, .. }) if output >= most => drop(self.todo.pop_front()),
            Some(Micro::Take { generator, output, .. }) => {
                let wait = self.waits;
                self.waits += 1;
                self.held = Some(Held::Asking(wait));
                self.send(FromExecutor::Next { attempt: self.attempt, wait, generator, output }, world);
            }
            Some(Micro::Yield(shape)) => self.give(shape, world),
            Some(Micro::Finish) | None => return self.finish(world),
        }
        false
    }

    pub(super) fn operate(&mut self, op: Op, world: &mut Machines) {
        let register = |n: &usize| self.registers[*n];
        match op {
            Op::Work(0) => {}
            Op::Work(ms) => {
                self.held = Some(Held::Computing);
                world.compute(self.executor, self.attempt, ms);
            }
            Op::Call { program, args } => {
                let futures = self.call(program, &args, world);
                self.registers.extend(futures);
            }
            Op::Put(shape) => self.put(shape, world),
            Op::Read(n) => self.todo.push_front(Micro::Read(register(&n))),
            Op::Any { registers, follow } => {
                let on = registers.iter().map(register).collect();
                self.todo.push_front(Micro::Any { on, follow });
            }
            Op::Timed { registers, timeout_ms, extra } => {
                let on = registers.iter().map(register).collect();
                self.todo.push_front(Micro::Timed { on, timeout_ms, extra });
            }
            Op::Drop(n) => self.todo.push_front(Micro::Drop(register(&n))),
            Op::Cancel { program } => {
                let futures = self.call(program, &[], world);
                let message = FromExecutor::Cancel { attempt: self.attempt, futures: futures.clone() };
                self.send(message, world);
                futures.into_iter().for_each(|id| self.todo.push_front(Micro::Ignore(id)));
            }
            Op::Take { program, most } => {
                let generator = self.attempt.task.child(self.calls);
                self.call(program, &[], world);
                let most = most.unwrap_or(u32::MAX);
                self.todo.push_front(Micro::Take { generator, output: 0, most });
            }
            Op::Yield(shape) => self.todo.push_front(Micro::Yield(shape)),
        }
    }

    pub(super) fn call(&mut self, program: usize, args: &[Arg], world: &mut Machines) -> Vec<PartitionId> {
        let value = |arg: &Arg| match arg {
            Arg::Inline(value) => Value::Inline(payload(*value, Shape::Inline, Vec::new())),
            Arg::Register(n) => Value::Partition(self.registers[*n]),
            Arg::Block(n) => Value::Blocks { partition: self.registers[*n], first: 0, count: 1 },
            Arg::Named(n) => Value::Inline(payload(1, Shape::Inline, vec![self.registers[*n]])),
        };
        let values = args.iter().map(value).collect();
        self.call_values(program, values, world)
    }

    pub(super) fn call_values(
        &mut self,
        program: usize,
        args: Vec<Value>,
        world: &mut Machines,
    ) -> Vec<PartitionId> {
        let callee = &world.programs[program];
        let outputs = if callee.generator { 0 } else { callee.returns.len() as u32 };
        let placement = match (callee.wish, args.iter().find_map(|value| value.needs())) {
            (Wish::Spread, _) => Placement::Spread,
            (Wish::Near, Some(id)) => Placement::Near(id),
            (Wish::Here, _) => Placement::On { executor: self.executor, strict: world.may_bind },
            _ => Placement::Local,
        };
        let call = Call {
            function: None,
            entry: program.to_string(),
            args,
            outputs,
            generator: callee.generator,
            options: Options { placement, durability: callee.durability, ..Options::default() },
        };
        let (index, task) = (self.calls, self.attempt.task.child(self.calls));
        self.calls += 1;
        self.send(FromExecutor::Submit { attempt: self.attempt, index, call: Box::new(call) }, world);
        (0..outputs).map(|output| PartitionId { task, output }).collect()
    }

    pub(super) fn wait(
        &mut self,
        on: Vec<PartitionId>,
        count: u32,
        timeout_ms: Option<u64>,
        world: &mut Machines,
    ) {
        let wait = self.waits;
        self.waits += 1;
        self.held = Some(Held::Waiting(wait));
        self.send(FromExecutor::Wait { attempt: self.attempt, wait, on, count, timeout_ms }, world);
    }

    pub(super) fn send(&self, message: FromExecutor, world: &mut Machines) {
        world.send(self.executor, Some(self.attempt), message);
    }

    pub(super) fn text<'a>(&self, world: &'a Machines) -> &'a Program {
        &world.programs[self.program]
    }
}
