//! Components that are ready to be instantiated, by digest.
//!
//! Promises: concurrent first users of a component share one load; compiled code that is damaged is named in the log,
//! removed and made again from the component; what is loaded stays until memory for code is short.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use fanfold_protocol::{
    Digest, Error,
    function::{ComponentInfo, ComponentKind},
};
use fanfold_store::Store;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use wasmtime::component::Linker;
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::{
    Config,
    admit::missing_imports,
    compile::{
        Compiler, code,
        seal::{Head, Sealer, Verified},
    },
    engine::Engine,
    sandbox::Guest,
    task::TaskPre,
};

/// Bytes of compiled code kept loaded: thousands of ordinary functions, or thirty interpreters.
const CODE_BYTES_MAX: u64 = 1 << 30;
/// Components kept loaded: each also holds a file descriptor for its memory image.
pub(crate) const LOADED_MAX: usize = 8192;
/// From this size on, code is verified and mapped off the async threads; below, the detour would cost more.
const OFFLOAD_BYTES: usize = 1 << 20;

/// A component that can be instantiated.
pub struct Loaded {
    /// Its typed entry.
    pub program: Program,
    /// What admission found, and sizes.
    pub info: ComponentInfo,
    /// How long the steps of loading it took.
    pub steps: Steps,
    used_tick: AtomicU64,
}

/// A component by kind, its imports linked.
#[allow(missing_docs, reason = "the kinds of `ComponentKind`")]
pub enum Program {
    Http(ProxyPre<Guest>),
    Cli(CommandPre<Guest>),
    Task(TaskPre<Guest>),
}

/// Microseconds of each step of a load; `compile` is 0 where a compiled copy was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "named after the steps")]
pub struct Steps {
    pub read_us: u64,
    pub compile_us: u64,
    pub verify_us: u64,
    pub map_us: u64,
    pub link_us: u64,
}

type Running = BoxFuture<'static, Result<Arc<Loaded>, Error>>;

/// The components that are loaded. A handle: clones share them.
#[derive(Clone)]
pub struct Loader(Arc<Inner>);

struct Inner {
    engine: Arc<Engine>,
    store: Store,
    compiler: Compiler,
    sealer: Sealer,
    linker: Linker<Guest>,
    /// Copied on every change: changes are deploys and first calls, reads are all the others.
    ready: ArcSwap<HashMap<Digest, Arc<Loaded>>>,
    /// Weak, so that a load whose last waiter goes away stops, and its compile child with it.
    loading: Mutex<HashMap<Digest, WeakShared<Running>>>,
}

impl Loader {
    /// A loader with nothing loaded.
    ///
    /// # Errors
    /// Where the store has no signing key and cannot keep one.
    pub async fn new(config: &Config, engine: Arc<Engine>, store: Store) -> Result<Self, Error> {
        let sealer = Sealer::new(&store.signing_key().await?);
        let linker =
            linker(&engine).map_err(|e| Error::internal(format!("host calls do not link: {e:#}")))?;
        let compiler = Compiler::new(config.compiler.clone());
        let inner = Inner {
            engine,
            store,
            compiler,
            sealer,
            linker,
            ready: ArcSwap::default(),
            loading: Mutex::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The component, if it is loaded. Takes no lock.
    pub fn ready(&self, component: Digest) -> Option<Arc<Loaded>> {
        let loaded = self.0.ready.load().get(&component).cloned()?;
        let tick = self.0.engine.tick();
        // Written once a tick at most: a shared cache line on every call would cost more than the call of it.
        if loaded.used_tick.load(Ordering::Relaxed) != tick {
            loaded.used_tick.store(tick, Ordering::Relaxed);
        }
        Some(loaded)
    }

    /// The component, loaded (and compiled, where no sound compiled copy is stored) if it is not yet.
    ///
    /// # Errors
    /// Those of reading, admission and compilation.
    pub async fn get(&self, component: Digest) -> Result<Arc<Loaded>, Error> {
        match self.ready(component) {
            Some(loaded) => Ok(loaded),
            None => self.load(component).await,
        }
    }

    /// Loads the component and says what is known of it. See [`fanfold_protocol::direct::DirectLane::prepare`].
    ///
    /// # Errors
    /// As [`Loader::get`].
    pub async fn prepare(&self, component: Digest) -> Result<ComponentInfo, Error> {
        Ok(self.get(component).await?.info.clone())
    }

    fn load(&self, component: Digest) -> Shared<Running> {
        let mut loading = lock(&self.0.loading);
        // It may have become ready since the caller looked, and nobody is loading it any more.
        if let Some(loaded) = self.ready(component) {
            return futures::future::ready(Ok(loaded)).boxed().shared();
        }
        if let Some(under_way) = loading.get(&component).and_then(WeakShared::upgrade) {
            return under_way;
        }
        let started = self.clone().run(component).boxed().shared();
        loading.extend(started.downgrade().map(|weak| (component, weak)));
        started
    }

    /// Loads one component; whoever waits for it drives it.
    async fn run(self, component: Digest) -> Result<Arc<Loaded>, Error> {
        let inner = &self.0;
        let loaded = inner.load(component).await.map(Arc::new);
        let mut loading = lock(&inner.loading);
        if let Ok(loaded) = &loaded {
            inner.insert(component, loaded.clone());
        }
        loading.remove(&component);
        loaded
    }
}

impl Inner {
    async fn load(self: &Arc<Self>, component: Digest) -> Result<Loaded, Error> {
        let mut steps = Steps::default();
        let begun = Instant::now();
        let stored = self.store.compiled(component, self.engine.key()).await?;
        steps.read_us = lap(begun);
        if let Some(sealed) = stored {
            match self.open(component, sealed, &mut steps).await {
                Ok(loaded) => return Ok(loaded),
                Err(Unusable::Error(error)) => return Err(error),
                Err(Unusable::Damaged(why)) => {
                    tracing::warn!(%component, "compiled code cannot be used ({why}): compiling it anew");
                    self.store.remove_compiled(component, self.engine.key()).await?;
                }
            }
        }
        self.compile(component, &mut steps).await
    }

    /// Compiles the component, and stores its code once it has proved to link.
    async fn compile(self: &Arc<Self>, component: Digest, steps: &mut Steps) -> Result<Loaded, Error> {
        let bytes = self.store.component(component).await?;
        let begun = Instant::now();
        let component_bytes = bytes.len() as u64;
        let compiled = self.compiler.compile(bytes).await?;
        steps.compile_us = lap(begun);
        let key = self.engine.key();
        if compiled.engine != key {
            return Err(Error::internal("the compile child is of another build than this process"));
        }
        let head = Head { admitted: compiled.admitted, component_bytes };
        let sealed = self.sealer.seal(component, key, &head, &compiled.code);
        let loaded =
            self.open(component, sealed.clone(), steps).await.map_err(|unusable| match unusable {
                Unusable::Error(error) => error,
                Unusable::Damaged(why) => {
                    Error::internal(format!("code that was just compiled is unusable: {why}"))
                }
            })?;
        self.store.put_compiled(component, key, sealed).await?;
        Ok(loaded)
    }

    /// Verifies, maps and links compiled code.
    async fn open(
        self: &Arc<Self>,
        component: Digest,
        sealed: Bytes,
        steps: &mut Steps,
    ) -> Result<Loaded, Unusable> {
        if sealed.len() < OFFLOAD_BYTES {
            return self.open_here(component, sealed, steps);
        }
        let (inner, mut taken) = (self.clone(), *steps);
        let run = move || (inner.open_here(component, sealed, &mut taken), taken);
        let (loaded, taken) = tokio::task::spawn_blocking(run)
            .await
            .map_err(|e| Unusable::Error(Error::internal(format!("loading a component failed: {e}"))))?;
        *steps = taken;
        loaded
    }

    fn open_here(&self, component: Digest, sealed: Bytes, steps: &mut Steps) -> Result<Loaded, Unusable> {
        let begun = Instant::now();
        let verified = self.sealer.verify(component, self.engine.key(), sealed);
        let verified = verified.map_err(|damage| Unusable::Damaged(damage.to_string()))?;
        steps.verify_us = lap(begun);
        let begun = Instant::now();
        let mapped = code::load(self.engine.wasm(), &verified);
        let mapped = mapped.map_err(|e| Unusable::Damaged(format!("{e:#}")))?;
        steps.map_us = lap(begun);
        let begun = Instant::now();
        let program = self.link(&mapped, &verified).map_err(Unusable::Error)?;
        steps.link_us = lap(begun);
        Ok(Loaded {
            program,
            info: info(&verified, steps),
            steps: *steps,
            used_tick: AtomicU64::new(u64::MAX),
        })
    }

    fn link(
        &self,
        component: &wasmtime::component::Component,
        verified: &Verified,
    ) -> Result<Program, Error> {
        // Admission knows the interfaces; a function that an interface lacks, or has with another type, shows here.
        let linked =
            self.linker.instantiate_pre(component).map_err(|e| missing_imports(&format!("{e:#}")))?;
        let program = match verified.head.admitted.kind {
            ComponentKind::Http => ProxyPre::new(linked).map(Program::Http),
            ComponentKind::Cli => CommandPre::new(linked).map(Program::Cli),
            ComponentKind::Task => TaskPre::new(linked).map(Program::Task),
        };
        program.map_err(|error| {
            let message = format!("the component's export does not have the type it should have: {error:#}");
            Error::new(fanfold_protocol::Kind::Invalid, fanfold_protocol::Code::NoExport, message)
        })
    }

    /// Called with `loading` locked, so that changes do not race.
    fn insert(&self, component: Digest, loaded: Arc<Loaded>) {
        loaded.used_tick.store(self.engine.tick(), Ordering::Relaxed);
        let mut ready = HashMap::clone(&self.ready.load());
        ready.insert(component, loaded);
        evict(&mut ready);
        self.ready.store(Arc::new(ready));
    }
}

/// Why stored code did not become a loaded component.
enum Unusable {
    /// Make it again.
    Damaged(String),
    /// Making it again would not help.
    Error(Error),
}

/// Drops what was used longest ago until the rest fits. Instances that run keep theirs.
fn evict(ready: &mut HashMap<Digest, Arc<Loaded>>) {
    let mut bytes: u64 = ready.values().map(|loaded| loaded.info.compiled_bytes).sum();
    while ready.len() > 1 && (bytes > CODE_BYTES_MAX || ready.len() > LOADED_MAX) {
        let oldest = ready.iter().min_by_key(|(_, loaded)| loaded.used_tick.load(Ordering::Relaxed));
        let Some((component, _)) = oldest.map(|(component, loaded)| (*component, loaded)) else { return };
        if let Some(gone) = ready.remove(&component) {
            bytes -= gone.info.compiled_bytes;
        }
    }
}

fn info(verified: &Verified, steps: &Steps) -> ComponentInfo {
    let Head { admitted, component_bytes } = &verified.head;
    ComponentInfo {
        kind: admitted.kind,
        submits: admitted.submits,
        imports: admitted.imports.clone(),
        component_bytes: *component_bytes,
        compiled_bytes: verified.code.len() as u64,
        compile_us: steps.compile_us,
    }
}

/// Everything a guest can call, whatever its kind.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine.wasm());
    crate::sandbox::add_to_linker(&mut linker)?;
    crate::task::add_to_linker(&mut linker)?;
    Ok(linker)
}

fn lap(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A panic while the lock was held leaves a whole map behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
