//! The async runtime of commands that ask a gateway, and how Ctrl-C ends them.

use std::future::Future;

use crate::failure::Failure;

/// Runs a command's work on this thread until it is done or the person presses Ctrl-C.
pub fn client(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("cannot start: {e}"), "raise `ulimit -n`"))?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = work => ended,
            _ = tokio::signal::ctrl_c() => {
                Err(Failure::new("interrupted", "what was accepted goes on: `fanfold job ls` shows it"))
            }
        }
    });
    // A read of stdin may never return; do not wait for its thread.
    runtime.shutdown_background();
    ended
}
