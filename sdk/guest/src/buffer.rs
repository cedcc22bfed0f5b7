//! Bytes on their way to the host: small writes are collected, large ones go as they are.

use crate::raw;

/// Bytes collected before a host call: large enough to make calls rare, small enough to stay in the cache.
const BUFFER_BYTES: usize = 128 << 10;
/// With nothing collected, a write of so many bytes is a host call: it takes no longer than to copy them.
const CALL_BYTES_MIN: usize = 8 << 10;
/// Bytes of one host call: its limit.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// See the module. `write` is always the same host call, which takes at most [`WRITE_BYTES_MAX`].
#[derive(Default, Debug)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Takes bytes, and passes on what is too much to collect.
    pub(crate) fn append(
        &mut self,
        bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> Result<(), raw::Error>,
    ) -> Result<(), raw::Error> {
        if self.0.len() + bytes.len() > BUFFER_BYTES {
            self.send(&mut write)?;
        }
        if bytes.len() <= BUFFER_BYTES && !(self.0.is_empty() && bytes.len() >= CALL_BYTES_MIN) {
            self.0.extend_from_slice(bytes);
            return Ok(());
        }
        bytes.chunks(WRITE_BYTES_MAX).try_for_each(write)
    }

    /// Passes on what was collected.
    pub(crate) fn send(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<(), raw::Error>,
    ) -> Result<(), raw::Error> {
        if !self.0.is_empty() {
            write(&self.0)?;
            self.0.clear();
        }
        Ok(())
    }
}
