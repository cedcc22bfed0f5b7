//! Which splits are done, kept in objects, so that a pipeline that is submitted again goes on where the last one ended.
//!
//! An object for each split, written once all of its rows were: `<prefix><identity>/<split>`. The identity is a hash of all
//! that decides which object has which rows: splits, steps, sizes. A pipeline that differs finds nothing. Rows of a
//! split that was not done are written again, under the same names, with the same bytes. Objects are written whole and at
//! once, and say the same whoever writes them, so it does not matter how often that happens.

use fanfold::{Error, Result, objects};
use serde::Serialize;

use crate::stage::Pipeline;

/// The prefix of a pipeline's objects: `prefix`, and what identifies it.
pub(crate) fn identified<S: Serialize>(
    prefix: &str,
    pipeline: &Pipeline<S>,
    splits: &[S],
    sizes: (u64, u64),
) -> Result<String> {
    let steps: Vec<String> = (0..pipeline.stages.len()).map(|n| pipeline.name(n)).collect();
    let batches: Vec<u64> = pipeline.stages.iter().map(|stage| stage.batch).collect();
    let identity = serde_json::to_vec(&(steps, batches, &pipeline.objects, sizes, splits))?;
    Ok(format!("{prefix}{:016x}/", fnv1a(&identity)))
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo): equal on any machine, and nobody gains by a collision.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Notes that a split is done.
pub(crate) fn note(prefix: &str, split: u32) -> Result<()> {
    objects::put(&format!("{prefix}{split:010}"), b"done\n").map(drop)
}

/// The splits that are done. A task asks, not the driver: a driver that is replayed must see what it saw before.
pub(crate) fn done(prefix: &str) -> Result<Vec<u32>> {
    let split = |object: objects::Object| {
        let name = object.key.strip_prefix(prefix).and_then(|name| name.parse().ok());
        name.ok_or_else(|| {
            Error::new(fanfold::ErrorKind::Conflict, format!("`{}` is no checkpoint", object.key))
        })
    };
    objects::list(prefix).map(|object| split(object?)).collect()
}
