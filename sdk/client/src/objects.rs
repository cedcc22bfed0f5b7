//! Objects: data in and out.

use std::time::UNIX_EPOCH;

use fanfold_protocol::{
    Code, Kind, limit,
    rest::{ObjectView, Problem},
};
use futures::Stream;
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{CONTENT_LENGTH, ETAG, HeaderName, LAST_MODIFIED},
};

use crate::{ByteStream, Client, Error, Upload, request::Request};

impl Client {
    /// Writes a whole object, replacing any. Many small ones go fastest with some 16 of these in flight at once.
    ///
    /// # Errors
    /// [`Error::Request`] for a key that no URL can carry; `invalid` where it is too large.
    pub async fn put_object(&self, key: &str, body: impl Into<Upload>) -> Result<ObjectView, Error> {
        self.json(&Request::new(Method::PUT, self.object_url(key)?).upload(body.into())).await
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn object(&self, key: &str) -> Result<ByteStream, Error> {
        self.stream(&Request::get(self.object_url(key)?).timeout(None)).await
    }

    /// Size, etag and time of an object.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn head_object(&self, key: &str) -> Result<ObjectView, Error> {
        let request = Request::new(Method::HEAD, self.object_url(key)?);
        self.perform(&request, |response| async move { head(key, response) }).await
    }

    /// Objects whose key starts with `prefix`, by key, page by page as they are asked for.
    pub fn objects(&self, prefix: &str) -> impl Stream<Item = Result<ObjectView, Error>> + Send + 'static {
        self.pages(
            self.at(["v1", "objects"]),
            vec![("prefix", prefix.to_owned()), ("limit", limit::LIST_PAGE_MAX.to_string())],
        )
    }

    /// Removes an object.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn delete_object(&self, key: &str) -> Result<(), Error> {
        self.bytes(&Request::new(Method::DELETE, self.object_url(key)?)).await.map(drop)
    }

    fn object_url(&self, key: &str) -> Result<Url, Error> {
        // Every HTTP stack on the way would resolve these, encoded or not.
        let relative = |segment: &str| segment == "." || segment == "..";
        if key.is_empty() || key.split('/').any(relative) {
            return Err(Error::Request(format!(
                "`{}` is not an object key: it must not be empty or have a part that is . or ..",
                key.escape_debug()
            )));
        }
        Ok(self.at(["v1", "objects"].into_iter().chain(key.split('/'))))
    }
}

/// An object as the head of an answer describes it. The answer to `HEAD` has no body, so no problem either.
fn head(key: &str, response: Response) -> Result<ObjectView, Error> {
    let status = response.status();
    if !status.is_success() {
        return Err(refused(key, status));
    }
    let text = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
    let modified = text(LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date).ok());
    let since_epoch = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(ObjectView {
        key: key.to_owned(),
        bytes: text(CONTENT_LENGTH).and_then(|length| length.parse().ok()).unwrap_or_default(),
        etag: text(ETAG).unwrap_or_default().trim_matches('"').to_owned(),
        modified_at_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
    })
}

fn refused(key: &str, status: StatusCode) -> Error {
    let (kind, code) = match status {
        StatusCode::NOT_FOUND => (Kind::NotFound, Code::Object),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (Kind::Unauthorized, Code::Token),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            (Kind::Overloaded, Code::QueueFull)
        }
        _ if status.is_client_error() => (Kind::Invalid, Code::Request),
        _ => (Kind::Platform, Code::Internal),
    };
    let title = status.canonical_reason().unwrap_or_default().to_owned();
    let problem = Problem {
        uri: "about:blank".into(),
        detail: format!("object `{key}`: {}", title.to_lowercase()),
        title,
        status: status.as_u16(),
        kind,
        code,
        retryable: matches!(kind, Kind::Overloaded | Kind::Platform),
    };
    Error::Refused { problem: Box::new(problem), retry_after: None, invocation: None }
}
