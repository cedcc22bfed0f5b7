//! Uses every part of the host interface from inside and checks what comes back: what a second host has to pass.
//!
//! The driver runs all checks, or those that are named, and returns the failures. `cargo test` runs the same checks on
//! the SDK's native host.

mod checks;
mod tasks;

use fanfold::Result;
use serde::{Deserialize, Serialize};

/// Which checks to run.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Their names; none: all.
    pub only: Vec<String>,
}

/// What was found.
#[derive(Serialize, Debug, Default)]
pub struct Report {
    /// Checks that passed.
    pub passed: Vec<&'static str>,
    /// Checks that failed, each with what was wrong.
    pub failed: Vec<(&'static str, String)>,
}

/// The driver.
#[fanfold::function(tasks(
    tasks::add,
    tasks::blob,
    tasks::blocks,
    tasks::concat,
    tasks::divide,
    tasks::eventually,
    tasks::fail,
    tasks::forward,
    tasks::length,
    tasks::numbered,
    tasks::numbers,
    tasks::parcel,
    tasks::sleep,
    tasks::sum,
    tasks::unpack,
))]
pub fn conformance(request: Option<Request>) -> Report {
    let only = request.unwrap_or_default().only;
    let mut report = Report::default();
    for (name, check) in checks::ALL {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        match check() {
            Ok(()) => report.passed.push(name),
            Err(error) => report.failed.push((name, error.message)),
        }
    }
    report
}

/// Fails a check unless `holds`.
fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(fanfold::Error::guest(what())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_native_host_passes() {
        // It has no attempts and no clock: these need a platform.
        let platform =
            ["retries_are_attempts", "a_deadline_ends_a_task", "waiting_times_out", "cancelled_tasks_fail"];
        for (name, check) in checks::ALL.iter().filter(|(name, _)| !platform.contains(name)) {
            assert_eq!(check().map_err(|e| e.message), Ok(()), "{name}");
        }
    }
}
