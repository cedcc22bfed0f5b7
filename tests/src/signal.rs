//! Signals to processes of a test.

use std::process::Command;

/// Sends a signal by name, such as `TERM`, `STOP` or `CONT`.
pub fn send(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.expect("kill").success(), "process {pid} takes no {name}");
}

/// A process that does not move until this is dropped: `SIGSTOP`, then `SIGCONT`. Its connections stay open.
pub struct Stopped(u32);

impl Stopped {
    /// Stops a process.
    pub fn new(pid: u32) -> Self {
        send(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        send(self.0, "CONT");
    }
}
