//! What tests and measurements of the scheduled lane share: a guest, an executor, and an owner that runs everything at
//! once.

#![allow(dead_code, reason = "each user needs its own part of it")]

pub mod owner;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use fanfold_executor::{Config, Executor, Session};
use fanfold_protocol::{
    AttemptId, Digest, JobId, Manifest, TaskId,
    call::Durability,
    direct::DirectLane as _,
    function::FunctionVersion,
    link::ShardTag,
    message::{Argument, Assignment, FromExecutor},
    value::{Output, Value},
};
use fanfold_store::Store;
use tokio::sync::mpsc;

/// Whose jobs these are.
const SHARD: ShardTag = ShardTag(7);

/// The guest of `guest.wat` as a component.
pub fn guest() -> Vec<u8> {
    let mut module = wat::parse_str(include_str!("guest.wat")).unwrap();
    let mut resolve = wit_parser::Resolve::default();
    // Said when the tests run: clones share a target directory.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let wit = Path::new(&here).join("../sdk/wit");
    let (package, _) = resolve.push_path(wit).unwrap();
    let world = resolve.select_world(&[package], Some("task")).unwrap();
    let encoding = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut module, &resolve, world, encoding).unwrap();
    wit_component::ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// An executor with a deployed component, and the messages it sends.
pub struct Fixture {
    pub executor: Executor,
    pub session: Arc<Session>,
    pub store: Store,
    pub function: Arc<FunctionVersion>,
    pub events: mpsc::Receiver<FromExecutor>,
}

impl Fixture {
    pub async fn start(config: Config, store: Store, component: Vec<u8>) -> Self {
        let (tx, events) = mpsc::channel(fanfold_protocol::limit::MESSAGE_QUEUE_MAX);
        let executor = Executor::start(config, store.clone()).await.unwrap();
        let session = Arc::new(executor.attach(SHARD, tx));
        let function = deploy(&executor, &store, component).await;
        Self { executor, session, store, function, events }
    }

    pub async fn with_guest() -> Self {
        Self::start(Config::default(), Store::in_memory(), guest()).await
    }
}

pub async fn deploy(executor: &Executor, store: &Store, component: Vec<u8>) -> Arc<FunctionVersion> {
    let component = store.put_component(component.into()).await.unwrap();
    let info = executor.prepare(component).await.unwrap();
    let manifest = Manifest::named("guest".parse().unwrap());
    let version = FunctionVersion::digest(component, &manifest);
    let name = manifest.name.clone();
    let function = FunctionVersion { name, version, component, manifest, info, deployed_at_ms: 0 };
    store.put_version(&function).await.unwrap();
    Arc::new(function)
}

/// A root task of a new job.
pub fn root(version: Digest, entry: &str, args: Vec<Value>) -> Assignment {
    let job = JobId::new(1, SHARD, uuid::Uuid::now_v7().as_u64_pair().1.to_be_bytes());
    let args = args.into_iter().map(|value| Argument { value, output: None }).collect();
    Assignment {
        attempt: AttemptId { task: TaskId::root(job), epoch: 1, number: 1 },
        job,
        version,
        entry: entry.to_owned(),
        args,
        outputs: 1,
        generator: false,
        memory: 64 << 20,
        gpu: 0,
        timeout_ms: 30_000,
        durability: Durability::Lazy,
    }
}

pub fn inline(bytes: &[u8]) -> Value {
    Value::Inline(Bytes::copy_from_slice(bytes).into())
}

pub fn bytes(output: &Output) -> &[u8] {
    match output {
        Output::Inline(payload) => &payload.bytes,
        other => panic!("not inline: {other:?}"),
    }
}
