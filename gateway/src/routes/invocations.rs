//! `/v1/invocations`: state, output and logs of what was accepted, and cancelling it.

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::{
    Code, Error, JobId,
    rest::{JobView, Page, Problem},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

use super::{
    Answer, Gateway,
    extract::{Paging, Params, Segments},
    follow, mirrored,
};
use crate::idempotency::{self, once_json};

/// List invocations and jobs, newest first.
#[utoipa::path(
    get, path = "/v1/invocations", tag = "invocations", params(Paging),
    responses((status = 200, body = Page<JobView>)),
)]
pub(super) async fn list(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Params(paging): Params<Paging>,
) -> Answer<Json<Page<JobView>>> {
    Ok(Json(shared.jobs(&uri, &headers, paging.after()?, paging.limit(), false).await?))
}

/// How long to wait.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Answer when it has ended, but after this time at the latest: `500ms`, `30s` or `1m`, at most one minute.
    wait: Option<String>,
}

/// State of an invocation; with `wait`, once it has ended.
#[utoipa::path(
    get, path = "/v1/invocations/{id}", tag = "invocations",
    params(("id" = JobId, Path, description = "The invocation"), Wait),
    responses((status = 200, body = JobView), (status = 404, body = Problem)),
)]
pub(super) async fn status(
    State(shared): Gateway,
    Segments(id): Segments<String>,
    Params(Wait { wait }): Params<Wait>,
) -> Answer<Json<JobView>> {
    let id: JobId = id.parse()?;
    Ok(Json(match wait {
        Some(time) if shared.owner(id.shard()).is_ok() => follow::wait(&shared, id, duration(&time)?).await?,
        _ => mirrored::view(&shared, id).await?,
    }))
}

/// The output of an invocation that succeeded.
#[utoipa::path(
    get, path = "/v1/invocations/{id}/output", tag = "invocations",
    params(("id" = JobId, Path, description = "The invocation")),
    responses(
        (status = 200, description = "The bytes, of the type the function gave", content_type = "application/octet-stream"),
        (status = 404, body = Problem),
        (status = 409, description = "It has not ended yet: ask again", body = Problem),
        (status = "default", description = "It failed: its own error", body = Problem),
    ),
)]
pub(super) async fn output(State(shared): Gateway, Segments(id): Segments<String>) -> Answer<Response> {
    let id: JobId = id.parse()?;
    let (kind, bytes, body) = mirrored::output(&shared, id).await?;
    let kind = HeaderValue::from_static(kind);
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_LENGTH, HeaderValue::from(bytes))];
    Ok((headers, Body::new(body)).into_response())
}

/// Whether to follow.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Logs {
    /// Go on until the invocation has ended.
    #[serde(default)]
    follow: bool,
}

/// Log lines as NDJSON: `{"at_us": …, "stream": …, "line": …}`. Those of recent synchronous calls too, by the id in
/// their `fanfold-invocation` header.
#[utoipa::path(
    get, path = "/v1/invocations/{id}/logs", tag = "invocations",
    params(("id" = JobId, Path, description = "The invocation"), Logs),
    responses(
        (status = 200, description = "Lines", content_type = "application/x-ndjson"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn logs(
    State(shared): Gateway,
    Segments(id): Segments<String>,
    Params(Logs { follow }): Params<Logs>,
) -> Answer<Response> {
    let id: JobId = id.parse()?;
    let body = match shared.recent_logs.get(id) {
        Some(lines) => Body::from(lines),
        None if follow => {
            let views = shared.owner(id.shard())?.watch(id).await?;
            Body::from_stream(follow::logs(shared, id, views))
        }
        None => Body::from(shared.owner(id.shard())?.logs(id, 0).await?),
    };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Cancel an invocation or job. One that has ended stays as it is.
#[utoipa::path(
    post, path = "/v1/invocations/{id}/cancel", tag = "invocations",
    params(
        ("id" = JobId, Path, description = "The invocation"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repetitions get the first answer, for 24 h"),
    ),
    responses((status = 200, body = JobView), (status = 404, body = Problem), (status = 409, body = Problem)),
)]
pub(super) async fn cancel(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Segments(id): Segments<String>,
) -> Answer<Response> {
    let id: JobId = id.parse()?;
    let key = idempotency::key(&Method::POST, uri.path(), &headers)?;
    let make = async { Ok((StatusCode::OK, shared.owner(id.shard())?.cancel(id).await?)) };
    Ok(once_json(&shared, key, &[], make).await?)
}

/// A time such as `30s`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, Error> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor_ms = match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let ms = factor_ms.and_then(|factor: u64| number.parse::<u64>().ok()?.checked_mul(factor));
    ms.map(Duration::from_millis).ok_or_else(|| {
        let why = format!("wait=`{}` is no time: write `500ms`, `30s` or `1m`", text.escape_debug());
        Error::new(fanfold_protocol::Kind::Invalid, Code::Request, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("1500ms").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(duration("2").unwrap(), Duration::from_secs(2));
        assert_eq!(duration("1m").unwrap(), Duration::from_secs(60));
        for bad in ["", "s", "-1s", "1h", "1.5s", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
