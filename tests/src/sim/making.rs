//! What a simulated attempt makes: puts, yields, outputs and its end.

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind, PartitionId,
    call::Durability,
    message::{FromExecutor, Spent, Usage},
    value::{Output, PartitionMeta, Payload, Stored, StoredKey, Value},
};

use super::{
    machine::{Held, Machine},
    program::{self, Fails, Return, Shape},
    world::{Data, Machines},
};

impl Machine {
    pub(super) fn put(&mut self, shape: Shape, world: &mut Machines) {
        let output = PartitionId::FIRST_PUT + self.puts;
        self.puts += 1;
        let value = program::put_value(self.program, self.sum).wrapping_add(self.noise);
        let value = self.make(output, value, shape, Vec::new(), world);
        self.registers.push(PartitionId { task: self.attempt.task, output });
        self.send(FromExecutor::Put { attempt: self.attempt, output, value }, world);
    }

    pub(super) fn give(&mut self, shape: Shape, world: &mut Machines) {
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

    pub(super) fn finish(&mut self, world: &mut Machines) -> bool {
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

    pub(super) fn output(&mut self, n: usize, output: &Return, world: &mut Machines) -> Output {
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

    pub(super) fn make(
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

    pub(super) fn fail(&mut self, error: Error, world: &mut Machines) -> bool {
        self.send_finished(Err(error), world);
        true
    }

    pub fn send_finished(&mut self, result: Result<Vec<Output>, Error>, world: &mut Machines) {
        let usage = Usage { run_us: 1, ..Usage::default() };
        let (attempt, spent, logs) = (self.attempt, Spent::default(), Bytes::new());
        let message = FromExecutor::Finished { attempt, result, usage, spent, logs };
        self.send(message, world);
    }
}

pub(super) fn payload(value: u64, shape: Shape, refs: Vec<PartitionId>) -> Payload {
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

pub(super) fn error(code: Code, message: &'static str) -> Error {
    let kind = if code == Code::Timeout { Kind::Limit } else { Kind::Guest };
    Error::new(kind, code, message)
}
