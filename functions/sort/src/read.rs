//! Reading a split: records, chunk by chunk.

use fanfold::{Error, ErrorKind, Result};
use fanfold_shuffle::{Blocks, kernel::record::CHUNK_BYTES, split::Split};

/// Calls `take` with the split's bytes, whole records at a time, and counts them.
///
/// # Errors
/// `conflict` if an object has changed since it was listed; those of reading and of `take`.
pub fn chunks(split: Split, out: &mut Blocks, mut take: impl FnMut(Vec<u8>)) -> Result<()> {
    for range in split {
        let reader = range.open()?;
        let wanted = range.length.unwrap_or(0);
        if reader.size() != wanted {
            let (key, size) = (&range.key, reader.size());
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("object `{key}` has changed: {size} bytes where there were {wanted}"),
            ));
        }
        out.read(wanted);
        let mut at = 0;
        while at < wanted {
            let chunk = reader.range(at..(at + CHUNK_BYTES as u64).min(wanted))?;
            at += chunk.len() as u64;
            take(chunk);
        }
    }
    Ok(())
}
