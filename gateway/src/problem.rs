//! Errors as HTTP: one table from kind and code to a status, and the `application/problem+json` body (RFC 9457).
//!
//! | kind | status |
//! |---|---|
//! | `invalid` | 400; 405 method; 408 slow body; 413 too large; 422 a component that is refused |
//! | `unauthorized` | 401 token; 403 else |
//! | `not-found` | 404 |
//! | `conflict` | 409; 412 precondition |
//! | `overloaded` | 429; 503 draining, or no executor |
//! | `guest` | 502: the gateway is well, what it called is not |
//! | `limit` | 504 time; 422 a component that takes too much to compile; 502 else |
//! | `lost` | 503; 500 damaged data |
//! | `platform` | 500; 503 cancelled, or a process out of reach; 507 disk full |

use axum::response::IntoResponse;
use bytes::Bytes;
use fanfold_protocol::{Code, Error, Kind, limit, rest::Problem};
use http::{HeaderValue, Response, StatusCode, header};

use crate::body::Outbound;

/// The media type of every error.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// The status of an error.
pub(crate) fn status(kind: Kind, code: Code) -> StatusCode {
    match kind {
        Kind::Invalid => match code {
            Code::Method => StatusCode::METHOD_NOT_ALLOWED,
            Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Code::BodyTooLarge | Code::ComponentTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::NotWasm | Code::MalformedComponent | Code::MissingImports | Code::NoExport => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::BAD_REQUEST,
        },
        Kind::Unauthorized => match code {
            Code::Token => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        },
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => match code {
            Code::Precondition => StatusCode::PRECONDITION_FAILED,
            _ => StatusCode::CONFLICT,
        },
        Kind::Overloaded => match code {
            Code::Draining | Code::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::TOO_MANY_REQUESTS,
        },
        Kind::Guest => StatusCode::BAD_GATEWAY,
        Kind::Limit => match code {
            Code::Timeout | Code::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Code::Compile => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::BAD_GATEWAY,
        },
        Kind::Lost => match code {
            Code::Corrupt => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        },
        Kind::Platform => match code {
            Code::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            Code::Cancelled | Code::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// The status and body of an error.
pub(crate) fn body(error: &Error) -> (StatusCode, Bytes) {
    let status = status(error.kind, error.code);
    let problem = Problem {
        uri: String::from("about:blank"),
        title: status.canonical_reason().unwrap_or_default().to_owned(),
        status: status.as_u16(),
        detail: cut(&error.message).to_owned(),
        kind: error.kind,
        code: error.code,
        retryable: error.retryable,
    };
    // Serialising plain structs to memory cannot fail.
    (status, serde_json::to_vec(&problem).unwrap_or_default().into())
}

/// An error as a whole response.
pub(crate) fn response<B: From<Bytes>>(error: &Error) -> Response<B> {
    let (status, bytes) = body(error);
    let mut response = Response::new(B::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    match error.kind {
        // Queues are short and calls are too: a second is a good guess.
        Kind::Overloaded if error.retryable => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))
        }
        Kind::Unauthorized => headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        // The router answers other methods by itself; what comes here are calls.
        Kind::Invalid if error.code == Code::Method => {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"))
        }
        _ => None,
    };
    if error.kind == Kind::Platform && error.code != Code::Cancelled {
        tracing::error!(code = ?error.code, "{error}");
    }
    response
}

/// The error of an axum handler.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        response(&self.0)
    }
}

impl IntoResponse for Outbound {
    fn into_response(self) -> axum::response::Response {
        Response::new(axum::body::Body::new(self))
    }
}

/// A message within its limit, cut at a character.
fn cut(message: &str) -> &str {
    let end = (0..=limit::ERROR_MESSAGE_BYTES_MAX.min(message.len()))
        .rev()
        .find(|at| message.is_char_boundary(*at));
    &message[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_codes_have_their_status() {
        let check = |kind, code, wanted: u16| assert_eq!(status(kind, code), wanted, "{kind:?} {code:?}");
        check(Kind::Invalid, Code::Name, 400);
        check(Kind::Invalid, Code::BodyTooLarge, 413);
        check(Kind::Invalid, Code::MissingImports, 422);
        check(Kind::Invalid, Code::RequestTimeout, 408);
        check(Kind::Unauthorized, Code::Token, 401);
        check(Kind::NotFound, Code::Function, 404);
        check(Kind::Conflict, Code::IdempotencyKey, 409);
        check(Kind::Overloaded, Code::QueueFull, 429);
        check(Kind::Overloaded, Code::Draining, 503);
        check(Kind::Guest, Code::Trap, 502);
        check(Kind::Limit, Code::Timeout, 504);
        check(Kind::Limit, Code::OutOfMemory, 502);
        check(Kind::Lost, Code::ExecutorLost, 503);
        check(Kind::Platform, Code::DiskFull, 507);
        check(Kind::Platform, Code::Internal, 500);
    }

    #[test]
    fn a_problem_says_what_to_do_and_stays_small() {
        let error = Error::new(Kind::Overloaded, Code::QueueFull, "ä".repeat(1 << 20));
        let response: Response<Bytes> = response(&error);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let problem: Problem = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(
            (problem.kind, problem.code, problem.retryable),
            (Kind::Overloaded, Code::QueueFull, true)
        );
        assert!(problem.detail.len() <= limit::ERROR_MESSAGE_BYTES_MAX && problem.detail.starts_with('ä'));
    }
}
