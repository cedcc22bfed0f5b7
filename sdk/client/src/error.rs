//! The one error of the client. It answers what a caller asks next: may I try again, and can it already have
//! happened?

use std::{io, path::PathBuf, time::Duration};

use fanfold_protocol::{Code, JobId, Kind, rest::Problem};

/// Why a request did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be sent: an argument is wrong.
    #[error("{0}")]
    Request(String),
    /// A file to send cannot be read, or one to write cannot be written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nobody listens there, or the network is down. Nothing was sent.
    #[error("cannot connect to {url}")]
    Connect {
        /// The address that was tried.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The connection broke after the request was sent, in whole or in part.
    #[error("the connection to {url} broke before the answer was complete")]
    Broken {
        /// The request's address.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// No complete answer within the time allowed.
    #[error("{url} did not answer in time")]
    Timeout {
        /// The request's address.
        url: String,
    },
    /// The server refused the request, or failed at it.
    #[error("{}", problem.detail)]
    Refused {
        /// What it said.
        problem: Box<Problem>,
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
        /// The call that failed, for its logs.
        invocation: Option<JobId>,
    },
    /// The answer is none that a Fanfold gateway gives.
    #[error("{url} does not answer like a Fanfold gateway: {what}")]
    Unexpected {
        /// The request's address.
        url: String,
        /// What was wrong with it.
        what: String,
    },
    /// The invocation ended without a result.
    #[error("{error}")]
    Failed {
        /// Which invocation.
        id: JobId,
        /// Why.
        error: fanfold_protocol::Error,
    },
}

impl Error {
    /// Whether the same request may succeed later. Says nothing of what the first one did: see
    /// [`Error::has_no_side_effects`].
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } | Self::Timeout { .. } => true,
            Self::Refused { problem, .. } => problem.retryable,
            Self::Failed { error, .. } => error.retryable,
            Self::Request(_) | Self::File { .. } | Self::Unexpected { .. } => false,
        }
    }

    /// Whether it is certain that the request changed nothing and ran nothing. `false` means that it may have.
    pub fn has_no_side_effects(&self) -> bool {
        match self {
            Self::Request(_) | Self::Connect { .. } => true,
            // An upload whose source fails is cut off, and a cut-off upload is never committed.
            Self::File { .. } => true,
            // A function that ran to its end and returned an error, of whatever kind.
            Self::Refused { problem, .. } if problem.code == Code::ErrorReturned => false,
            Self::Refused { problem, .. } => match problem.kind {
                Kind::Invalid | Kind::Unauthorized | Kind::NotFound | Kind::Conflict | Kind::Overloaded => {
                    true
                }
                Kind::Guest | Kind::Limit | Kind::Lost | Kind::Platform => false,
            },
            Self::Broken { .. } | Self::Timeout { .. } | Self::Unexpected { .. } | Self::Failed { .. } => {
                false
            }
        }
    }

    /// What the server said, if it answered with a problem.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// The kind of failure, if the server or the invocation named one.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Refused { problem, .. } => Some(problem.kind),
            Self::Failed { error, .. } => Some(error.kind),
            _ => None,
        }
    }

    /// How long the server asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What went wrong with a request to `url`, as `reqwest` tells it.
    pub(crate) fn transport(url: &reqwest::Url, error: reqwest::Error) -> Self {
        // The address is in our own message; in the source it would be said twice.
        let (url, source) = (url.to_string(), error.without_url());
        if source.is_connect() {
            return Self::Connect { url: origin(&url), source };
        }
        if source.is_timeout() {
            return Self::Timeout { url };
        }
        match file_error(&source) {
            Some(error) => error,
            None => Self::Broken { url, source },
        }
    }
}

/// The failure of a request body's file, which travels through the HTTP stack as a source of its error.
fn file_error(error: &reqwest::Error) -> Option<Error> {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(crate::upload::ReadFailed { path, error }) = inner.downcast_ref() {
            let source = io::Error::new(error.kind(), error.to_string());
            return Some(Error::File { path: path.clone(), source });
        }
        source = inner.source();
    }
    None
}

fn origin(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => url.to_owned(),
    }
}
