//! The journal: what was acknowledged, in order, for ever, by one owner at a time.
//!
//! A shard's journal is a gapless sequence of *segments*, each created once and never changed (`log/<shard>/<seq>.seg`).
//! An *epoch* (`epoch/<shard>/<n>`) belongs to whoever created it; its owner announces itself with a *fence*, an empty
//! segment at the tail. Whoever then finds a segment of a higher epoch where it wanted to write its own has been
//! replaced and stops. A *checkpoint* stands for all segments up to its number.
//!
//! - `clock`, `segment`: time and bytes.
//! - `open`: claiming an epoch, replaying, fencing.
//! - `handle`: what callers hold. `writer`: the one task that writes, in group commits.
//! - `tail`: writing one segment and finding out what became of it.
//! - `compact`: checkpoints, and removing what they cover.
//!
//! # What a crash can leave
//!
//! A segment appears whole or not at all: a directory's files are written and fsynced under another name before they
//! are linked, and an object store's puts are atomic. A segment that is cut short was therefore either acknowledged and
//! damaged later, or acknowledged by a disk that lied about having it. Both lose acknowledged records, so neither is
//! passed over silently: opening is refused with an error that names the file, tells a cut from a changed byte, and says
//! that moving the last segment away gives up its records and nothing else.

mod clock;
mod compact;
mod handle;
mod open;
pub(crate) mod segment;
mod tail;
mod writer;

pub use clock::Clock;
pub use handle::Journal;

use std::time::Duration;

use fanfold_protocol::limit;

use crate::Store;

/// How a journal is kept, where it differs from what [`Journal::open`] chooses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where time comes from.
    pub clock: Clock,
    /// Milliseconds for which segments outlive the checkpoint that covers them. A stale owner that was paused for longer
    /// than [`limit::EPOCH_TRUSTED_MS`] asks for its epoch before it acknowledges anything, so this must only be larger
    /// than that.
    pub segment_kept_ms: u64,
    /// The least time from the beginning of one segment to that of the next: what comes meanwhile shares it. A segment
    /// that comes after a pause is written at once.
    pub commit_interval: Duration,
}

impl Default for Options {
    /// For a store that is shared: it asks for money per put, and a former owner may wake after hours.
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            segment_kept_ms: limit::SEGMENT_KEPT_MS,
            commit_interval: Duration::from_millis(limit::COMMIT_INTERVAL_MS),
        }
    }
}

impl Options {
    /// For a store no other process can have: memory, or a directory, which is locked. Kept segments then only help to
    /// survive a damaged checkpoint, and at thousands of appends a second a day of them would fill the disk.
    fn exclusive() -> Self {
        Self {
            segment_kept_ms: 10 * limit::EPOCH_TRUSTED_MS,
            commit_interval: Duration::ZERO,
            ..Self::default()
        }
    }

    /// What suits a store.
    fn suiting(store: &Store) -> Self {
        if store.is_shared() { Self::default() } else { Self::exclusive() }
    }
}

const _: () = assert!(limit::SEGMENT_KEPT_MS > limit::EPOCH_TRUSTED_MS);
