//! The state behind a task's host calls, and what it was given at its start.
//!
//! One [`TaskHost`] per attempt, in the attempt's wasmtime store. It belongs to one guest, whose calls come one at a
//! time. The interfaces of the WIT are implemented on [`View`], each in its own module.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use fanfold_gpu::Gpu;
use fanfold_protocol::{
    AttemptId, Code, Error, ExecutorId, JobId, Kind, PartitionId, TaskId,
    call::Durability,
    function::FunctionVersion,
    limit,
    message::{Argument, FromExecutor},
    value::{Payload, StoredKey, Value},
};
use fanfold_store::Store;
use slab::Slab;
use tokio_util::task::TaskTracker;

use super::{
    bindings::fanfold::function::types,
    convert,
    futures::{self, Futures, Origin},
    gpu::GpuHost,
    object_writer::ObjectWriter,
    outputs::Outputs,
    owner::Owner,
    reader::{Fetched, Reader},
    writer::Writer,
};
use crate::cache::{Budget, Cache};

/// What all tasks of an executor share.
#[derive(Debug)]
pub struct Environment {
    /// This executor.
    pub executor: ExecutorId,
    /// Partitions.
    pub cache: Cache,
    /// Users' objects.
    pub store: Store,
    /// Reads ahead of a guest run under it.
    pub reads: TaskTracker,
    /// Bytes that they, and reads for a guest that waits, have fetched.
    pub fetched: Arc<Budget>,
    /// What computes for functions that want a gpu; `None` where the executor has no slots for them.
    pub gpu: Option<Gpu>,
}

/// Who a task is.
#[derive(Debug)]
pub struct Identity {
    /// The attempt.
    pub attempt: AttemptId,
    /// The job.
    pub job: JobId,
    /// What runs.
    pub function: Arc<FunctionVersion>,
    /// Which entry.
    pub entry: String,
    /// Outputs it must return.
    pub outputs: u32,
    /// Whether it yields them instead.
    pub generator: bool,
    /// When its outputs go to the object store.
    pub durability: Durability,
    /// GPUs it holds.
    pub gpu: u32,
}

impl Identity {
    /// Output `output` of this task.
    pub fn output(&self, output: u32) -> PartitionId {
        PartitionId { task: self.attempt.task, output }
    }

    /// Where this attempt stores output number `output`.
    pub fn key(&self, output: u32) -> StoredKey {
        let AttemptId { epoch, number, .. } = self.attempt;
        StoredKey { job: self.job, partition: self.output(output), epoch, attempt: number }
    }
}

/// See the module.
#[derive(Debug)]
pub struct TaskHost {
    pub(super) env: Arc<Environment>,
    pub(super) identity: Identity,
    /// `None` in the direct lane: nobody to submit to.
    pub(super) owner: Option<Owner>,
    pub(super) futures: Futures,
    pub(super) generators: Slab<Generator>,
    pub(super) readers: Slab<Box<Reader>>,
    pub(super) writers: Slab<Box<Writer>>,
    /// Each is taken out while it writes.
    pub(super) object_writers: Slab<Option<Box<ObjectWriter>>>,
    pub(super) outputs: Outputs,
    /// Its session on a gpu, from its first call there.
    pub(super) gpu: Option<Box<GpuHost>>,
    /// Calls made so far: the index of the next one.
    pub(super) calls: u64,
    /// First outputs of calls, in order, that are not known to have ended.
    pub(super) pending: VecDeque<PartitionId>,
    /// What its readers have fetched.
    pub(super) fetched: Fetched,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    /// What it was told last of a partition that was made again and differs.
    pub(super) differs: Option<Cow<'static, str>>,
}

/// A generator whose outputs this task takes.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) task: TaskId,
    pub(super) next: u32,
    pub(super) ended: bool,
}

impl TaskHost {
    /// For an attempt whose arguments are `args`.
    pub fn new(env: Arc<Environment>, identity: Identity, owner: Option<Owner>, args: &[Argument]) -> Self {
        let mut host = Self {
            fetched: Fetched::new(env.fetched.clone()),
            env,
            identity,
            owner,
            futures: Futures::default(),
            generators: Slab::new(),
            readers: Slab::new(),
            writers: Slab::new(),
            object_writers: Slab::new(),
            outputs: Outputs::default(),
            gpu: None,
            calls: 0,
            pending: VecDeque::new(),
            bytes_read: 0,
            bytes_written: 0,
            differs: None,
        };
        for arg in args {
            for id in arg.value.refers() {
                host.futures.name(id, Origin::Attempt);
            }
            if let (Some(id), Some(output)) = (arg.value.needs(), &arg.output) {
                host.futures.learn(id, &Ok(output.clone()));
            }
        }
        host
    }

    /// The way to the owner.
    ///
    /// # Errors
    /// [`Kind::Invalid`] in the direct lane.
    pub(super) fn owner(&mut self) -> Result<&mut Owner, Error> {
        self.owner.as_mut().ok_or_else(|| {
            Error::new(
                Kind::Invalid,
                Code::Call,
                "this call runs on its own: only a task of a job can do this",
            )
        })
    }

    /// Whether this task may name a partition: it holds it, was given it, or made it and it is visible already.
    ///
    /// # Errors
    /// [`Kind::Invalid`], saying which partition and why not.
    pub(super) fn check_named(&self, id: PartitionId) -> Result<(), Error> {
        if self.futures.may_name(id) {
            return Ok(());
        }
        if id.task == self.identity.attempt.task && id.output < PartitionId::FIRST_PUT {
            return Err(Error::invalid(format!(
                "partition {id} is an output of this very task, which exists once it ends: use `put` for what its \
                 calls shall read"
            )));
        }
        Err(futures::unknown(id))
    }

    /// [`TaskHost::check_named`] for all that a payload names.
    pub(super) fn check_refs(&self, payload: &Payload) -> Result<(), Error> {
        payload.refs.iter().try_for_each(|id| self.check_named(*id))
    }

    /// [`TaskHost::check_named`] for all that a value names.
    pub(super) fn check_value(&self, value: &Value) -> Result<(), Error> {
        value.refers().try_for_each(|id| self.check_named(id))
    }

    /// Tells the owner of dropped futures, if there are at least `at_least`.
    pub(super) async fn flush_drops(&mut self, at_least: usize) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        let Some(futures) = self.futures.take_dropped(at_least) else { return Ok(()) };
        owner.send(FromExecutor::Drop { attempt: owner.attempt(), futures }).await
    }

    /// Drops a handle to a future. Tells the owner once there are many, if it listens; else with the next message.
    pub(super) fn release(&mut self, handle: u32) {
        self.futures.release(handle);
        let Some(owner) = &self.owner else { return };
        let Some(futures) = self.futures.take_dropped(limit::DROPS_HELD_MAX) else { return };
        if let Some(FromExecutor::Drop { futures, .. }) =
            owner.try_send(FromExecutor::Drop { attempt: owner.attempt(), futures })
        {
            self.futures.put_back_dropped(futures);
        }
    }

    /// The error that the handler returned. Where it passes on that something was made again and differs, its caller is told
    /// so, too, with that code: no retry of the caller would help.
    pub(super) fn returned(&self, error: types::Error) -> Error {
        let passed_on =
            error.kind == types::ErrorKind::Guest && self.differs.as_deref() == Some(&error.message);
        let error = convert::returned(error);
        if passed_on { Error { code: Code::NonDeterministic, ..error } } else { error }
    }

    /// What the attempt read and wrote, in bytes of partitions and objects.
    pub fn transferred(&self) -> (u64, u64) {
        (self.bytes_read, self.bytes_written)
    }
}

/// Where a wasmtime store keeps the host side of its task.
pub trait HasTask: Send + 'static {
    /// Its task; `None` if the guest is something else.
    fn task(&mut self) -> Option<&mut TaskHost>;

    /// Keeps a line of the `log` call.
    ///
    /// # Errors
    /// Ends the guest, which wrote too much.
    fn log(
        &mut self,
        level: super::bindings::fanfold::function::log::Level,
        line: &str,
    ) -> wasmtime::Result<()>;

    /// Keeps what it says of how its job stands.
    fn stands(&mut self, text: String);
}

/// A task during one host call.
#[derive(Debug)]
pub struct View<'a>(pub(super) Option<&'a mut TaskHost>);

impl View<'_> {
    /// The task.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a guest that is no task.
    pub(super) fn host(&mut self) -> Result<&mut TaskHost, Error> {
        self.0.as_deref_mut().ok_or_else(|| {
            Error::new(
                Kind::Invalid,
                Code::Call,
                "this function is no task: export `fanfold:function/handler`",
            )
        })
    }
}

/// A handle that the guest has and the host does not know. The engine checks handles, so this is our own mistake.
pub(super) fn stale() -> Error {
    Error::internal("a handle of the guest names nothing on the host")
}
