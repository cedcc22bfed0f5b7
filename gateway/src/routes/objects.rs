//! `/v1/objects`: data in and out, streamed both ways.

use std::time::{Duration, UNIX_EPOCH};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::{
    Code, Error, Kind, limit,
    rest::{ObjectView, Page, Problem},
    trigger::Change,
    value::ObjectRange,
};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Answer, Gateway,
    extract::{Paging, Params, Segments, text},
};
use crate::{body, triggers};

/// Which objects.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Prefix {
    /// What their keys begin with.
    #[serde(default)]
    prefix: String,
}

/// List objects by key.
#[utoipa::path(
    get, path = "/v1/objects", tag = "objects", params(Prefix, Paging),
    responses((status = 200, body = Page<ObjectView>)),
)]
pub(super) async fn list(
    State(shared): Gateway,
    Params(Prefix { prefix }): Params<Prefix>,
    Params(paging): Params<Paging>,
) -> Answer<Json<Page<ObjectView>>> {
    let objects = shared.store.objects();
    Ok(Json(objects.list(&prefix, paging.after.as_deref(), paging.limit()).await?))
}

/// Write an object, replacing any. Readers see all of it or what was there before. Triggers that wait for it have their event
/// recorded before the answer.
#[utoipa::path(
    put, path = "/v1/objects/{*key}", tag = "objects",
    params(("key" = String, Path, description = "The key; its slashes stay slashes")),
    request_body(content_type = "application/octet-stream", description = "At most 5 GiB"),
    responses(
        (status = 201, body = ObjectView), (status = 400, body = Problem), (status = 413, body = Problem),
        (status = 507, body = Problem),
    ),
)]
pub(super) async fn put(
    State(shared): Gateway,
    Segments(key): Segments<String>,
    request: Request,
) -> Answer<Response> {
    let announced =
        text(request.headers(), header::CONTENT_LENGTH).and_then(|bytes| bytes.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > limit::OBJECT_BYTES_MAX) {
        let why = format!("an object has at most {} bytes: split it", limit::OBJECT_BYTES_MAX);
        return Err(Error::new(Kind::Invalid, Code::BodyTooLarge, why).into());
    }
    let stream = request.into_body().into_data_stream().map_err(|error| body::cause(&error));
    let object = shared.store.objects().put(&key, stream.boxed()).await?;
    triggers::object_changed(&shared, &object, Change::Created).await?;
    Ok((StatusCode::CREATED, head(&object)?, Json(object)).into_response())
}

/// Read an object or a range of it.
#[utoipa::path(
    get, path = "/v1/objects/{*key}", tag = "objects",
    params(
        ("key" = String, Path, description = "The key"),
        ("Range" = Option<String>, Header, description = "One range: `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT`"),
        ("If-Match" = Option<String>, Header, description = "The etag it must have"),
    ),
    responses(
        (status = 200, description = "The bytes", content_type = "application/octet-stream"),
        (status = 206, description = "The range's bytes", content_type = "application/octet-stream"),
        (status = 404, body = Problem),
        (status = 412, body = Problem),
        (status = 416, description = "The range begins past the end"),
    ),
)]
pub(super) async fn get(
    State(shared): Gateway,
    Segments(key): Segments<String>,
    headers: HeaderMap,
) -> Answer<Response> {
    let etag = text(&headers, header::IF_MATCH)
        .filter(|tag| *tag != "*")
        .map(|tag| tag.trim_matches('"').to_owned());
    let range = match text(&headers, header::RANGE).and_then(byte_range) {
        Some(ByteRange::Of(first, last)) => Some((first, last)),
        Some(ByteRange::Last(bytes)) => {
            let object = shared.store.objects().head(&key).await?;
            Some((object.bytes.saturating_sub(bytes), None))
        }
        None => None,
    };
    let (offset, length) =
        range.map_or((0, None), |(first, last)| (first, last.map(|last| last - first + 1)));
    let wanted = ObjectRange { key, etag, offset, length };
    let (object, stream) = shared.store.objects().get(&wanted).await?;
    let mut response = (head(&object)?, Body::from_stream(stream)).into_response();
    let bytes = match range {
        None => object.bytes,
        Some((first, last)) => {
            if first >= object.bytes {
                return Ok(unsatisfiable(object.bytes));
            }
            let last = last.unwrap_or(u64::MAX).min(object.bytes - 1);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let shown = header_value(format!("bytes {first}-{last}/{}", object.bytes))?;
            response.headers_mut().insert(header::CONTENT_RANGE, shown);
            last - first + 1
        }
    };
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}

/// An object's size, etag and age.
#[utoipa::path(
    head, path = "/v1/objects/{*key}", tag = "objects",
    params(("key" = String, Path, description = "The key")),
    responses((status = 200, description = "In the headers"), (status = 404)),
)]
pub(super) async fn head_only(State(shared): Gateway, Segments(key): Segments<String>) -> Answer<Response> {
    let object = shared.store.objects().head(&key).await?;
    let mut response = head(&object)?.into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(object.bytes));
    Ok(response)
}

/// Remove an object.
#[utoipa::path(
    delete, path = "/v1/objects/{*key}", tag = "objects",
    params(("key" = String, Path, description = "The key")),
    responses((status = 204), (status = 404, body = Problem)),
)]
pub(super) async fn delete(State(shared): Gateway, Segments(key): Segments<String>) -> Answer<StatusCode> {
    let object = shared.store.objects().delete(&key).await?;
    triggers::object_changed(&shared, &object, Change::Removed).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the headers say of an object.
fn head(object: &ObjectView) -> Result<HeaderMap, Error> {
    let modified = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(object.modified_at_ms));
    Ok(HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static(super::BYTES)),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::ETAG, header_value(format!("\"{}\"", object.etag))?),
        (header::LAST_MODIFIED, header_value(modified)?),
    ]))
}

fn header_value(text: String) -> Result<HeaderValue, Error> {
    HeaderValue::try_from(text)
        .map_err(|e| Error::internal(format!("an object's headers cannot be written: {e}")))
}

/// A range as a client asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ByteRange {
    /// First and last byte; without a last one, to the end.
    Of(u64, Option<u64>),
    /// So many bytes before the end, above 0.
    Last(u64),
}

/// The range of a header with one; other forms are ignored, as RFC 9110 allows.
fn byte_range(header: &str) -> Option<ByteRange> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    Some(match (first.trim(), last.trim()) {
        ("", last) => ByteRange::Last(last.parse().ok().filter(|bytes| *bytes > 0)?),
        (first, "") => ByteRange::Of(first.parse().ok()?, None),
        (first, last) => {
            let first = first.parse().ok()?;
            ByteRange::Of(first, Some(last.parse().ok().filter(|last| *last >= first)?))
        }
    })
}

fn unsatisfiable(bytes: u64) -> Response {
    let range = [(header::CONTENT_RANGE, format!("bytes */{bytes}"))];
    (StatusCode::RANGE_NOT_SATISFIABLE, range).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(byte_range("bytes=0-9"), Some(ByteRange::Of(0, Some(9))));
        assert_eq!(byte_range("bytes=5-"), Some(ByteRange::Of(5, None)));
        assert_eq!(byte_range("bytes=-5"), Some(ByteRange::Last(5)));
        for ignored in [
            "bytes=-0",
            "bytes=9-5",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=a-b",
            "bytes=0-18446744073709551616",
        ] {
            assert_eq!(byte_range(ignored), None, "{ignored}");
        }
    }
}
