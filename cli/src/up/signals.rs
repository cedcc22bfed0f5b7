//! SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Both signals.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen. From here on, neither ends the process by itself.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|e| Failure::new(format!("cannot listen for signals: {e}"), "raise `ulimit -n`"))
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next one; answers its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
