//! `Idempotency-Key`: one stored answer per key and scope (method and path), for 24 hours.
//!
//! Asynchronous invocations and jobs carry their key into their own journal record. This is for the other POSTs: the
//! first request runs, its answer is journalled, repetitions get it back. Two requests with one key at once: the
//! second is refused and may try again.

use std::{
    collections::HashSet,
    future::Future,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use fanfold_protocol::{Code, Digest, Error, Kind, limit};
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};

use crate::{clock, owner::StoredAnswer, problem, shared::Shared};

/// The header.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The digest of scope and key of a request that carries one.
///
/// # Errors
/// `invalid` / `request` for an empty or overlong key.
pub(crate) fn key(method: &Method, path: &str, headers: &HeaderMap) -> Result<Option<Digest>, Error> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    if !(1..=limit::IDEMPOTENCY_KEY_BYTES_MAX).contains(&value.len()) {
        let why = format!(
            "Idempotency-Key has {} bytes: give 1 to {}",
            value.len(),
            limit::IDEMPOTENCY_KEY_BYTES_MAX
        );
        return Err(Error::invalid(why));
    }
    Ok(Some(Digest::of_parts(&[method.as_str().as_bytes(), path.as_bytes(), value.as_bytes()])))
}

/// Keys whose first request still runs.
#[derive(Default)]
pub(crate) struct Keys(Mutex<HashSet<Digest>>);

struct Claim<'a> {
    keys: &'a Keys,
    key: Digest,
}

impl Keys {
    fn claim(&self, key: Digest) -> Result<Claim<'_>, Error> {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return Ok(Claim { keys: self, key });
        }
        let why = "a request with this Idempotency-Key is still running: ask again for its answer";
        Err(Error::new(Kind::Conflict, Code::IdempotencyKey, why).retryable(true))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.keys.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// The stored answer of `key`, or that of `make`, which is then stored.
///
/// An error of `make` that may pass is not stored, so that the key can be tried again; a final one is.
///
/// # Errors
/// `conflict` / `idempotency-key` where the key was used for another request or is in use; those of `make` that may
/// pass; the journal's.
pub(crate) async fn once(
    shared: &Shared,
    key: Digest,
    request: Digest,
    make: impl Future<Output = Result<Answer, Error>>,
) -> Result<Answer, Error> {
    let _claim = shared.keys.claim(key)?;
    let keeper = shared.taker(true);
    if let Some(StoredAnswer { status, content_type, body, .. }) = keeper.answered(key, request).await? {
        return Ok(Answer { status, content_type, body });
    }
    let answer = match make.await {
        Ok(answer) if answer.body.len() > limit::INLINE_BYTES_MAX => Answer::of_error(&too_long()),
        Ok(answer) => answer,
        Err(error) if error.retryable => return Err(error),
        Err(error) => Answer::of_error(&error),
    };
    let Answer { status, content_type, body } = answer.clone();
    let stored = StoredAnswer { request, at_ms: clock::now_ms(), status, content_type, body };
    keeper.remember(key, stored).await?;
    Ok(answer)
}

/// What a keyed call is told whose answer cannot be kept.
pub(crate) fn too_long() -> Error {
    let max = limit::INLINE_BYTES_MAX;
    let why = format!(
        "the call was made, but its answer has over {max} bytes, more than is kept for an Idempotency-Key: call \
         asynchronously, or without a key"
    );
    Error::new(Kind::Limit, Code::OutputTooLarge, why)
}

/// What is kept of a response.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

impl Answer {
    fn of_error(error: &Error) -> Self {
        let (status, body) = problem::body(error);
        Self { status: status.as_u16(), content_type: problem::MEDIA_TYPE.to_owned(), body }
    }

    /// What is kept of a response with this head.
    pub(crate) fn new(head: &http::response::Parts, body: Bytes) -> Self {
        let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self { status: head.status.as_u16(), content_type: content_type.unwrap_or_default().to_owned(), body }
    }
}

/// A kept answer as a response.
pub(crate) fn response<B: From<Bytes>>(answer: Answer) -> Response<B> {
    let mut response = Response::new(B::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    if let Ok(value) = http::HeaderValue::try_from(answer.content_type)
        && !value.is_empty()
    {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

/// The JSON answer of `make`: with a key, made once and kept.
///
/// # Errors
/// Those of `make`, and those of [`once`].
pub(crate) async fn once_json<T: serde::Serialize>(
    shared: &Shared,
    key: Option<Digest>,
    body: &[u8],
    make: impl Future<Output = Result<(StatusCode, T), Error>>,
) -> Result<axum::response::Response, Error> {
    let answer = async {
        let (status, value) = make.await?;
        let body =
            serde_json::to_vec(&value).map_err(|e| Error::internal(format!("an answer is no JSON: {e}")))?;
        let content_type = String::from("application/json");
        Ok(Answer { status: status.as_u16(), content_type, body: body.into() })
    };
    let answer = match key {
        Some(key) => once(shared, key, Digest::of(body), answer).await?,
        None => answer.await?,
    };
    Ok(response(answer))
}
