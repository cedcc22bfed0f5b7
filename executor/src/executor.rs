//! The executor as the composition root sees it: start it, offer it, send it messages, stop it.

use std::sync::Arc;

use fanfold_gpu::{Gpu, Settings};
use fanfold_peer::Security;
use fanfold_protocol::{
    Code, Digest, Error,
    direct::{Calling, DirectLane, Failed, Running},
    function::{ComponentInfo, FunctionVersion},
    link::{Held, ShardTag},
    message::{FromExecutor, Offer},
};
use fanfold_store::Store;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::{
    Config,
    cache::Cache,
    direct::{self, Direct},
    engine::Engine,
    load::{self, Loader},
    sandbox::LogSink,
    task,
    worker::{Worker, session::Session},
};

/// Open files: as many components as are kept loaded, and as many connections and files again.
const FILES_WANTED: u64 = 2 * load::LOADED_MAX as u64;

/// What both lanes use. One per process.
pub struct Shared {
    /// As it was started.
    pub config: Config,
    /// The wasmtime engine.
    pub engine: Arc<Engine>,
    /// Components, compiled code, partitions and objects.
    pub store: Store,
    /// Components that are ready to be instantiated.
    pub loader: Loader,
    /// What the host calls of tasks share: the partition cache, among others.
    pub tasks: Arc<task::Environment>,
}

/// A running executor. Clones are handles to the same one.
#[derive(Clone)]
pub struct Executor {
    shared: Arc<Shared>,
    direct: Arc<Direct>,
    /// What the worker runs functions of other worlds in.
    scheduled: Arc<Direct>,
    worker: Worker,
    /// Attempts that want a gpu at once; none where there is nothing to compute on.
    gpus: u32,
    /// What its gpus compute on.
    adapter: Option<String>,
}

impl Executor {
    /// Makes the engine and starts the scheduled lane, which works for whoever is [attached](Executor::attach).
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Platform`] where this machine cannot run the engine, the store cannot be read, or there is
    /// no place for files.
    pub async fn start(mut config: Config, store: Store) -> Result<Self, Error> {
        raise_files();
        let engine = Arc::new(Engine::start(config.memory)?);
        let loader = Loader::new(&config, engine.clone(), store.clone()).await?;
        let cache = Cache::from_config(&config, &platform(&config, &store).await?, store.clone())?;
        config.executor = cache.peers().here();
        let tasks = Arc::new(task::Environment {
            executor: config.executor,
            cache,
            store: store.clone(),
            reads: TaskTracker::new(),
            fetched: task::Fetched::of_all(config.cache_memory),
            gpu: gpu(&config),
        });
        let (gpus, adapter) = adapter(tasks.gpu.as_ref(), config.gpus).await;
        let shared = Arc::new(Shared { config, engine, store, loader, tasks });
        let direct = Arc::new(Direct::new(shared.clone()));
        let scheduled = Arc::new(Direct::charged(shared.clone()));
        let worker = Worker::start(shared.clone(), scheduled.clone())?;
        Ok(Self { shared, direct, scheduled, worker, gpus, adapter })
    }

    /// What it offers to a scheduler.
    pub fn offer(&self) -> Offer {
        let config = &self.shared.config;
        Offer {
            executor: config.executor,
            cpu_millis: config.slots.saturating_mul(1000),
            memory: config.memory,
            gpu: self.gpus,
            adapter: self.adapter.clone(),
            custom: config.custom.clone(),
        }
    }

    /// Works for the owner of a shard from now on, until the session is dropped. What its attempts have to say goes to
    /// `events`; uploads of partitions of the shard's jobs are announced there, too.
    pub fn attach(&self, shard: ShardTag, events: mpsc::Sender<FromExecutor>) -> Session {
        self.worker.attach(shard, events)
    }

    /// Partitions of a shard's jobs, or of all, that were made here and are still here.
    pub fn held(&self, shard: Option<ShardTag>) -> Vec<Held> {
        self.worker.held(shard)
    }

    /// Starts no further attempts, waits until those that run have ended, and uploads what only this executor has.
    /// Attempts that are assigned meanwhile end with `draining`.
    ///
    /// # Errors
    /// Where a partition cannot be uploaded; it is made again elsewhere when somebody needs it.
    pub async fn drain(&self) -> Result<(), Error> {
        self.worker.drain().await
    }

    /// A function version out of the store.
    pub(crate) async fn version(&self, version: Digest) -> Result<Arc<FunctionVersion>, Error> {
        self.shared.store.version(version).await
    }

    /// How it talks to other processes.
    pub(crate) fn security(&self) -> &Security {
        &self.shared.config.security
    }

    /// The partition cache.
    pub(crate) fn cache(&self) -> &Cache {
        &self.shared.tasks.cache
    }

    /// Stops what still runs, in both lanes, waits until it is gone, and removes spilled partitions. The caller drains
    /// first.
    pub async fn stop(self) {
        self.worker.stop().await;
        self.scheduled.stop().await;
        self.direct.stop().await;
        if let Some(gpu) = &self.shared.tasks.gpu {
            gpu.stop().await;
        }
        self.cache().close().await;
    }
}

/// What tells this platform's executors from others that spill to the same directory.
async fn platform(config: &Config, store: &Store) -> Result<String, Error> {
    match &config.spill {
        Some(_) => store.agree("platform", &Uuid::now_v7().to_string()).await,
        None => Ok(String::new()),
    }
}

/// What computes for functions that want a gpu.
fn gpu(config: &Config) -> Option<Gpu> {
    let settings = || Settings {
        memory: config.gpu_memory,
        submission: config.gpu_submission,
        ..Settings::new(config.gpu_worker.clone(), config.gpus as usize)
    };
    (config.gpus > 0).then(|| Gpu::new(settings()))
}

/// How many of `gpus` can be offered, and the name of what they compute on. None where there is no adapter: being always free, this
/// executor would draw the tasks that want one, and each would fail here. Whatever else is wrong may pass.
async fn adapter(gpu: Option<&Gpu>, gpus: u32) -> (u32, Option<String>) {
    let Some(gpu) = gpu else { return (0, None) };
    match gpu.adapter().await {
        Ok(adapter) => {
            tracing::info!(
                name = adapter.name,
                driver = adapter.driver,
                software = adapter.software,
                "gpu adapter"
            );
            (gpus, Some(adapter.name))
        }
        Err(error) if error.code == Code::GpuAdapter => {
            tracing::error!(%error, "there is no adapter: no gpus are offered");
            (0, None)
        }
        Err(error) => {
            tracing::warn!(%error, "no gpu process started: functions that call a gpu will fail until one does");
            (gpus, None)
        }
    }
}

/// A loaded component keeps a file descriptor for its memory image, and many systems start a process with only 1024.
fn raise_files() {
    match rlimit::increase_nofile_limit(FILES_WANTED) {
        Ok(files) if files < FILES_WANTED => tracing::info!("at most {files} files can be open at once"),
        Ok(_) => {}
        Err(error) => tracing::warn!("the limit of open files stays as it is: {error}"),
    }
}

impl DirectLane for Executor {
    fn prepare(&self, component: Digest) -> Running<'_, ComponentInfo> {
        Box::pin(self.shared.loader.prepare(component))
    }

    fn http(
        &self,
        function: Arc<FunctionVersion>,
        request: http::Request<fanfold_protocol::direct::Body>,
    ) -> Calling<'_> {
        Box::pin(async move {
            let logs = LogSink::default();
            let called = direct::http::serve(&self.direct, function, request, logs.clone()).await;
            called.map_err(|error| Failed { error, logs: logs.logs() })
        })
    }

    fn call(
        &self,
        function: Arc<FunctionVersion>,
        request: http::Request<fanfold_protocol::direct::Body>,
    ) -> Calling<'_> {
        Box::pin(async move {
            let logs = LogSink::default();
            let called = direct::call(&self.direct, function, request, logs.clone()).await;
            called.map_err(|error| Failed { error, logs: logs.logs() })
        })
    }
}
