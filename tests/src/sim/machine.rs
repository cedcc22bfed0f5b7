//! A simulated attempt: an interpreter of one program that talks to its owner as a real executor's host calls do.
//!
//! It keeps what its real counterpart would keep in the guest and the host (registers, outputs it was told of, data
//! it reads) and nothing else, so that a replay starts from nothing.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, Kind, PartitionId, TaskId,
    call::{Call, Durability, Options, Placement},
    message::{Assignment, FromExecutor, ToExecutor, Usage},
    value::{Output, PartitionMeta, Payload, Stored, StoredKey, Value},
};

use super::{
    program::{self, Arg, Fails, Op, Program, Return, Shape, error_value, mix},
    world::{Data, Machines},
};

/// One step of an operation.
#[derive(Clone, Debug)]
enum Micro {
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
enum Held {
    /// It computes until it is called again.
    Computing,
    Waiting(u64),
    Asking(u64),
    Credit,
}

/// A value that is being read with all that it names.
#[derive(Debug)]
struct Reading {
    /// Values still to be added, and where.
    stack: Vec<Frame>,
    purpose: Purpose,
}

#[derive(Debug)]
struct Frame {
    sum: u64,
    left: Vec<PartitionId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Argument(usize),
    Future,
}

#[derive(Debug)]
pub struct Machine {
    pub attempt: AttemptId,
    pub executor: ExecutorId,
    pub memory: u64,
    pub cpu_millis: u32,
    pub is_generator: bool,
    assignment: Assignment,
    program: usize,
    todo: VecDeque<Micro>,
    held: Option<Held>,
    reading: Option<Reading>,
    args_left: VecDeque<usize>,
    registers: Vec<PartitionId>,
    sum: u64,
    known: BTreeMap<PartitionId, Result<Output, Error>>,
    calls: u64,
    waits: u64,
    puts: u32,
    yields: u32,
    below: u32,
    /// What a lying program adds to its results.
    noise: u64,
}

/// What reading one partition gave.
enum Fetched {
    Data(Data),
    Failed(Code),
    /// It has to be waited for.
    Absent,
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

    fn woken(&mut self, ready: Vec<(u32, Result<Output, Error>)>, world: &mut Machines) {
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
    fn awaited(&self) -> Option<PartitionId> {
        match (&self.reading, self.todo.front()) {
            (Some(reading), _) => reading.stack.last()?.left.last().copied(),
            (None, Some(Micro::Ignore(id))) => Some(*id),
            _ => None,
        }
    }

    fn some_ready(
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

    fn answered(&mut self, result: Result<Option<PartitionId>, Error>) {
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

    fn next_micro(&mut self, world: &mut Machines) -> bool {
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

    fn operate(&mut self, op: Op, world: &mut Machines) {
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

    fn call(&mut self, program: usize, args: &[Arg], world: &mut Machines) -> Vec<PartitionId> {
        let value = |arg: &Arg| match arg {
            Arg::Inline(value) => Value::Inline(payload(*value, Shape::Inline, Vec::new())),
            Arg::Register(n) => Value::Partition(self.registers[*n]),
            Arg::Block(n) => Value::Blocks { partition: self.registers[*n], first: 0, count: 1 },
            Arg::Named(n) => Value::Inline(payload(1, Shape::Inline, vec![self.registers[*n]])),
        };
        let values = args.iter().map(value).collect();
        self.call_values(program, values, world)
    }

    fn call_values(&mut self, program: usize, args: Vec<Value>, world: &mut Machines) -> Vec<PartitionId> {
        let callee = &world.programs[program];
        let outputs = if callee.generator { 0 } else { callee.returns.len() as u32 };
        let placement = if callee.spread { Placement::Spread } else { Placement::Local };
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

    fn put(&mut self, shape: Shape, world: &mut Machines) {
        let output = PartitionId::FIRST_PUT + self.puts;
        self.puts += 1;
        let value = program::put_value(self.program, self.sum).wrapping_add(self.noise);
        let value = self.make(output, value, shape, Vec::new(), world);
        self.registers.push(PartitionId { task: self.attempt.task, output });
        self.send(FromExecutor::Put { attempt: self.attempt, output, value }, world);
    }

    fn give(&mut self, shape: Shape, world: &mut Machines) {
        if self.yields >= self.below {
            world.note("a generator was held back");
            self.held = Some(Held::Credit);
            return;
        }
        self.todo.pop_front();
        let output = self.yields;
        self.yields += 1;
        let value = program::output_value(self.program, self.sum, output as usize).wrapping_add(self.noise);
        let value = self.make(output, value, shape, Vec::new(), world);
        self.send(FromExecutor::Yield { attempt: self.attempt, output, value }, world);
    }

    fn wait(&mut self, on: Vec<PartitionId>, count: u32, timeout_ms: Option<u64>, world: &mut Machines) {
        let wait = self.waits;
        self.waits += 1;
        self.held = Some(Held::Waiting(wait));
        self.send(FromExecutor::Wait { attempt: self.attempt, wait, on, count, timeout_ms }, world);
    }

    fn read_argument(&mut self, n: usize, world: &mut Machines) {
        let purpose = Purpose::Argument(n);
        match self.assignment.args[n].value.clone() {
            Value::Inline(payload) => {
                let (value, refs) = (inline_value(&payload), payload.refs);
                self.begin_reading(refs, value, purpose);
            }
            Value::Partition(id) | Value::Blocks { partition: id, .. } => {
                self.begin_reading(vec![id], 0, purpose);
            }
            Value::Object(_) => world.violation("an object appeared from nowhere".to_owned()),
        }
    }

    /// Starts adding up `left` and all they name to `sum`. What is read directly is not mixed, what is named is.
    fn begin_reading(&mut self, left: Vec<PartitionId>, sum: u64, purpose: Purpose) {
        let stack = vec![Frame { sum, left }];
        self.reading = Some(Reading { stack, purpose });
    }

    fn read_on(&mut self, world: &mut Machines) -> bool {
        let Some(mut reading) = self.reading.take() else { return false };
        let names_only = self.names_only(reading.purpose);
        let direct = |stack: &[Frame]| stack.len() == 1 && !names_only;
        let Some(frame) = reading.stack.last_mut() else { return false };
        let Some(&id) = frame.left.last() else {
            let done = frame.sum;
            reading.stack.pop();
            let mixed = if direct(&reading.stack) { done } else { mix(done) };
            let Some(frame) = reading.stack.last_mut() else {
                return self.have_read(Ok(done), reading.purpose, world);
            };
            frame.left.pop();
            frame.sum = frame.sum.wrapping_add(mixed);
            self.reading = Some(reading);
            return false;
        };
        match self.fetch(id, world) {
            Fetched::Data(data) => reading.stack.push(Frame { sum: data.value, left: data.refs }),
            Fetched::Failed(code) if direct(&reading.stack) => {
                return self.have_read(Err(code), reading.purpose, world);
            }
            Fetched::Failed(code) => {
                if let Some(frame) = reading.stack.last_mut() {
                    frame.left.pop();
                    frame.sum = frame.sum.wrapping_add(mix(error_value(code)));
                }
            }
            Fetched::Absent => self.wait(vec![id], 1, None, world),
        }
        self.reading = Some(reading);
        false
    }

    /// Whether the value being read is an inline argument: then even the first level is named and not direct.
    fn names_only(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Argument(n) => matches!(self.assignment.args[n].value, Value::Inline(_)),
            Purpose::Future => false,
        }
    }

    fn have_read(&mut self, result: Result<u64, Code>, purpose: Purpose, world: &mut Machines) -> bool {
        match (result, purpose) {
            (Ok(value), Purpose::Argument(n)) => {
                self.sum = self.sum.wrapping_add(program::argument_value(value, n));
            }
            (Err(code), Purpose::Argument(_)) => {
                return self.fail(error(code, "an argument failed after all"), world);
            }
            (Ok(value), Purpose::Future) => self.sum = self.sum.wrapping_add(mix(value)),
            (Err(_), Purpose::Future) if self.text(world).strict => {
                return self.fail(error(Code::ErrorReturned, "a callee failed"), world);
            }
            (Err(code), Purpose::Future) => self.sum = self.sum.wrapping_add(mix(error_value(code))),
        }
        false
    }

    fn fetch(&mut self, id: PartitionId, world: &mut Machines) -> Fetched {
        match self.known.get(&id) {
            None => Fetched::Absent,
            Some(Err(error)) => Fetched::Failed(error.code),
            Some(Ok(Output::Inline(payload))) => {
                Fetched::Data(Data { value: inline_value(payload), refs: payload.refs.clone() })
            }
            Some(Ok(Output::Stored(stored))) => match world.read(self.executor, stored) {
                Some(data) => Fetched::Data(data),
                None => {
                    let key = stored.key;
                    world.could_not_read(self.attempt, stored);
                    self.known.remove(&id);
                    self.send(FromExecutor::Lost { attempt: self.attempt, key }, world);
                    Fetched::Absent
                }
            },
            Some(Ok(Output::Alias(value))) => {
                world.violation(format!("{:?} was given {value:?} unresolved", self.attempt));
                Fetched::Failed(Code::Internal)
            }
        }
    }

    fn finish(&mut self, world: &mut Machines) -> bool {
        let text = self.text(world).clone();
        match text.fails {
            Fails::Always(code) => return self.fail(error(code, "it always does"), world),
            Fails::Once if world.first_time(self.attempt.task) => {
                return self.fail(error(Code::ErrorReturned, "only once").retryable(true), world);
            }
            _ => {}
        }
        let outputs = text.returns.iter().enumerate().filter(|_| !text.generator);
        let outputs: Vec<Output> = outputs.map(|(n, output)| self.output(n, output, world)).collect();
        self.send_finished(Ok(outputs), world);
        true
    }

    fn output(&mut self, n: usize, output: &Return, world: &mut Machines) -> Output {
        let value = program::output_value(self.program, self.sum, n).wrapping_add(self.noise);
        match output {
            Return::Alias(register) => Output::Alias(Box::new(Value::Partition(self.registers[*register]))),
            Return::Data(_) => self.make(n as u32, value, output.shape(), Vec::new(), world),
            Return::Naming(_, registers) => {
                let refs = registers.iter().map(|register| self.registers[*register]).collect();
                self.make(n as u32, value, output.shape(), refs, world)
            }
        }
    }

    fn make(
        &mut self,
        output: u32,
        value: u64,
        shape: Shape,
        refs: Vec<PartitionId>,
        world: &mut Machines,
    ) -> Output {
        let Shape::Stored(bytes) = shape else { return Output::Inline(payload(value, shape, refs)) };
        let key = StoredKey {
            job: self.assignment.job,
            partition: PartitionId { task: self.attempt.task, output },
            epoch: self.attempt.epoch,
            attempt: self.attempt.number,
        };
        let eager = self.assignment.durability == Durability::Eager;
        let data = Data { value, refs: refs.clone() };
        world.write(self.executor, key, data, self.assignment.durability);
        let meta = PartitionMeta { bytes, blocks: 1, crc32c: value as u32 };
        Output::Stored(Stored { key, meta, at: Some(self.executor), durable: eager, refs })
    }

    fn fail(&mut self, error: Error, world: &mut Machines) -> bool {
        self.send_finished(Err(error), world);
        true
    }

    pub fn send_finished(&mut self, result: Result<Vec<Output>, Error>, world: &mut Machines) {
        let usage = Usage { run_us: 1, ..Usage::default() };
        let message = FromExecutor::Finished { attempt: self.attempt, result, usage, logs: Bytes::new() };
        self.send(message, world);
    }

    fn send(&self, message: FromExecutor, world: &mut Machines) {
        world.send(self.executor, Some(self.attempt), message);
    }

    fn text<'a>(&self, world: &'a Machines) -> &'a Program {
        &world.programs[self.program]
    }
}

fn payload(value: u64, shape: Shape, refs: Vec<PartitionId>) -> Payload {
    let mut bytes = value.to_le_bytes().to_vec();
    if matches!(shape, Shape::Large) {
        bytes.resize(400, 0);
    }
    Payload { bytes: bytes.into(), refs }
}

pub fn inline_value(payload: &Payload) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&payload.bytes[..8]);
    u64::from_le_bytes(bytes)
}

fn error(code: Code, message: &'static str) -> Error {
    let kind = if code == Code::Timeout { Kind::Limit } else { Kind::Guest };
    Error::new(kind, code, message)
}
