//! Writing one segment at the tail, and finding out what became of it.

use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind};
use uuid::Uuid;

use super::{
    Options,
    segment::{Header, Segment},
};
use crate::{backend::Backend, errors::corrupt, paths};

/// One shard's journal as one owner sees it.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) backend: Backend,
    pub(super) name: String,
    pub(super) epoch: u64,
    pub(super) writer: Uuid,
    pub(super) options: Options,
}

/// What became of a segment.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is there, durably.
    Written,
    /// It is not there and will not appear: its number is free.
    Absent(Error),
    /// Nobody knows: it may be there, or appear yet. The same bytes must be tried again.
    Unknown(Error),
    /// Another writer's segment has its number.
    Taken(Header),
    /// Something unreadable has its number.
    Broken(Error),
}

impl Shard {
    /// Creates segment `seq`.
    pub(super) async fn create(&self, seq: u64, bytes: &Bytes) -> Outcome {
        let path = paths::segment(&self.name, seq);
        let failure = match self.backend.create(&path, bytes.clone().into()).await {
            Ok(true) => return Outcome::Written,
            Ok(false) => None,
            Err(e) => Some(e),
        };
        // What is there may be our own, from a try whose answer was lost: a store repeats requests by itself.
        match (self.backend.get(&path).await, failure) {
            (Ok(Some(found)), _) if found == bytes => match self.backend.sync_entry(&path).await {
                Ok(()) => Outcome::Written,
                Err(e) => Outcome::Unknown(e),
            },
            (Ok(Some(found)), _) => match Segment::parse(&found) {
                Ok(segment) => Outcome::Taken(segment.header),
                Err(damage) => Outcome::Broken(corrupt(&path, damage)),
            },
            (Ok(None), Some(e)) if self.has_settled(&e) => Outcome::Absent(e),
            (Ok(None), Some(e)) => Outcome::Unknown(e),
            (Ok(None), None) => Outcome::Unknown(Error::internal(format!("`{path}` came and went"))),
            (Err(e), failure) => Outcome::Unknown(failure.unwrap_or(e)),
        }
    }

    /// Whether a put that failed so cannot take effect any more. A request to a remote store may still be under way.
    fn has_settled(&self, failure: &Error) -> bool {
        self.backend.local().is_some() || failure.code == Code::DiskFull
    }

    /// The epoch after ours, where somebody has claimed one.
    pub(super) async fn newer_epoch(&self) -> Result<Option<u64>, Error> {
        self.backend.newer_epoch(&self.name, self.epoch).await
    }

    /// The error of an owner that has been replaced by the one of `epoch`.
    pub(super) fn fenced(&self, epoch: u64) -> Error {
        let message = format!(
            "another process has taken over the journal `{}` (epoch {epoch}, this one has {}): this process must stop",
            self.name, self.epoch
        );
        Error::new(Kind::Conflict, Code::Fenced, message)
    }
}
