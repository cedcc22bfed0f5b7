//! What an executor is told at its start. Sizes are bytes.

use std::{ffi::OsString, path::PathBuf, thread, time::Duration};

use fanfold_peer::Security;
use fanfold_protocol::{ExecutorId, custom::Custom, limit};

/// How much an executor may use and how it compiles.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its id, unless it takes over what one that was killed had spilled, and with that its id.
    pub executor: ExecutorId,
    /// Attempts of the scheduled lane that compute at once.
    pub slots: u32,
    /// Memory of instances: what the scheduled lane may be assigned, and, counted apart, what direct calls may use.
    pub memory: u64,
    /// Attempts that want a gpu at once. All share one adapter; where there is none, none are offered.
    pub gpus: u32,
    /// Bytes of all gpu buffers of one job at a time.
    pub gpu_memory: u64,
    /// How long one submission to a gpu may take.
    pub gpu_submission: Duration,
    /// Program and arguments that run [`fanfold_gpu::gpu_worker`], for example `/proc/self/exe gpu-worker`.
    pub gpu_worker: Vec<OsString>,
    /// Custom resources it has.
    pub custom: Custom,
    /// Memory of the partition cache.
    pub cache_memory: u64,
    /// Where partitions go that do not fit into that memory; `None`: to the object store.
    pub spill: Option<Spill>,
    /// How it talks to other processes of a cluster.
    pub security: Security,
    /// Program and arguments that run [`crate::compile_child`], for example `/proc/self/exe compile-component`.
    /// Empty: compile in this process, without limits; only for tests and tools that compile what they wrote.
    pub compiler: Vec<OsString>,
    /// Whether guests may reach private, loopback and link-local addresses that their manifest allows. For
    /// development and tests: in production it would open the platform's own network to functions.
    pub allow_private_egress: bool,
}

/// Disk space for partitions.
#[derive(Clone, Debug)]
pub struct Spill {
    /// In which directory; each executor makes a folder of its own there, and removes it at the end. One that was killed
    /// leaves it to its next process.
    pub dir: PathBuf,
    /// How many bytes.
    pub bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            executor: ExecutorId(1),
            slots: thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory: 4 << 30,
            gpus: 0,
            gpu_memory: limit::GPU_MEMORY_BYTES_DEFAULT,
            gpu_submission: Duration::from_millis(limit::GPU_SUBMISSION_MS),
            gpu_worker: Vec::new(),
            custom: Custom::new(),
            cache_memory: 512 << 20,
            spill: None,
            security: Security::default(),
            compiler: Vec::new(),
            allow_private_egress: false,
        }
    }
}
