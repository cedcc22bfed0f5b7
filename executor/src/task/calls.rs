//! `fanfold:function/tasks`: making calls and waiting for what they make.
//!
//! A call is one message and no answer: ids are computed, so futures are handed out at once.

use fanfold_protocol::{
    Code, Error, Kind, PartitionId,
    call::Call,
    limit,
    message::FromExecutor,
    value::{Output, Payload, Value},
};
use wasmtime::component::Resource;

use super::{
    bindings::fanfold::function::{tasks, types},
    convert,
    futures::Origin,
    host::{Generator, TaskHost, View, stale},
    resource,
};

impl TaskHost {
    async fn submit(
        &mut self,
        call: tasks::Call,
        outputs: u32,
        memo: bool,
    ) -> Result<Vec<Resource<resource::Future>>, Error> {
        if outputs > limit::OUTPUTS_MAX {
            return Err(refused(format!(
                "the call asks for {outputs} outputs: ask for at most {}, or write blocks",
                limit::OUTPUTS_MAX
            )));
        }
        if outputs as usize > self.futures.room() {
            return Err(refused(format!(
                "the task holds {} futures and may hold {}: drop some first",
                limit::FUTURES_HELD_MAX - self.futures.room(),
                limit::FUTURES_HELD_MAX
            )));
        }
        let mut call = self.checked(call, outputs, false)?;
        call.options.memo = memo;
        let task = self.make(call).await?;
        let first = PartitionId { task, output: 0 };
        if outputs > 0 {
            self.pending.push_back(first);
        }
        (0..outputs).map(|output| self.future(PartitionId { output, ..first }, Origin::Counted)).collect()
    }

    async fn generate(&mut self, call: tasks::Call) -> Result<Resource<resource::Generator>, Error> {
        if self.generators.len() >= limit::GENERATORS_MAX {
            let message = format!("the task has {} generators: drop some first", limit::GENERATORS_MAX);
            return Err(refused(message));
        }
        let call = self.checked(call, 0, true)?;
        let task = self.make(call).await?;
        let handle = self.generators.insert(Generator { task, next: 0, ended: false });
        Ok(Resource::new_own(handle as u32))
    }

    /// Sends a call; the id of its task. A call that is refused here takes no index.
    async fn make(&mut self, call: Call) -> Result<fanfold_protocol::TaskId, Error> {
        self.owner()?;
        self.throttle().await?;
        self.flush_drops(1).await?;
        let index = self.calls;
        self.calls += 1;
        let owner = self.owner()?;
        let attempt = owner.attempt();
        owner.send(FromExecutor::Submit { attempt, index, call: Box::new(call) }).await?;
        Ok(attempt.task.child(index))
    }

    fn checked(&self, call: tasks::Call, outputs: u32, generator: bool) -> Result<Call, Error> {
        let tasks::Call { function, entry, args, options } = call;
        if args.len() > limit::CALL_ARGS_MAX {
            let message =
                format!("the call has {} arguments: give at most {}", args.len(), limit::CALL_ARGS_MAX);
            return Err(refused(message));
        }
        let args = args.into_iter().map(convert::value).collect::<Result<Vec<_>, _>>()?;
        let mut bytes = entry.len() + function.as_ref().map_or(0, String::len);
        for value in &args {
            self.check_value(value)?;
            bytes += inline_bytes(value)?;
        }
        if bytes > limit::CALL_BYTES_MAX {
            return Err(refused(format!(
                "the call carries {bytes} bytes: `put` what is over {} and pass the partition",
                limit::CALL_BYTES_MAX
            )));
        }
        Ok(Call { function, entry, args, outputs, generator, options: options.into() })
    }

    /// Waits while the task has [`limit::JOB_TASKS_PENDING_MAX`] calls that are not known to have ended, for the
    /// oldest quarter of them. The same on every replay: it depends only on what was called and answered.
    async fn throttle(&mut self) -> Result<(), Error> {
        if self.pending.len() < limit::JOB_TASKS_PENDING_MAX {
            return Ok(());
        }
        let futures = &self.futures;
        self.pending.retain(|id| futures.may_name(*id) && !futures.ready(*id));
        if self.pending.len() < limit::JOB_TASKS_PENDING_MAX {
            return Ok(());
        }
        let oldest: Vec<PartitionId> = self.pending.drain(..limit::JOB_TASKS_PENDING_MAX / 4).collect();
        self.ask(&oldest).await
    }

    /// Waits for all of `ids` and notes what became of them.
    async fn ask(&mut self, ids: &[PartitionId]) -> Result<(), Error> {
        self.flush_drops(1).await?;
        let ready = self.owner()?.all(ids.to_vec()).await?;
        for (position, result) in &ready {
            if let Some(id) = ids.get(*position as usize) {
                self.futures.learn(*id, result);
            }
        }
        Ok(())
    }

    async fn wait(
        &mut self,
        futures: Vec<Resource<resource::Future>>,
        count: u32,
        timeout_ms: Option<u64>,
    ) -> Result<Vec<u32>, Error> {
        if futures.len() > limit::WAIT_FUTURES_MAX {
            return Err(refused(format!(
                "a wait for {} futures: give at most {}",
                futures.len(),
                limit::WAIT_FUTURES_MAX
            )));
        }
        if count as usize > futures.len() {
            return Err(refused(format!("a wait for {count} of {} futures cannot end", futures.len())));
        }
        let ids = self.ids(&futures)?;
        // Only where all are waited for without a limit of time is the answer known beforehand. Any other must come
        // from the owner, who records it, so that a replay gets the same one.
        if count as usize == ids.len() && timeout_ms.is_none() {
            let unknown: Vec<PartitionId> =
                ids.iter().copied().filter(|id| !self.futures.ready(*id)).collect();
            if !unknown.is_empty() {
                self.ask(&unknown).await?;
            }
            return Ok((0..count).collect());
        }
        self.flush_drops(1).await?;
        let ready = self.owner()?.some(ids.clone(), count, timeout_ms).await?;
        let known =
            ready.iter().filter_map(|(position, result)| Some((ids.get(*position as usize)?, result)));
        for (id, result) in known {
            self.futures.learn(*id, result);
        }
        Ok(ready.into_iter().map(|(position, _)| position).collect())
    }

    async fn get(&mut self, future: &Resource<resource::Future>) -> Result<Payload, Error> {
        let id = self.futures.id(future.rep()).ok_or_else(stale)?;
        if let Output::Inline(payload) = self.output_of(id).await? {
            return Ok(payload);
        }
        let reader = self.open_value(Value::Partition(id)).await?;
        let (bytes, refs) = (reader.size(), reader.refs().to_vec());
        if bytes > limit::HOST_CALL_BYTES_MAX as u64 {
            let message = format!("the partition has {bytes} bytes: `open` it and read it in pieces");
            return Err(Error::new(Kind::Limit, Code::OutputTooLarge, message));
        }
        let (_, read) = self.read_from(reader, 0, bytes as u32).await;
        Ok(Payload { bytes: read?, refs })
    }

    async fn next(
        &mut self,
        generator: &Resource<resource::Generator>,
    ) -> Result<Option<Resource<resource::Future>>, Error> {
        let state = self.generators.get(generator.rep() as usize).ok_or_else(stale)?;
        if state.ended {
            return Ok(None);
        }
        let (task, output) = (state.task, state.next);
        self.flush_drops(1).await?;
        let answer = self.owner()?.next(task, output).await;
        let state = self.generators.get_mut(generator.rep() as usize).ok_or_else(stale)?;
        match answer? {
            Some(id) => {
                state.next += 1;
                self.future(id, Origin::Counted).map(Some)
            }
            None => {
                state.ended = true;
                Ok(None)
            }
        }
    }

    fn adopt(&mut self, id: PartitionId) -> Result<Resource<resource::Future>, Error> {
        self.check_named(id)?;
        Ok(Resource::new_own(self.futures.hold(id)?))
    }

    async fn cancel(&mut self, futures: Vec<Resource<resource::Future>>) -> Result<(), Error> {
        let futures = self.ids(&futures)?;
        if futures.is_empty() {
            return Ok(());
        }
        let owner = self.owner()?;
        owner.send(FromExecutor::Cancel { attempt: owner.attempt(), futures }).await
    }

    fn ids(&self, futures: &[Resource<resource::Future>]) -> Result<Vec<PartitionId>, Error> {
        futures.iter().map(|future| self.futures.id(future.rep()).ok_or_else(stale)).collect()
    }

    fn future(&mut self, id: PartitionId, origin: Origin) -> Result<Resource<resource::Future>, Error> {
        self.futures.name(id, origin);
        Ok(Resource::new_own(self.futures.hold(id)?))
    }

    /// How `id` ended, waiting for it if need be.
    pub(super) async fn output_of(&mut self, id: PartitionId) -> Result<Output, Error> {
        if let Some(known) = self.futures.ended(id) {
            return known.clone();
        }
        self.flush_drops(1).await?;
        let ready = self.owner()?.all(vec![id]).await?;
        let unanswered = || Error::internal(format!("the owner did not say what became of partition {id}"));
        let (_, result) = ready.into_iter().next().ok_or_else(unanswered)?;
        self.futures.learn(id, &result);
        result
    }
}

/// Inline bytes of an argument.
fn inline_bytes(value: &Value) -> Result<usize, Error> {
    match value {
        Value::Inline(payload) if payload.bytes.len() > limit::INLINE_BYTES_MAX => Err(refused(format!(
            "an argument has {} bytes: `put` what is over {} and pass the partition",
            payload.bytes.len(),
            limit::INLINE_BYTES_MAX
        ))),
        Value::Inline(payload) => Ok(payload.bytes.len() + size_of_val(payload.refs.as_slice())),
        Value::Object(range) => Ok(range.key.len()),
        Value::Partition(_) | Value::Blocks { .. } => Ok(0),
    }
}

fn refused(message: String) -> Error {
    Error::new(Kind::Invalid, Code::Call, message)
}

impl tasks::Host for View<'_> {
    async fn submit(
        &mut self,
        call: tasks::Call,
        outputs: u32,
    ) -> Result<Vec<Resource<resource::Future>>, Error> {
        self.host()?.submit(call, outputs, false).await
    }

    async fn submit_memo(
        &mut self,
        call: tasks::Call,
        outputs: u32,
    ) -> Result<Vec<Resource<resource::Future>>, Error> {
        self.host()?.submit(call, outputs, true).await
    }

    async fn generate(&mut self, call: tasks::Call) -> Result<Resource<resource::Generator>, Error> {
        self.host()?.generate(call).await
    }

    async fn wait(
        &mut self,
        futures: Vec<Resource<resource::Future>>,
        count: u32,
        timeout_ms: Option<u64>,
    ) -> Result<Vec<u32>, Error> {
        self.host()?.wait(futures, count, timeout_ms).await
    }

    async fn get(&mut self, future: Resource<resource::Future>) -> Result<types::Payload, Error> {
        Ok(self.host()?.get(&future).await?.into())
    }

    fn adopt(&mut self, id: types::PartitionId) -> Result<Resource<resource::Future>, Error> {
        self.host()?.adopt(id.into())
    }

    async fn cancel(&mut self, futures: Vec<Resource<resource::Future>>) -> wasmtime::Result<()> {
        Ok(self.host()?.cancel(futures).await?)
    }
}

impl tasks::HostFuture for View<'_> {
    fn id(&mut self, future: Resource<resource::Future>) -> wasmtime::Result<types::PartitionId> {
        Ok(self.host()?.futures.id(future.rep()).ok_or_else(stale)?.into())
    }

    fn drop(&mut self, future: Resource<resource::Future>) -> wasmtime::Result<()> {
        self.host()?.release(future.rep());
        Ok(())
    }
}

impl tasks::HostGenerator for View<'_> {
    async fn next(
        &mut self,
        generator: Resource<resource::Generator>,
    ) -> Result<Option<Resource<resource::Future>>, Error> {
        self.host()?.next(&generator).await
    }

    fn drop(&mut self, generator: Resource<resource::Generator>) -> wasmtime::Result<()> {
        // The generator itself goes on: its other outputs may matter to nobody, what it does on the way may.
        self.host()?.generators.try_remove(generator.rep() as usize);
        Ok(())
    }
}
