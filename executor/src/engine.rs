//! The one wasmtime engine of a process: which WebAssembly it accepts, how instances are pooled, and the epoch clock.
//!
//! One per process, because each reserves terabytes of address space. It does not compile (see [`crate::compile`]).

mod ticker;

use std::hash::{Hash, Hasher};

use fanfold_protocol::{Digest, Error};
use sha2::{Digest as _, Sha256};
use wasmtime::{
    Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails,
    WasmFeatures,
};

pub(crate) use ticker::Running;
use ticker::Ticker;

/// Raised whenever the stored form of compiled code changes; part of the engine key.
const FORMAT: &str = "fanfold-compiled-1";
/// Instances at once in the pool. Each reserves 4 GiB of address space per memory, none of it resident.
const INSTANCES_MAX: u32 = 1100;
/// Memories and tables: most components have one memory and two or three tables.
const MEMORIES_MAX: u32 = 2200;
/// Core instances: a component made from a core module has four (module, adapter, and two shims between them).
const CORE_INSTANCES_MAX: u32 = 8 * INSTANCES_MAX;
/// Bytes of a memory that stay resident in a pool slot after its instance is gone, at most. A function that uses tens of
/// mebibytes would otherwise fault them in at every call, which costs as much as a batch task's own work. Kept within one
/// tenant: all functions of a process belong to the same one, and slots are zeroed or mapped anew in any case.
const MEMORY_RESIDENT_MAX: usize = 64 << 20;
const MEMORY_RESIDENT_MIN: usize = 1 << 20;
const TABLE_RESIDENT: usize = 64 << 10;
/// Pool slots kept warm for components that are not running, at most and at least.
const WARM_SLOTS_MAX: usize = 256;
const WARM_SLOTS_MIN: usize = 8;
/// Elements of one table: interpreters compiled to WebAssembly have tens of thousands of functions in theirs.
const TABLE_ELEMENTS_MAX: usize = 1 << 16;
/// Host memory of one instance's bookkeeping: about 32 bytes per function that can be referred to.
const INSTANCE_BYTES_MAX: usize = 4 << 20;
/// Stack of wasm frames, and of the fiber it runs on together with host calls.
const WASM_STACK: usize = 1 << 20;
const FIBER_STACK: usize = 2 << 20;

/// Proposals that shared pools do not offer. Each is asserted to be refused.
pub(crate) const REFUSED: WasmFeatures = WasmFeatures::GC
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::LEGACY_EXCEPTIONS)
    .union(WasmFeatures::FUNCTION_REFERENCES)
    .union(WasmFeatures::THREADS)
    .union(WasmFeatures::SHARED_EVERYTHING_THREADS)
    .union(WasmFeatures::MEMORY64)
    .union(WasmFeatures::STACK_SWITCHING)
    .union(WasmFeatures::CUSTOM_PAGE_SIZES)
    .union(WasmFeatures::CM_ASYNC)
    .union(WasmFeatures::CM_ASYNC_STACKFUL)
    .union(WasmFeatures::CM_MORE_ASYNC_BUILTINS)
    .union(WasmFeatures::CM_THREADING)
    .union(WasmFeatures::CM_ERROR_CONTEXT)
    .union(WasmFeatures::CM_GC);

/// The engine and its clock. Dropping it stops the clock.
pub struct Engine {
    wasm: wasmtime::Engine,
    key: String,
    ticker: Ticker,
}

impl Engine {
    /// Makes the engine with its pool and starts the clock. Where the address space is limited, the pool is smaller. `memory`
    /// is what instances may have, in bytes: idle slots keep about as much again, at most.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Platform`] where the machine cannot run it at all.
    pub fn start(memory: u64) -> Result<Self, Error> {
        let idle = Idle::within(usize::try_from(memory).unwrap_or(usize::MAX));
        let wasm = pooled(1, idle).or_else(|error| {
            tracing::warn!(
                "a pool of {INSTANCES_MAX} instances does not fit here ({error:#}): using an eighth"
            );
            pooled(8, idle)
        });
        let wasm =
            wasm.map_err(|e| Error::internal(format!("the WebAssembly engine does not start: {e:#}")))?;
        let key = key(&wasm);
        let ticker = Ticker::start(wasm.clone())?;
        Ok(Self { wasm, key, ticker })
    }

    /// The engine.
    pub fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// Epoch ticks since the start, each about a millisecond in which a guest ran: a clock that costs one load.
    pub fn tick(&self) -> u64 {
        self.ticker.ticks()
    }

    /// Keeps the epoch clock going while it is held.
    pub(crate) fn running(&self) -> Running {
        self.ticker.running()
    }

    /// Names everything that compiled code depends on besides its component: engine version, settings, processor
    /// features and our stored form. Hexadecimal.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// What pool slots keep while nothing runs in them.
#[derive(Clone, Copy, Debug)]
struct Idle {
    slots: u32,
    /// Bytes of each slot.
    memory: usize,
}

impl Idle {
    /// No more than `memory` bytes together, where that is enough for a few slots.
    fn within(memory: usize) -> Self {
        let each = (memory / WARM_SLOTS_MIN).clamp(MEMORY_RESIDENT_MIN, MEMORY_RESIDENT_MAX);
        let slots = (memory / each).clamp(WARM_SLOTS_MIN, WARM_SLOTS_MAX);
        Self { slots: slots as u32, memory: each }
    }
}

fn pooled(fraction: u32, idle: Idle) -> wasmtime::Result<wasmtime::Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(INSTANCES_MAX / fraction)
        .total_stacks(INSTANCES_MAX / fraction)
        .total_core_instances(CORE_INSTANCES_MAX / fraction)
        .total_memories(MEMORIES_MAX / fraction)
        .total_tables(2 * MEMORIES_MAX / fraction)
        .max_memories_per_component(16)
        .max_tables_per_component(64)
        .max_tables_per_module(8)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_memories_per_module(4)
        .max_memory_size(1 << 32)
        .max_unused_warm_slots(idle.slots)
        .linear_memory_keep_resident(idle.memory)
        .table_keep_resident(TABLE_RESIDENT)
        .pagemap_scan(Enabled::Auto);
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    wasmtime::Engine::new(&config)
}

/// An engine with the same code settings and no pool: for compiling, in a process with little address space.
pub(crate) fn compiling() -> wasmtime::Result<wasmtime::Engine> {
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    wasmtime::Engine::new(&config)
}

/// Everything that compiled code depends on.
fn config() -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .wasm_component_model(true)
        .wasm_features(REFUSED, false)
        .epoch_interruption(true)
        .signals_based_traps(true)
        .cranelift_opt_level(OptLevel::Speed)
        .memory_reservation(1 << 32)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(FIBER_STACK)
        // Neither is needed to run; both make compiled code larger and slower to load.
        .generate_address_map(false)
        .native_unwind_info(false)
        // Never parse a guest's debug information in this process, whatever the environment says.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}

/// The proposals that an engine of these settings accepts; admission validates with the same set.
pub(crate) fn features() -> WasmFeatures {
    // Wasmtime's defaults: the third edition of WebAssembly, and components.
    WasmFeatures::WASM3.union(WasmFeatures::COMPONENT_MODEL).difference(REFUSED)
}

/// See [`Engine::key`].
pub(crate) fn key(engine: &wasmtime::Engine) -> String {
    let mut hash = Fingerprint(Sha256::new_with_prefix(FORMAT));
    engine.precompile_compatibility_hash().hash(&mut hash);
    let digest = Digest(hash.0.finalize().into());
    digest.to_string()[..32].to_owned()
}

/// SHA-256 as a [`Hasher`]: unlike the standard one, stable from one Rust release to the next.
struct Fingerprint(Sha256);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Only the full digest is used.
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_slots_keep_no_more_than_functions_may_have() {
        for memory in [0, 8 << 20, 100 << 20, 1 << 30, 64 << 30] {
            let idle = Idle::within(memory);
            let kept = idle.slots as usize * idle.memory;
            assert!(kept <= memory.max(WARM_SLOTS_MIN * MEMORY_RESIDENT_MIN), "{memory}: {idle:?}");
            assert!(idle.slots as usize >= WARM_SLOTS_MIN, "{memory}: {idle:?}");
        }
    }
}
