//! How a simulated attempt reads: a value, and everything that it names, to any depth.

use fanfold_protocol::{
    Code, PartitionId,
    message::FromExecutor,
    value::{Output, Value},
};

use super::{
    machine::Machine,
    making::{error, inline_value},
    program::{self, error_value, mix},
    world::{Data, Machines},
};

/// A value that is being read with all that it names.
#[derive(Debug)]
pub(super) struct Reading {
    /// Values still to be added, and where.
    pub(super) stack: Vec<Frame>,
    pub(super) purpose: Purpose,
}

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) sum: u64,
    pub(super) left: Vec<PartitionId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Argument(usize),
    Future,
}

/// What reading one partition gave.
pub(super) enum Fetched {
    Data(Data),
    Failed(Code),
    /// It has to be waited for.
    Absent,
}

impl Machine {
    pub(super) fn read_argument(&mut self, n: usize, world: &mut Machines) {
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
    pub(super) fn begin_reading(&mut self, left: Vec<PartitionId>, sum: u64, purpose: Purpose) {
        let stack = vec![Frame { sum, left }];
        self.reading = Some(Reading { stack, purpose });
    }

    pub(super) fn read_on(&mut self, world: &mut Machines) -> bool {
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
    pub(super) fn names_only(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Argument(n) => matches!(self.assignment.args[n].value, Value::Inline(_)),
            Purpose::Future => false,
        }
    }

    pub(super) fn have_read(
        &mut self,
        result: Result<u64, Code>,
        purpose: Purpose,
        world: &mut Machines,
    ) -> bool {
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

    pub(super) fn fetch(&mut self, id: PartitionId, world: &mut Machines) -> Fetched {
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
}
