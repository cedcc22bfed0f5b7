//! The memory cap of one instance, over all its memories and tables together.

use wasmtime::ResourceLimiter;

/// Bytes of a table element on the host.
const TABLE_ELEMENT_BYTES: u64 = 8;

/// What an instance has of memory. A denied growth is remembered: a guest that then traps ran out of memory.
#[derive(Debug)]
pub struct Limits {
    max: u64,
    used: u64,
    peak: u64,
    last: u64,
    denied: Option<u64>,
}

impl Limits {
    /// Nothing used of `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { max, used: 0, peak: 0, last: 0, denied: None }
    }

    /// The cap, in bytes.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Most bytes held at once so far.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The bytes it would have had after the first growth that was denied.
    pub fn denied(&self) -> Option<u64> {
        self.denied
    }

    fn grow(&mut self, bytes: u64) -> bool {
        let wanted = self.used.saturating_add(bytes);
        if wanted > self.max {
            self.denied.get_or_insert(wanted);
            return false;
        }
        self.last = bytes;
        self.used = wanted;
        self.peak = self.peak.max(wanted);
        true
    }

    /// The engine could not do what was allowed last.
    fn undo(&mut self) {
        self.denied.get_or_insert(self.used);
        self.used -= std::mem::take(&mut self.last);
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current) as u64))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let elements = desired.saturating_sub(current) as u64;
        Ok(self.grow(elements.saturating_mul(TABLE_ELEMENT_BYTES)))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.undo();
        Ok(())
    }
}
