//! What a task makes: the outputs it writes, returns, yields and `put`s.
//!
//! Promises: an output is made once per attempt; whatever was not announced to the owner leaves nothing behind when
//! the attempt ends, however it ends.

use std::collections::{HashMap, HashSet};

use fanfold_protocol::{
    Code, Error, Kind, PartitionId,
    call::Durability,
    limit,
    message::FromExecutor,
    value::{Output, Payload, Stored, StoredKey, Value},
};
use fanfold_store::{Failpoint, Index};

use super::{bindings::fanfold::function::types, convert, futures::Origin, host::TaskHost, writer::Writer};
use crate::cache::{Charge, Growing, Segments};

/// See the module.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Outputs that were begun, by number.
    begun: HashMap<u32, Begun>,
    /// Stored, and not announced to anybody.
    unannounced: HashSet<StoredKey>,
    yielded: u32,
    put: u32,
}

#[derive(Clone, Debug)]
enum Begun {
    Writing,
    Finished(Stored),
}

impl TaskHost {
    /// Begins output number `output`.
    pub(super) fn create(&mut self, output: u32) -> Result<u32, Error> {
        let outputs = &self.outputs;
        if self.identity.generator {
            if output != outputs.yielded {
                return Err(Error::invalid(format!(
                    "output {output} of a generator that yielded {}: create the next one",
                    outputs.yielded
                )));
            }
        } else if output >= self.identity.outputs {
            return Err(Error::invalid(format!(
                "output {output} of a task with {} outputs: they count from 0",
                self.identity.outputs
            )));
        }
        match outputs.begun.get(&output) {
            Some(Begun::Writing) => return Err(made(output, "is being written")),
            Some(Begun::Finished(_)) => return Err(made(output, "was finished")),
            None => {}
        }
        if self.writers.len() >= limit::WRITERS_MAX {
            return Err(Error::invalid(format!(
                "the task has {} writers: finish some first",
                limit::WRITERS_MAX
            )));
        }
        self.outputs.begun.insert(output, Begun::Writing);
        Ok(self.writers.insert(Box::new(Writer::new(output))) as u32)
    }

    /// Gives up an output that was begun.
    pub(super) fn abandon(&mut self, writer: &Writer) {
        self.outputs.begun.remove(&writer.output);
    }

    /// Completes an output.
    pub(super) fn finish(&mut self, writer: Writer) -> Value {
        let output = writer.output;
        let (segments, index, charge) = writer.finish();
        let stored = self.store(output, segments, index, charge);
        self.outputs.begun.insert(output, Begun::Finished(stored));
        Value::Partition(self.identity.output(output))
    }

    /// Puts a partition of this task into the cache.
    fn store(&mut self, output: u32, segments: Segments, index: Index, charge: Charge) -> Stored {
        let (key, meta, refs) = (self.identity.key(output), index.meta(), index.refs().to_vec());
        self.bytes_written += meta.bytes;
        self.outputs.unannounced.insert(key);
        self.env.cache.insert(key, segments, index, charge, self.identity.durability);
        Stored { key, meta, at: Some(self.env.executor), durable: false, refs }
    }

    /// Stores a payload as a partition of one block.
    async fn store_payload(&mut self, output: u32, payload: Payload) -> Result<Output, Error> {
        let mut growing = Growing::default();
        let charge = self.env.cache.charge(growing.growth(payload.bytes.len()) as u64).await?;
        growing.append(&payload.bytes);
        let mut index = Index::builder();
        index.write(&payload.bytes);
        payload.refs.iter().for_each(|id| index.add_ref(*id));
        Ok(Output::Stored(self.store(output, growing.finish(), index.finish(), charge)))
    }

    pub(super) async fn put(&mut self, payload: types::Payload) -> Result<PartitionId, Error> {
        let payload = convert::payload(payload)?;
        self.check_refs(&payload)?;
        if payload.bytes.len() as u64 > limit::INPUT_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a payload of {} bytes: write what is over {} as an output",
                payload.bytes.len(),
                limit::INPUT_BYTES_MAX
            )));
        }
        let number = PartitionId::FIRST_PUT + self.outputs.put;
        let mut output = if payload.bytes.len() > limit::INLINE_BYTES_MAX {
            self.store_payload(number, payload).await?
        } else {
            Output::Inline(payload)
        };
        self.outputs.put += 1;
        let id = self.identity.output(number);
        self.settle(std::slice::from_mut(&mut output)).await?;
        self.futures.name(id, Origin::Attempt);
        let kept = self.futures.learn(id, &Ok(output.clone()));
        let Some(owner) = &self.owner else {
            return if kept {
                Ok(id)
            } else {
                Err(Error::invalid("this call has `put` too much: it runs on its own"))
            };
        };
        owner
            .send(FromExecutor::Put { attempt: owner.attempt(), output: number, value: output.clone() })
            .await?;
        self.announced(&output);
        Ok(id)
    }

    pub(super) async fn yield_value(&mut self, value: types::Value) -> Result<(), Error> {
        if !self.identity.generator {
            return Err(Error::invalid(
                "only a generator yields: this task was submitted with a number of outputs",
            ));
        }
        let number = self.outputs.yielded;
        let mut output = self.output(number, convert::value(value)?).await?;
        let Some(owner) = &self.owner else {
            return Err(Error::internal("a generator runs without an owner"));
        };
        owner.until_may_yield(number).await;
        self.settle(std::slice::from_mut(&mut output)).await?;
        self.flush_drops(1).await?;
        let owner = self.owner()?;
        owner
            .send(FromExecutor::Yield { attempt: owner.attempt(), output: number, value: output.clone() })
            .await?;
        self.outputs.yielded += 1;
        self.announced(&output);
        Ok(())
    }

    /// Turns what the handler returned into the task's outputs, durable if they shall be.
    ///
    /// # Errors
    /// [`Code::MalformedResponse`] for the wrong number of values, or one that this task may not return.
    pub(super) async fn conclude(&mut self, values: Vec<types::Value>) -> Result<Vec<Output>, Error> {
        let expected = if self.identity.generator { 0 } else { self.identity.outputs as usize };
        if values.len() != expected {
            let message =
                format!("the handler returned {} values where {expected} were asked for", values.len());
            return Err(Error::new(Kind::Guest, Code::MalformedResponse, message));
        }
        let mut outputs = Vec::with_capacity(expected);
        for (number, value) in values.into_iter().enumerate() {
            let value = convert::value(value).map_err(malformed(number))?;
            outputs.push(self.output(number as u32, value).await.map_err(malformed(number))?);
        }
        self.settle(&mut outputs).await?;
        for output in &outputs {
            self.announced(output);
        }
        Ok(outputs)
    }

    /// Output number `number`, of which the task says that it is `value`.
    async fn output(&mut self, number: u32, value: Value) -> Result<Output, Error> {
        let own = self.identity.output(number);
        if value == Value::Partition(own) {
            return match self.outputs.begun.get(&number) {
                Some(Begun::Finished(stored)) => Ok(Output::Stored(stored.clone())),
                _ => Err(Error::invalid(format!("output {number} was not finished"))),
            };
        }
        self.check_value(&value)?;
        match value {
            Value::Inline(payload) if payload.bytes.len() > limit::INLINE_BYTES_MAX => {
                if self.outputs.begun.contains_key(&number) {
                    return Err(made(number, "was written"));
                }
                self.store_payload(number, payload).await
            }
            Value::Inline(payload) => Ok(Output::Inline(payload)),
            other => Ok(Output::Alias(Box::new(other))),
        }
    }

    /// Makes outputs durable that shall be so before they are announced, and notes which of them are.
    async fn settle(&self, outputs: &mut [Output]) -> Result<(), Error> {
        let cache = &self.env.cache;
        Failpoint::FunctionReturned.pass();
        if self.identity.durability == Durability::Eager && self.owner.is_some() {
            cache.persist(outputs.iter().filter_map(stored_key).collect()).await?;
            Failpoint::OutputsStored.pass();
        }
        for output in outputs {
            if let Output::Stored(stored) = output {
                stored.durable = cache.is_durable(stored.key);
            }
        }
        Ok(())
    }

    /// From here on the owner says when it is freed.
    fn announced(&mut self, output: &Output) {
        if let Some(key) = stored_key(output) {
            self.outputs.unannounced.remove(&key);
        }
    }
}

impl Drop for TaskHost {
    fn drop(&mut self) {
        if !self.outputs.unannounced.is_empty() {
            let keys: Vec<StoredKey> = self.outputs.unannounced.drain().collect();
            self.env.cache.free(&keys);
        }
    }
}

fn stored_key(output: &Output) -> Option<StoredKey> {
    match output {
        Output::Stored(stored) => Some(stored.key),
        Output::Inline(_) | Output::Alias(_) => None,
    }
}

fn made(output: u32, how: &str) -> Error {
    Error::new(Kind::Conflict, Code::AlreadyFinished, format!("output {output} {how} already"))
}

/// What is wrong with a returned value, as the function's fault.
fn malformed(number: usize) -> impl Fn(Error) -> Error {
    move |error| match error.kind {
        Kind::Invalid | Kind::Conflict => {
            let message = format!("the handler returned a wrong value for output {number}: {error}");
            Error::new(Kind::Guest, Code::MalformedResponse, message)
        }
        _ => error,
    }
}
