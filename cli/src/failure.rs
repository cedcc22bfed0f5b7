//! A failed command: one line that says what is wrong, one that says what to do, and an exit code.

use std::{error::Error as _, io, path::Path, process::ExitCode};

use fanfold_client::Error;
use fanfold_protocol::{Code, Kind};
use serde_json::json;

use crate::{hints, output::note};

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    what: String,
    fix: String,
    exit: Exit,
    cause: Option<Cause>,
}

/// For programs: what the platform said.
#[derive(Clone, Copy, Debug)]
struct Cause {
    kind: Kind,
    code: Code,
    retryable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exit {
    /// The reader of our output has gone: nothing to say, and no failure.
    Quiet,
    Failed,
    Usage,
    Guest,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl Failure {
    /// `what` went wrong and how to `fix` it.
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into(), exit: Exit::Failed, cause: None }
    }

    /// The command was called in a way that cannot work.
    pub fn usage(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(what, fix) }
    }

    /// The function is to blame.
    pub fn guest(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { exit: Exit::Guest, ..Self::new(what, fix) }
    }

    /// A file or directory could not be used.
    pub fn file(path: &Path, error: &io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "check its permissions, or choose another path",
            io::ErrorKind::StorageFull => "free some space, or choose another path",
            _ => "check that the path names what you mean",
        };
        Self::new(format!("cannot use {}: {}", path.display(), plain(error)), fix)
    }

    /// Our output could not be written.
    pub fn stdout(error: io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Quiet } else { Exit::Failed };
        Self {
            exit,
            ..Self::new(format!("cannot write the output: {}", plain(&error)), "redirect it elsewhere")
        }
    }

    /// What an error of the platform's own types means to somebody at a terminal.
    pub fn platform(error: &fanfold_protocol::Error) -> Self {
        let exit = if hints::is_guests_fault(error.kind, error.code) { Exit::Guest } else { Exit::Failed };
        let cause = Some(Cause { kind: error.kind, code: error.code, retryable: error.retryable });
        Self { what: error.message.clone().into_owned(), fix: hints::fix(error.code).into(), exit, cause }
    }

    /// The same failure with other advice.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// The same failure, with what was being done when it happened.
    pub fn during(mut self, what: impl std::fmt::Display) -> Self {
        self.what = format!("{what}: {}", self.what);
        self
    }

    /// Tells it on stderr and gives the exit code.
    pub fn report(&self, as_json: bool) -> ExitCode {
        match (self.exit, as_json) {
            (Exit::Quiet, _) => {}
            (_, true) => note(json!({ "error": self.as_json(), "fix": self.fix })),
            (_, false) => note(format_args!("error: {}\n  fix: {}", self.what.trim_end(), self.fix)),
        }
        ExitCode::from(match self.exit {
            Exit::Quiet => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Guest => 3,
        })
    }

    fn as_json(&self) -> serde_json::Value {
        match self.cause {
            Some(Cause { kind, code, retryable }) => {
                json!({ "kind": kind, "code": code, "message": self.what, "retryable": retryable })
            }
            None => json!({ "message": self.what }),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let what = match deepest(&error) {
            Some(reason) => format!("{error}: {reason}"),
            None => error.to_string(),
        };
        match &error {
            Error::Connect { .. } => Self::new(
                what,
                "start a platform with `fanfold up --dir DIR`, or set FANFOLD_URL to where one runs",
            ),
            Error::Broken { .. } | Error::Timeout { .. } => {
                Self::new(what, "the request may have taken effect: look before you repeat it")
            }
            Error::Unexpected { .. } => Self::new(
                what,
                "check FANFOLD_URL: something else may be listening there, or another version",
            ),
            Error::Refused { problem, retry_after, .. } => {
                let told = fanfold_protocol::Error::new(problem.kind, problem.code, problem.detail.clone());
                let failure = Self::platform(&told.retryable(problem.retryable));
                match retry_after {
                    Some(after) => failure.fix(format!("try again in {} s", after.as_secs().max(1))),
                    None => failure,
                }
            }
            Error::Failed { id, error } => {
                let fix = format!("{}; `fanfold logs {id}` shows what it wrote", hints::fix(error.code));
                Self::platform(error).fix(fix)
            }
            Error::File { path, source } => Self::file(path, source),
            _ => Self::usage(what, "correct it; `fanfold help COMMAND` shows how"),
        }
    }
}

/// What lies at the bottom: the part that says why.
fn deepest(error: &Error) -> Option<String> {
    let mut source = error.source()?;
    while let Some(inner) = source.source() {
        source = inner;
    }
    Some(match source.downcast_ref::<io::Error>() {
        Some(error) => plain(error),
        None => source.to_string(),
    })
}

/// An I/O error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    match chars.next() {
        // `ENOENT` and names keep their case; sentences lose it.
        Some(first) if chars.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}
