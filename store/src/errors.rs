//! How failures below become the platform's errors. The path is always in the message; the kind says what to do next.

use std::io;

use fanfold_protocol::{Code, Error, Kind};
use object_store::path::Path;

use crate::s3::answer;

/// A failure of the object store while `doing` (an infinitive) something with `path`.
pub(crate) fn storage(doing: &str, path: &Path, source: &object_store::Error) -> Error {
    if answer::is_remote(source) {
        return answer::explain(format_args!("cannot {doing} `{path}`"), source);
    }
    match io_cause(source) {
        Some(cause) => io_error(doing, path.as_ref(), cause),
        None => Error::new(Kind::Platform, Code::Storage, format!("cannot {doing} `{path}`: {source}")),
    }
}

/// A failure of the file system while `doing` (an infinitive) something with `path`.
pub(crate) fn io_error(doing: &str, path: impl std::fmt::Display, source: &io::Error) -> Error {
    let failed = |code| Error::new(Kind::Platform, code, format!("cannot {doing} `{path}`: {source}"));
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::new(
            Kind::Platform,
            Code::DiskFull,
            format!(
                "cannot {doing} `{path}`: the disk that holds the store is full; free some space and try again, \
                 the platform needs no restart"
            ),
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => failed(Code::Storage)
            .retryable(false)
            .context("the store's directory must be writable by the user that runs the platform"),
        io::ErrorKind::InvalidFilename => {
            Error::invalid(format!("`{path}` is longer than this file system allows for a path"))
        }
        _ => failed(Code::Storage),
    }
}

/// Damaged bytes in `path`. Not retryable: reading again gives the same bytes.
pub(crate) fn corrupt(path: impl std::fmt::Display, what: impl std::fmt::Display) -> Error {
    Error::new(Kind::Lost, Code::Corrupt, format!("`{path}` is damaged: {what}")).retryable(false)
}

/// The I/O error at the bottom of what a local store reports.
fn io_cause(error: &object_store::Error) -> Option<&io::Error> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(cause) = error.downcast_ref::<io::Error>() {
            return Some(cause);
        }
        next = error.source();
    }
    None
}
