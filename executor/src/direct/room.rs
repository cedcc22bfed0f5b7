//! Memory of the direct lane: a call starts when its instance's cap fits beside those of the others.

use std::{sync::Arc, time::Duration};

use fanfold_protocol::{Code, Error, Kind};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Grain of the account: a WebAssembly page.
const UNIT: u64 = 64 << 10;
/// Longest wait for room. The gateway's queues are where calls wait; this only evens out bursts.
const PATIENCE: Duration = Duration::from_millis(250);

/// Memory that is not in use.
pub(super) struct Room {
    units: Arc<Semaphore>,
    total: u64,
}

/// Memory of one call; given back when dropped.
pub(super) struct Permit(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Room {
    /// `bytes` in all.
    pub(super) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { units: Arc::new(Semaphore::new(units)), total: bytes }
    }

    /// `bytes` for one call.
    ///
    /// # Errors
    /// [`Code::Memory`]: not retryable where it can never fit.
    pub(super) async fn take(&self, bytes: u64) -> Result<Permit, Error> {
        let never = || {
            let message =
                format!("the function may use {bytes} bytes of memory and this executor has {}", self.total);
            Error::new(Kind::Overloaded, Code::Memory, message).retryable(false)
        };
        let units = u32::try_from(bytes.div_ceil(UNIT)).map_err(|_| never())?;
        if let Ok(permit) = self.units.clone().try_acquire_many_owned(units) {
            return Ok(Permit(permit));
        }
        if bytes > self.total {
            return Err(never());
        }
        match timeout(PATIENCE, self.units.clone().acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(Permit(permit)),
            Ok(Err(_)) | Err(_) => {
                let message = format!("no room for another {bytes} bytes of memory; try again");
                Err(Error::new(Kind::Overloaded, Code::Memory, message))
            }
        }
    }
}
