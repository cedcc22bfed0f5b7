//! What a server of objects said, found in an error of `object_store`, whose own type for it is private; and what a
//! person should do about it.

use std::fmt::Display;

use fanfold_protocol::{Code, Error, Kind};
use object_store::client::{HttpError, HttpErrorKind};

/// What `object_store` writes before a status.
const STATUS_MARK: &str = "status code: ";
/// The address of the service that gives a cloud machine its credentials: the last place they are looked for.
const METADATA_SERVICE: &str = "169.254.169.254";

/// A server's refusal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// S3's name for the error, empty where the answer had no body.
    pub(crate) code: String,
    /// S3's words for it.
    pub(crate) message: String,
}

impl Answer {
    /// The answer that an error tells of, where there was one.
    pub(crate) fn of(error: &object_store::Error) -> Option<Self> {
        Self::parse(&error.to_string())
    }

    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once(STATUS_MARK)?;
        let status = rest.get(..3)?.parse().ok()?;
        let element = |name: &str| {
            let (_, rest) = rest.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_owned())
        };
        let [code, message] = ["Code", "Message"].map(|name| element(name).unwrap_or_default());
        Some(Self { status, code, message })
    }

    /// Whether two writers met: neither has failed for good, and the condition was not looked at.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status == 409
    }

    /// Whether there is no such bucket: nothing that was in it is "not found", it cannot be known.
    pub(crate) fn has_no_bucket(&self) -> bool {
        self.code == "NoSuchBucket"
    }
}

/// Whether an error is of a server, not of a disk.
pub(crate) fn is_remote(error: &object_store::Error) -> bool {
    Answer::of(error).is_some() || transport(error).is_some()
}

/// An error of a server as one of ours: `what` could not be done, for how long it was tried, why, and what to do.
pub(crate) fn explain(what: impl Display, source: &object_store::Error) -> Error {
    let text = source.to_string();
    let tried = tried(&text);
    if text.contains(METADATA_SERVICE) {
        let why = "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        return failed(what, why, false);
    }
    match (Answer::parse(&text), transport(source)) {
        (Some(answer), _) => refused(what, &answer, &tried),
        (None, Some((HttpErrorKind::Connect, why))) => unreachable(what, &why, &tried),
        (None, Some((_, why))) => failed(what, format!("the connection failed{tried} ({why})"), true),
        (None, None) => failed(what, text, true),
    }
}

/// The error of a server that was not reached. `tried`, where not empty, begins with a space.
pub(crate) fn unreachable(what: impl Display, why: &str, tried: &str) -> Error {
    let why = format!("the server could not be reached{tried} ({why}); check the endpoint and that it runs");
    failed(what, why, true)
}

/// The error of a server that refused or failed.
pub(crate) fn refused(what: impl Display, answer: &Answer, tried: &str) -> Error {
    let Answer { status, code, message } = answer;
    match (status, code.as_str()) {
        (404, _) if answer.has_no_bucket() => failed(
            what,
            "there is no such bucket; make it with `fanfold infra bootstrap`, or check its name and the endpoint",
            false,
        ),
        (401 | 403, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => failed(
            what,
            format!("the credentials are wrong ({code}); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
            false,
        ),
        (401 | 403, "RequestTimeTooSkewed") => {
            failed(what, "this machine's clock and the server's differ by too much; set it", false)
        }
        (401 | 403, _) => failed(
            what,
            format!(
                "the server refuses it ({status} {code}); check the credentials, and that they may list, read, write \
                 and delete there"
            ),
            false,
        ),
        (501, _) => failed(what, format!("the server cannot do this ({code}: {message})"), false),
        (500.., _) => failed(what, format!("the server failed{tried} ({status} {code})"), true),
        _ => failed(what, format!("the server answered {status} {code}: {message}"), true),
    }
}

/// An error of the store: `what` could not be done, and why.
pub(crate) fn failed(what: impl Display, why: impl Display, retryable: bool) -> Error {
    Error::new(Kind::Platform, Code::Storage, format!("{what}: {why}")).retryable(retryable)
}

/// The text of an error of the system without its number.
pub(crate) fn plain(text: &str) -> String {
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The time that `object_store` spent on a request: it says " in 1.5s".
fn tried(text: &str) -> String {
    let found = text.split(" in ").skip(1).find_map(|rest| {
        let word = rest.split([' ', ',']).next()?;
        (word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('s')).then_some(word)
    });
    found.map_or_else(String::new, |time| format!(" for {time}"))
}

/// A failure between here and the server, with the words at its bottom.
fn transport(error: &object_store::Error) -> Option<(HttpErrorKind, String)> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let (mut kind, mut words) = (None, String::new());
    while let Some(error) = next {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            kind = Some(http.kind());
        }
        words = error.to_string();
        next = error.source();
    }
    Some((kind?, plain(&words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_in_errors() {
        let text = "Error performing PUT http://h/b/k in 1s - Server returned non-2xx status code: 404 Not Found: \
                    <?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>";
        let answer = Answer::parse(text).unwrap();
        assert_eq!(answer, Answer { status: 404, code: "NoSuchBucket".into(), message: "gone".into() });
        assert!(answer.has_no_bucket() && !answer.is_conflict());
        assert!(Answer::parse("status code: 409 Conflict: ").unwrap().is_conflict());
        assert_eq!(tried(text), " for 1s");
        assert_eq!(tried("Error performing PUT http://h/ in 20.5s, after 3 retries"), " for 20.5s");
        assert_eq!(tried("nothing in there"), "");
        for other in ["", "connection refused", "status code: ", "status code: 4", "status code: äöü"] {
            assert_eq!(Answer::parse(other), None, "{other}");
        }
    }
}
