//! Checkpoints, and removing what they made superfluous.

use fanfold_protocol::{Error, record::Record};

use super::{
    segment::{self, Encoded, Header, Kind},
    tail::Shard,
};
use crate::{directory::blocking, paths};

/// Writes the checkpoint of all segments up to `seq`.
pub(super) async fn checkpoint(shard: &Shard, seq: u64, state: Vec<Record>) -> Result<(), Error> {
    let (epoch, writer, at_ms) = (shard.epoch, shard.writer, shard.options.clock.now_ms());
    let header = Header { kind: Kind::Checkpoint, epoch, seq, writer, at_ms };
    let bytes = blocking(move || Ok(segment::encode(&header, &[&Encoded::of(&state)?]))).await?;
    // One that is there already covers the same segments, so it says the same.
    shard.backend.create(&paths::checkpoint(&shard.name, seq), bytes.into()).await.map(|_| ())
}

/// Removes segments that a checkpoint of a sufficient age covers, and the checkpoints before that one. So the segments
/// since the last checkpoint but one are always there, and a damaged checkpoint costs time and no data.
pub(super) async fn collect(shard: &Shard) -> Result<(), Error> {
    let Shard { backend, name, options, .. } = shard;
    let names = backend.names(&paths::checkpoints(name), "", None).await?;
    let mut covered = None;
    // The newest one is never the one to rely on: see above.
    let older = names.iter().rev().skip(1).rev();
    for seq in older.filter_map(|name| paths::number(name)) {
        let Some(meta) = backend.head(&paths::checkpoint(name, seq)).await? else { continue };
        if options.clock.now_ms().saturating_sub(meta.modified_at_ms) < options.segment_kept_ms {
            break;
        }
        covered = Some(seq);
    }
    let Some(covered) = covered else { return Ok(()) };
    let last = format!("{covered:020}.seg");
    let segments = backend.names(&paths::segments(name), "", Some(&last)).await?;
    let segments =
        segments.iter().filter_map(|name| paths::number(name)).map(|seq| paths::segment(name, seq));
    let checkpoints = names.iter().filter_map(|name| paths::number(name)).filter(|seq| *seq < covered);
    let checkpoints = checkpoints.map(|seq| paths::checkpoint(name, seq));
    backend.delete_all(segments.chain(checkpoints).collect()).await
}
