//! Taking requests apart, with problems rather than plain text where they are malformed.

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use fanfold_protocol::{Error, limit};
use http::{HeaderMap, request::Parts};
use serde::de::DeserializeOwned;

use crate::{body, problem::Failure};

/// The path's segments, decoded.
pub(super) struct Segments<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(segments)) => Ok(Self(segments)),
            Err(error) => {
                Err(Error::invalid(format!("the path cannot be read: {}", error.body_text())).into())
            }
        }
    }
}

/// The query's parameters.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => {
                Err(Error::invalid(format!("the query cannot be read: {}", error.body_text())).into())
            }
        }
    }
}

/// The whole body, of at most [`limit::INPUT_BYTES_MAX`] bytes.
pub(super) struct Whole(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        Ok(Self(body::collect(request.into_body(), limit::INPUT_BYTES_MAX).await?))
    }
}

/// JSON of a body.
///
/// # Errors
/// `invalid` / `request` with the place of the mistake.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("the body is not the JSON expected here: {e}")))
}

/// Where a listing goes on and how much of it is wanted.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// The `next` of the page before.
    pub(super) after: Option<String>,
    /// Entries on the page: 1 to 1,000, 100 if not given.
    pub(super) limit: Option<usize>,
}

impl Paging {
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(100).clamp(1, limit::LIST_PAGE_MAX)
    }

    /// `after` as an id of what is listed.
    pub(super) fn after<T: std::str::FromStr<Err = Error>>(&self) -> Result<Option<T>, Error> {
        self.after.as_deref().map(str::parse).transpose()
    }
}

/// The value of a header, if it is text.
pub(super) fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
