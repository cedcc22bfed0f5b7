//! What the end of a worker process means for who used it.

use std::{future::pending, os::unix::process::ExitStatusExt as _, process::ExitStatus};

use fanfold_protocol::{Code, Error, Kind};
use tokio::{io::AsyncReadExt as _, process::ChildStderr, time::Instant};

/// Bytes of a worker's last words that are kept.
const LAST_WORDS_BYTES: usize = 4 << 10;

/// A call that has not been answered.
pub(super) struct Call {
    pub name: String,
    pub compiles: bool,
    pub submits: bool,
    pub until: Instant,
}

/// There is no worker, and nobody's fault is known.
pub(super) fn gone() -> Error {
    Error::new(Kind::Lost, Code::GpuLost, "the gpu's process is gone")
}

/// A signal of the process's own doing while a shader was compiled is the shader's fault; anything else may be chance.
pub(super) fn died(status: ExitStatus, call: Option<Call>, words: &str) -> Error {
    const SIGKILL: i32 = 9;
    let own = status.signal().is_some_and(|signal| signal != SIGKILL);
    match call {
        Some(Call { name, compiles: true, .. }) if own => {
            let message = format!("{name}: what compiles it ended with {status}{words}");
            Error::new(Kind::Invalid, Code::Shader, message)
        }
        Some(Call { name, .. }) => {
            let message = format!("the gpu's process ended with {status} while {name}{words}");
            Error::new(Kind::Lost, Code::GpuLost, message)
        }
        None => {
            let message = format!("the gpu's process ended with {status}{words}");
            Error::new(Kind::Lost, Code::GpuLost, message)
        }
    }
}

/// What a worker writes to its standard error, from the end.
pub(super) struct LastWords {
    from: Option<ChildStderr>,
    text: Vec<u8>,
}

impl LastWords {
    /// Of a process whose standard error this is.
    pub fn new(from: Option<ChildStderr>) -> Self {
        Self { from, text: Vec::new() }
    }

    /// Takes in what was written; waits for ever where nothing will be.
    pub async fn more(&mut self) {
        let Some(from) = &mut self.from else { return pending().await };
        match from.read_buf(&mut self.text).await {
            Ok(1..) => {
                let surplus = self.text.len().saturating_sub(LAST_WORDS_BYTES);
                self.text.drain(..surplus);
            }
            Ok(0) | Err(_) => self.from = None,
        }
    }

    /// Takes in what is left. To be called when the process has ended.
    pub async fn rest(&mut self) {
        while self.from.is_some() {
            self.more().await;
        }
    }

    /// In brackets, on one line; nothing where there were none.
    pub fn shown(&self) -> String {
        let words = String::from_utf8_lossy(&self.text);
        let words = words.trim();
        if words.is_empty() { String::new() } else { format!(" ({})", words.replace('\n', " | ")) }
    }
}
