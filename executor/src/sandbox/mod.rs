//! One instance of a guest: what it may see and use, and how its end is understood.
//!
//! [`open`] makes a wasmtime store for a fresh instance with a whole-instance memory cap, captured logs, real or
//! virtual clocks and randomness, and nothing else: no files, no sockets. The caller instantiates and calls, bounded
//! by [`within`], and asks [`classify()`] what a failure means. Dropping the store ends the guest.

mod classify;
mod limits;
mod logs;
mod time;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fanfold_protocol::{Code, Error, Kind, function::FunctionVersion};
use wasmtime::{
    Store, UpdateDeadline,
    component::{HasData, Linker, ResourceTable},
};
use wasmtime_wasi::{
    WasiCtx, WasiCtxView, WasiView,
    cli::{StdinStream, StdoutStream},
    clocks::WasiClocksCtxView,
    p2::bindings::clocks::monotonic_clock,
};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

pub use classify::{classify, last_words};
pub use limits::Limits;
pub use logs::{Level, LogOverflow, LogSink, Source, Status};
use time::Sleeping;
pub use time::{Time, fresh_job};

use crate::{
    egress,
    engine::{Engine, Running},
    task::TaskHost,
};

/// Resources (streams, requests, futures, …) that one instance may hold at once.
const RESOURCES_MAX: usize = 65_536;
/// Random bytes of one call: what a key needs many times over, and no way to make the host allocate.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// Bytes of all fields of one HTTP head, in memory.
const HTTP_FIELDS_BYTES_MAX: usize = 128 << 10;
/// Bytes that one host call may make the host allocate for its arguments: a large write to a stream.
const HOST_CALL_FUEL: usize = 4 << 20;
/// The same for tasks, whose largest are an object that is written and an output that is returned whole.
const TASK_CALL_FUEL: usize = 128 << 20;
/// Epoch ticks between two yields of a computing guest.
const YIELD_TICKS: u64 = 1;

/// What a wasmtime store knows of its guest.
pub struct Guest {
    /// WASI: environment, arguments, standard streams, clocks, randomness.
    pub wasi: WasiCtx,
    /// WASI HTTP: the cap on header fields.
    pub http: WasiHttpCtx,
    /// Host side of the guest's handles.
    pub table: ResourceTable,
    /// Its clock, if that is virtual.
    clock: Option<time::Clock>,
    /// Its memory, so far and at most.
    pub limits: Limits,
    /// Where its log lines go.
    pub logs: LogSink,
    /// Where its outgoing requests may go.
    pub egress: egress::Hooks,
    /// Host calls of the task world; `None` for HTTP functions and programs.
    pub task: Option<TaskHost>,
    /// See [`SandboxSpec::turns`].
    turns: Option<Turns>,
    _running: Running,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Guest {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.egress, table: &mut self.table, ctx: &mut self.http }
    }
}

/// How often a guest that computes was interrupted so that others have their turn.
pub type Turns = Arc<AtomicU32>;

/// How to open a sandbox.
pub struct SandboxSpec<'a> {
    /// Whose manifest gives the environment and the allowed origins.
    pub function: &'a Arc<FunctionVersion>,
    /// Cap over all memories and tables together, in bytes.
    pub memory: u64,
    /// Real or virtual clocks and randomness.
    pub time: Time,
    /// Arguments of a program, its name first.
    pub args: &'a [String],
    /// `None`: empty.
    pub stdin: Option<Box<dyn StdinStream + Sync>>,
    /// `None`: captured as log lines.
    pub stdout: Option<Box<dyn StdoutStream + Sync>>,
    /// Where log lines go.
    pub logs: LogSink,
    /// Whether private addresses may be reached.
    pub allow_private_egress: bool,
    /// Host calls of the task world.
    pub task: Option<TaskHost>,
    /// Counts the guest's turns, for whoever must tell a guest that computes from one that waits.
    pub turns: Option<Turns>,
}

/// Everything that guests of any kind can call, besides the task world: WASI 0.2 and its HTTP.
///
/// # Errors
/// Where the linker has one of them already.
pub fn add_to_linker(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    monotonic_clock::add_to_linker::<_, Clocks>(linker, |guest: &mut Guest| {
        let Guest { wasi, table, clock, .. } = guest;
        Sleeping { clocks: WasiClocksCtxView { ctx: wasi.clocks(), table }, clock: clock.as_ref() }
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Names [`Sleeping`] to the linker.
struct Clocks;

impl HasData for Clocks {
    type Data<'a> = Sleeping<'a>;
}

/// A store for one fresh instance. Costs about a microsecond; memory is charged when the instance is made.
pub fn open(engine: &Engine, spec: SandboxSpec<'_>) -> Store<Guest> {
    let SandboxSpec { function, memory, time, args, stdin, stdout, logs, allow_private_egress, task, turns } =
        spec;
    let mut wasi = WasiCtx::builder();
    for (name, value) in &function.manifest.env {
        wasi.env(name, value);
    }
    wasi.args(args).max_random_size(RANDOM_BYTES_MAX).allow_tcp(false).allow_udp(false);
    let clock = time.apply(&mut wasi);
    wasi.stderr(logs.stream(Source::Stderr));
    match stdout {
        Some(stdout) => wasi.stdout(stdout),
        None => wasi.stdout(logs.stream(Source::Stdout)),
    };
    if let Some(stdin) = stdin {
        wasi.stdin(stdin);
    }
    let mut table = ResourceTable::new();
    table.set_max_capacity(RESOURCES_MAX);
    let mut http = WasiHttpCtx::new();
    http.set_field_size_limit(HTTP_FIELDS_BYTES_MAX);
    let egress = egress::Hooks::new(function.clone(), allow_private_egress);
    let fuel = if task.is_some() { TASK_CALL_FUEL } else { HOST_CALL_FUEL };
    let guest = Guest {
        wasi: wasi.build(),
        http,
        table,
        clock,
        limits: Limits::new(memory),
        logs,
        egress,
        task,
        turns,
        _running: engine.running(),
    };
    let mut store = Store::new(engine.wasm(), guest);
    store.limiter(|guest| &mut guest.limits);
    store.set_epoch_deadline(YIELD_TICKS);
    // Tokio's own yield, because it lets the thread look at its sockets before a guest that computes goes on.
    store.epoch_deadline_callback(|store| {
        if let Some(turns) = &store.data().turns {
            turns.fetch_add(1, Ordering::Relaxed);
        }
        Ok(UpdateDeadline::YieldCustom(YIELD_TICKS, Box::pin(tokio::task::yield_now())))
    });
    store.set_hostcall_fuel(fuel);
    store.set_max_component_handles(RESOURCES_MAX);
    store
}

/// Bounds a guest's wall time. The timer costs nothing where the guest is done before it first waits.
///
/// # Errors
/// [`Code::Timeout`] after `timeout_ms`; else what `run` says.
pub async fn within<T>(timeout_ms: u64, run: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(Duration::from_millis(timeout_ms), run).await {
        Ok(result) => result,
        Err(_) => Err(timed_out(timeout_ms)),
    }
}

/// The error of a guest that ran for `timeout_ms`.
pub fn timed_out(timeout_ms: u64) -> Error {
    let message =
        format!("the function was stopped after {timeout_ms} ms; raise `timeout` if it needs longer");
    Error::new(Kind::Limit, Code::Timeout, message)
}
