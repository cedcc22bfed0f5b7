//! Generators: tasks whose outputs appear one by one while they run.

use std::{fmt, marker::PhantomData};

use serde::Serialize;

use crate::{Error, Future, Result, Writer, codec, host};

/// The outputs of a running generator, in order, each as a future that exists already (or failed).
///
/// The generator runs a few outputs ahead of its consumer and is then held back. Dropping this stops caring, not the
/// generator.
pub struct Generator<T> {
    raw: host::Generator,
    ended: bool,
    of: PhantomData<fn() -> T>,
}

impl<T> Generator<T> {
    pub(crate) fn new(raw: host::Generator) -> Self {
        Self { raw, ended: false, of: PhantomData }
    }
}

impl<T> fmt::Debug for Generator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<T> Iterator for Generator<T> {
    type Item = Result<Future<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.raw.next().map_err(Error::from).transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next.map(|result| result.map(Future::new))
    }
}

/// Where a generator sends its outputs: its first parameter.
#[derive(Debug)]
pub struct Yielder<T> {
    sent: u32,
    of: PhantomData<fn(T)>,
}

impl<T: Serialize + 'static> Yielder<T> {
    #[doc(hidden)]
    #[allow(clippy::new_without_default, reason = "only the macros make one, for the generator they start")]
    pub fn new() -> Self {
        Self { sent: 0, of: PhantomData }
    }

    /// Makes `value` the next output, visible at once. Waits while the consumer is far behind.
    ///
    /// # Errors
    /// `guest` if it cannot be serialised, `platform` where nobody consumes any more or storage failed.
    pub fn send(&mut self, value: T) -> Result<()> {
        let encoded = codec::encode(value)?;
        let value = encoded.for_output(self.sent)?;
        host::yield_partition(&value)?;
        self.sent = self.sent.saturating_add(1);
        Ok(())
    }

    /// Starts the next output as a partition; [`Yielder::send`] what it finishes as.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn writer(&self) -> Result<Writer> {
        Writer::for_output(self.sent)
    }
}
