//! The one error of this crate: what the platform answers, and what a function gives back.

use std::{any::Any, error::Error as StdError, fmt, io};

use crate::raw;
pub use crate::raw::ErrorKind;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: who must act (`kind`), what happened (`message`), and whether trying again may help.
///
/// Like `anyhow::Error` it is not a [`std::error::Error`] itself, so that `?` turns every other error into one: a
/// failure of the function (`kind` is [`ErrorKind::Guest`], not retryable).
///
/// A function may blame its caller: [`ErrorKind::Invalid`], [`ErrorKind::NotFound`] and [`ErrorKind::Conflict`] reach
/// it as they are (over REST with status 400, 404 and 409), and the task is not tried again. Whatever other kind a
/// function's error names, its caller gets it as [`ErrorKind::Guest`]: only the platform may say that the platform
/// failed. Of these, a retryable one is tried again as the manifest allows; any other is final for a task that another
/// one called, while the function of an asynchronous invocation or job itself is tried again also then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What the receiver does next.
    pub kind: ErrorKind,
    /// For people: lower case, names what is wrong.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

impl Error {
    /// An error that is not retryable.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retryable: false }
    }

    /// The function failed.
    pub fn guest(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Guest, message)
    }

    /// The caller's request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The same error with `retryable` set.
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The same error with `context` and a colon before its message.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: StdError + 'static> From<E> for Error {
    /// The message is the error's own, followed by its sources. An [`Error`] that travelled inside an
    /// [`io::Error`] comes out as it went in.
    fn from(error: E) -> Self {
        let io = (&error as &dyn Any).downcast_ref::<io::Error>();
        if let Some(InIo(inner)) = io.and_then(io::Error::get_ref).and_then(|e| e.downcast_ref()) {
            return inner.clone();
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::guest(message)
    }
}

impl From<raw::Error> for Error {
    fn from(raw::Error { kind, message, retryable }: raw::Error) -> Self {
        Self { kind, message, retryable }
    }
}

impl From<Error> for raw::Error {
    fn from(Error { kind, message, retryable }: Error) -> Self {
        Self { kind, message, retryable }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(InIo(error))
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        Box::new(InIo(error))
    }
}

/// [`Error`] where the standard library wants a [`StdError`].
#[derive(Debug)]
struct InIo(Error);

impl fmt::Display for InIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for InIo {}

/// What a function may return as its error: [`Error`] as it is, anything else printable as a [`ErrorKind::Guest`].
pub trait Failure: fmt::Display + 'static {
    /// The error to report.
    fn into_error(self) -> Error;
}

impl<E: fmt::Display + 'static> Failure for E {
    fn into_error(self) -> Error {
        crate::codec::cast::<E, Error>(self).unwrap_or_else(|other| Error::guest(other.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_mark_keeps_the_platforms_error_through_io() {
        fn read() -> io::Result<()> {
            Err(Error::new(ErrorKind::Lost, "gone").retryable(true).into())
        }
        fn handler() -> Result<()> {
            read()?;
            Ok(())
        }
        assert_eq!(handler(), Err(Error::new(ErrorKind::Lost, "gone").retryable(true)));
    }

    #[test]
    fn any_printable_error_is_the_functions_own() {
        assert_eq!("no".into_error(), Error::guest("no"));
        assert_eq!(Error::invalid("x").into_error(), Error::invalid("x"));
        let parse: Error = "x".parse::<u8>().unwrap_err().into();
        assert_eq!(parse, Error::guest("invalid digit found in string"));
    }
}
