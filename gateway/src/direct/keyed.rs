//! Synchronous calls of HTTP functions and programs with an `Idempotency-Key`: run directly, and the answer kept.
//!
//! What is kept of an answer is its status, media type and body; every repetition, and the first answer too, has
//! just these. (Task functions run as recorded jobs instead: see [`super::scheduled`].)

use fanfold_protocol::{Code, Digest, Error, limit};
use http::{Request, Response, header};
use hyper::body::Incoming;

use super::call::{Found, run};
use crate::{
    body::{self, Bounds, Fault, Outbound},
    idempotency::{self, Answer},
};

/// Answers from what is stored under `key`, or runs the function and stores its answer.
pub(super) async fn call(
    found: Found,
    request: Request<Incoming>,
    key: Digest,
) -> Result<Response<Outbound>, Error> {
    let shared = std::sync::Arc::clone(found.flight.shared());
    let (parts, incoming) = request.into_parts();
    let bytes_max = found.input_bytes_max().min(limit::INPUT_BYTES_MAX);
    let (body, _) = body::bounded(incoming, Bounds { bytes: bytes_max, idle: shared.config.body_timeout })?;
    let input = body::collect(body, bytes_max).await?;

    let query = parts.uri.query().unwrap_or_default();
    let media_type = parts.headers.get(header::CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    let digest = Digest::of_parts(&[query.as_bytes(), media_type, &input]);
    let make = async move {
        let (head, body) = run(found, parts, body::whole(input), Fault::default()).await?.into_parts();
        let body = body::collect(body, limit::INLINE_BYTES_MAX as u64).await;
        let body = body.map_err(|error| match error.code {
            Code::BodyTooLarge => idempotency::too_long(),
            _ => error,
        })?;
        Ok(Answer::new(&head, body))
    };
    idempotency::once(&shared, key, digest, make).await.map(idempotency::response)
}
