//! Limits that a worker sets for itself, so that a shader compiler or driver gone astray costs this process only.

use std::io;

use fanfold_protocol::limit;
use rlimit::Resource;

/// Open files: drivers open device nodes, libraries and pipes.
const FILES_MAX: u64 = 256;

/// Before a driver is loaded. `memory` is what buffers may have: a software adapter's are memory of this process.
///
/// Not the address space is limited but private memory that can be written: drivers of hardware reserve hundreds of gigabytes of
/// addresses without using them.
pub(super) fn before_drivers(memory: u64) -> io::Result<()> {
    set(Resource::CORE, 0)?;
    set(Resource::NOFILE, FILES_MAX)?;
    // Buffers are counted once more for their staging copies.
    set(Resource::DATA, memory.saturating_mul(2).saturating_add(limit::GPU_PROCESS_MEMORY_BYTES))
}

/// Once a software adapter is open: nothing writes files any more. Hardware's drivers may map files at any time.
pub(super) fn after_drivers() -> io::Result<()> {
    set(Resource::FSIZE, 0)
}

/// A soft limit equal to the hard one cannot be raised again.
fn set(resource: Resource, max: u64) -> io::Result<()> {
    let hard = resource.get_hard().unwrap_or(max);
    resource.set(max.min(hard), max.min(hard))
}
