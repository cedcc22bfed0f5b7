//! Attempts of functions that are no tasks. Those of tasks are in `tests/worker.rs`, over the public interface alone.

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, JobId, Kind, Manifest, TaskId,
    message::{Argument, Assignment},
    value::{Output, Value},
};
use fanfold_store::Store;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::*;
use crate::{Config, Executor, testing};
use fanfold_protocol::{call::Durability, direct::DirectLane as _, function::FunctionVersion};

async fn deploy(executor: &Executor, store: &Store, wat: &str) -> Digest {
    let component = store.put_component(wat::parse_str(wat).unwrap().into()).await.unwrap();
    let info = executor.prepare(component).await.unwrap();
    let manifest = Manifest::named("program".parse().unwrap());
    let version = FunctionVersion::digest(component, &manifest);
    let name = manifest.name.clone();
    let function = FunctionVersion { name, version, component, manifest, info, deployed_at_ms: 0 };
    store.put_version(&function).await.unwrap();
    version
}

/// Runs a program with `input`; its result and log lines.
async fn run(wat: &str, input: &'static [u8]) -> (Result<Vec<Output>, Error>, String) {
    let store = Store::in_memory();
    let (tx, mut events) = mpsc::channel(10);
    let executor = Executor::start(Config::default(), store.clone()).await.unwrap();
    let session = executor.attach(ShardTag::of("g0"), tx);
    let version = deploy(&executor, &store, wat).await;
    let job = JobId(Uuid::now_v7());
    let value = Value::Inline(Bytes::from_static(input).into());
    let assignment = Assignment {
        attempt: AttemptId { task: TaskId::root(job), epoch: 1, number: 1 },
        job,
        version,
        entry: String::new(),
        args: vec![Argument { value, output: None }],
        outputs: 1,
        generator: false,
        // Not what the manifest says: the second attempt of one that ran out of memory.
        memory: 256 << 20,
        gpu: 0,
        timeout_ms: 10_000,
        durability: Durability::Eager,
    };
    session.send(ToExecutor::Run(Box::new(assignment))).unwrap();
    let Some(FromExecutor::Finished { result, logs, usage, .. }) = events.recv().await else {
        panic!("no end")
    };
    assert!(usage.cpu_us > 0);
    executor.stop().await;
    (result, String::from_utf8(logs.to_vec()).unwrap())
}

#[tokio::test]
async fn a_program_reads_the_input_and_writes_the_output() {
    let (result, logs) = run(&testing::program("", "(call $echo)"), b"through a program").await;
    assert_eq!(result.unwrap(), [Output::Inline(Bytes::from_static(b"through a program").into())]);
    assert_eq!(logs, "");
}

#[tokio::test]
async fn a_program_that_fails_leaves_its_last_words() {
    let fails = testing::program(
        "no\\n",
        "(call $write (i32.const 2) (i32.const 64) (i32.const 3)) (call $exit (i32.const 3))",
    );
    let (result, logs) = run(&fails, b"").await;
    let error = result.unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Guest, Code::ExitStatus));
    assert!(logs.contains(r#""stream":"stderr","line":"no""#), "{logs}");
}
