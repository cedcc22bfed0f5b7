//! What the listings of triggers saw: one object for each, written and read as a stream. What is in it is the caller's business.

use bytes::Bytes;
use fanfold_protocol::{Digest, Error, FunctionName};

use crate::{Store, objects::ObjectStream, paths, upload::Upload};

impl Store {
    /// What the last listing of a trigger saw, which lists what this digest stands for; `None` before the first one.
    ///
    /// # Errors
    /// `platform`, also in the stream.
    pub async fn seen(&self, trigger: &FunctionName, what: Digest) -> Result<Option<ObjectStream>, Error> {
        let found = self.backend().stream(&paths::seen(trigger, what), 0..u64::MAX).await?;
        Ok(found.map(|(_, pieces)| pieces))
    }

    /// Begins to write what a listing sees. What was there before stays until it is finished.
    pub fn see(&self, trigger: &FunctionName, what: Digest) -> SeenWriter {
        SeenWriter(Upload::new(self.backend().clone(), paths::seen(trigger, what)))
    }

    /// Removes all of it; fine if there is none.
    ///
    /// # Errors
    /// `platform`.
    pub async fn forget_seen(&self, trigger: &FunctionName) -> Result<(), Error> {
        self.backend().delete_below(&paths::trigger(trigger)).await
    }
}

/// What a listing sees, while it does. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct SeenWriter(Upload);

impl SeenWriter {
    /// Appends a piece.
    ///
    /// # Errors
    /// `platform`; it cannot be finished then.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        self.0.write(piece).await
    }

    /// Puts it in place of what was there, durably.
    ///
    /// # Errors
    /// `platform`; what was there before is still there.
    pub async fn finish(self) -> Result<(), Error> {
        self.0.finish().await.map(drop)
    }
}
