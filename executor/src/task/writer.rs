//! A partition while its task writes it: in memory, charged against the cache's budget, checksummed as it comes.

use fanfold_protocol::{Error, PartitionId, limit};
use fanfold_store::{Index, partitions::Builder};

use crate::cache::{Cache, Charge, Growing, Segments};

/// Makes room for a write of `bytes` to `growing`, which `charge` pays for; waits while the executor is short of memory.
///
/// # Errors
/// [`fanfold_protocol::Kind::Invalid`] for more than one call may write; those of [`Cache::charge`].
pub(super) async fn reserve(
    growing: &Growing,
    charge: &mut Charge,
    cache: &Cache,
    bytes: usize,
) -> Result<(), Error> {
    if bytes > limit::HOST_CALL_BYTES_MAX {
        let message =
            format!("a write of {bytes} bytes: write at most {} at a time", limit::HOST_CALL_BYTES_MAX);
        return Err(Error::invalid(message));
    }
    let growth = growing.growth(bytes);
    if growth > 0 {
        charge.absorb(cache.charge(growth as u64).await?);
    }
    Ok(())
}

/// See the module.
#[derive(Debug)]
pub struct Writer {
    /// Which output of its task.
    pub(super) output: u32,
    growing: Growing,
    index: Builder,
    refs: usize,
    charge: Charge,
}

impl Writer {
    /// Of output number `output`.
    pub fn new(output: u32) -> Self {
        Self {
            output,
            growing: Growing::default(),
            index: Index::builder(),
            refs: 0,
            charge: Charge::default(),
        }
    }

    /// Makes room for `bytes` more; waits while the executor is short of memory.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Invalid`] for more than one call may write; those of [`Cache::charge`].
    pub async fn reserve(&mut self, cache: &Cache, bytes: usize) -> Result<(), Error> {
        reserve(&self.growing, &mut self.charge, cache, bytes).await
    }

    /// Appends bytes for which there is room.
    pub fn append(&mut self, bytes: &[u8]) {
        self.growing.append(bytes);
        self.index.write(bytes);
    }

    /// Ends the current block; its number.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Invalid`] for more than [`limit::BLOCKS_MAX`].
    pub fn end_block(&mut self) -> Result<u32, Error> {
        if self.index.blocks() >= limit::BLOCKS_MAX {
            return Err(Error::invalid(format!("a partition has at most {} blocks", limit::BLOCKS_MAX)));
        }
        Ok(self.index.end_block())
    }

    /// Names a partition in the bytes.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Invalid`] for more than [`limit::PAYLOAD_REFS_MAX`].
    pub fn add_ref(&mut self, id: PartitionId) -> Result<(), Error> {
        if self.refs >= limit::PAYLOAD_REFS_MAX {
            return Err(Error::invalid(format!(
                "a partition names at most {} others",
                limit::PAYLOAD_REFS_MAX
            )));
        }
        self.refs += 1;
        self.index.add_ref(id);
        Ok(())
    }

    /// The partition, and the charge that covers it.
    pub fn finish(self) -> (Segments, Index, Charge) {
        let segments = self.growing.finish();
        let mut charge = self.charge;
        charge.shrink_to(segments.bytes());
        (segments, self.index.finish(), charge)
    }
}
