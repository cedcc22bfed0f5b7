//! The native host: runs what is submitted at once, in the calling thread, so that drivers and libraries can be tested
//! with `cargo test`.
//!
//! Each thread has its own partitions, objects and log, and nothing is ever freed. It promises the contract's
//! results, not its timing: a task has finished when `submit` returns, and so has a generator.

use std::{cell::RefCell, collections::HashMap, collections::VecDeque, mem, rc::Rc};

use super::data::{Data, ObjectWriter, Reader, Writer, fail};
use crate::{
    call::Entry,
    raw::{Call, Error, ErrorKind, Info, Level, Object, Page, PartitionId, Payload, TaskId, Value},
};

type Run = fn(Vec<Value>) -> crate::Result<Vec<Value>>;

/// The code of a call of this component, or nothing where it goes by name.
#[derive(Clone, Copy, Default)]
pub struct Local(Option<Run>);

impl Local {
    pub(crate) fn of<E: Entry>() -> Self {
        Self(Some(E::run))
    }
}

#[derive(Default)]
struct Host {
    data: Data,
    functions: HashMap<String, Run>,
    log: Vec<(Level, String)>,
    status: Option<String>,
    tasks: u64,
    frame: Frame,
}

/// The task that runs.
#[derive(Default)]
struct Frame {
    task: TaskId,
    entry: String,
    outputs: u32,
    puts: u32,
    yielded: Vec<PartitionId>,
}

/// The number of a task's first `put` partition, as the platform numbers them.
const FIRST_PUT: u32 = 1 << 31;

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

fn host<T>(act: impl FnOnce(&mut Host) -> T) -> T {
    HOST.with_borrow_mut(act)
}

/// Forgets everything that was written, logged or registered in this thread.
pub fn reset() {
    HOST.take();
}

/// Makes an entry callable as the main entry of function `name`.
pub fn register<E: Entry>(name: &str) {
    host(|host| host.functions.insert(name.into(), E::run));
}

/// What was said last in this thread of how its job stands; it is returned once.
pub fn take_status() -> Option<String> {
    host(|host| host.status.take())
}

/// The lines that were logged in this thread until now; they are returned once.
pub fn take_log() -> Vec<(Level, String)> {
    host(|host| mem::take(&mut host.log))
}

/// A handle; the native host does not count them.
#[derive(Debug)]
pub struct Future(PartitionId);

impl Future {
    pub(crate) fn id(&self) -> PartitionId {
        self.0
    }
}

/// The outputs of a generator that has run.
#[derive(Debug)]
pub struct Generator {
    outputs: VecDeque<PartitionId>,
    end: Option<Error>,
}

impl Generator {
    pub(crate) fn next(&mut self) -> Result<Option<Future>, Error> {
        match self.outputs.pop_front() {
            Some(id) => Ok(Some(Future(id))),
            None => self.end.take().map_or(Ok(None), Err),
        }
    }
}

/// Runs a call in a frame of its own; returns what it answered, and the frame.
fn run(call: &Call, outputs: u32, local: Local) -> (Result<Vec<Value>, Error>, Frame) {
    let ready = host(|host| {
        host.tasks += 1;
        let frame = Frame { task: (0, host.tasks), entry: call.entry.clone(), outputs, ..Frame::default() };
        let caller = mem::replace(&mut host.frame, frame);
        (caller, host.find(call, local).and_then(|run| host.data.failed(&call.args).map_or(Ok(run), Err)))
    });
    let (caller, found) = ready;
    let answer = found.and_then(|run| run(call.args.clone()).map_err(returned));
    (answer, host(|host| mem::replace(&mut host.frame, caller)))
}

/// A function may blame its caller; whatever other kind its error names, to its caller it is the function that failed.
fn returned(error: crate::Error) -> Error {
    let kind = match error.kind {
        blame @ (ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict) => blame,
        _ => ErrorKind::Guest,
    };
    Error { kind, ..error.into() }
}

impl Host {
    fn find(&self, call: &Call, local: Local) -> Result<Run, Error> {
        let Some(function) = &call.function else {
            return local.0.ok_or_else(|| fail(ErrorKind::NotFound, "this component has no such entry"));
        };
        let name = function.split(':').next().unwrap_or_default();
        let found = self.functions.get(name).copied();
        found.ok_or_else(|| fail(ErrorKind::NotFound, format!("no function `{name}` is registered")))
    }
}

pub(crate) fn submit(call: &Call, outputs: u32, local: Local) -> Result<Vec<Future>, Error> {
    let (answer, frame) = run(call, outputs, local);
    let answer = answer.and_then(|values| match values.len() as u32 == outputs {
        true => Ok(values),
        false => {
            Err(fail(ErrorKind::Guest, format!("returned {} outputs instead of {outputs}", values.len())))
        }
    });
    let future = |output| {
        host(|host| {
            let id = PartitionId { task: frame.task, output };
            let made = answer.as_ref().map_err(Clone::clone);
            let stored = made.and_then(|values| host.data.resolve(&values[output as usize]));
            host.data.store(id, stored);
            Future(id)
        })
    };
    Ok((0..outputs).map(future).collect())
}

/// Nothing is remembered here: it runs.
pub(crate) fn submit_memo(call: &Call, outputs: u32, local: Local) -> Result<Vec<Future>, Error> {
    submit(call, outputs, local)
}

pub(crate) fn generate(call: &Call, local: Local) -> Result<Generator, Error> {
    let (answer, frame) = run(call, 0, local);
    Ok(Generator { outputs: frame.yielded.into(), end: answer.err() })
}

pub(crate) fn wait(futures: &[&Future], count: u32, _: Option<u64>) -> Result<Vec<u32>, Error> {
    match count as usize <= futures.len() {
        true => Ok((0..futures.len() as u32).collect()),
        false => Err(fail(ErrorKind::Invalid, "waits for more futures than there are")),
    }
}

pub(crate) fn get(future: &Future) -> Result<Payload, Error> {
    let reader = open(&Value::Partition(future.0))?;
    if reader.size() > u64::from(crate::reader::READ_BYTES) {
        return Err(fail(ErrorKind::Limit, "over 1 MiB: open it"));
    }
    Ok(Payload { bytes: reader.read(0, u32::MAX)?, refs: reader.refs() })
}

pub(crate) fn adopt(id: PartitionId) -> Result<Future, Error> {
    Ok(Future(id))
}

pub(crate) fn cancel(_: &[&Future]) {}

pub(crate) fn open(value: &Value) -> Result<Reader, Error> {
    host(|host| host.data.resolve(value)).map(Reader)
}

pub(crate) fn create(output: u32) -> Result<Writer, Error> {
    Ok(Writer::new(PartitionId { task: host(|host| host.frame.task), output }))
}

pub(crate) fn finish(writer: Writer) -> Result<Value, Error> {
    let id = writer.id;
    let stored = Rc::new(writer.finish()?);
    host(|host| host.data.store(id, Ok(stored)));
    Ok(Value::Partition(id))
}

pub(crate) fn put(payload: &Payload) -> Result<PartitionId, Error> {
    host(|host| {
        let id = PartitionId { task: host.frame.task, output: FIRST_PUT + host.frame.puts };
        host.frame.puts += 1;
        let stored = host.data.resolve(&Value::Inline(payload.clone()));
        host.data.store(id, stored);
        Ok(id)
    })
}

pub(crate) fn yield_partition(value: &Value) -> Result<(), Error> {
    host(|host| {
        let id = PartitionId { task: host.frame.task, output: host.frame.yielded.len() as u32 };
        let stored = host.data.resolve(value)?;
        host.data.store(id, Ok(stored));
        host.frame.yielded.push(id);
        Ok(())
    })
}

pub(crate) fn head(key: &str) -> Result<Object, Error> {
    host(|host| host.data.head(key))
}

pub(crate) fn list(prefix: &str, after: Option<&str>) -> Result<Page, Error> {
    host(|host| host.data.list(prefix, after))
}

pub(crate) fn put_object(key: &str, bytes: &[u8]) -> Result<Object, Error> {
    host(|host| host.data.put_object(key, bytes))
}

pub(crate) fn create_object(key: &str) -> Result<ObjectWriter, Error> {
    Ok(ObjectWriter::new(key))
}

pub(crate) fn finish_object(writer: ObjectWriter) -> Result<Object, Error> {
    let (key, bytes) = writer.finish();
    put_object(&key, &bytes)
}

pub(crate) fn status(text: &str) {
    host(|host| host.status = Some(text.into()));
}

pub(crate) fn log(level: Level, message: &str) {
    host(|host| host.log.push((level, message.into())));
}

pub(crate) fn current() -> Info {
    host(|host| Info {
        task: host.frame.task,
        job: "00000000-0000-0000-0000-000000000000".into(),
        function: "native".into(),
        version: String::new(),
        entry: host.frame.entry.clone(),
        attempt: 1,
        executor: 0,
        outputs: host.frame.outputs,
    })
}
