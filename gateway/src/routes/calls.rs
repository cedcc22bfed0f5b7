//! How calls are documented. They are served before the router ([`crate::direct`]), so these bodies never run.
#![allow(dead_code, reason = "only their documentation is used")]

use fanfold_protocol::rest::{AcceptedView, Problem};

/// Call a function and wait for its answer.
///
/// Body in, body out. A program's arguments are the query parameters `arg`, in order. Every answer names the version,
/// `cold` or `warm`, the invocation's id, and in `Server-Timing` the milliseconds of `queue`, `compile`,
/// `instantiate` and `run`. `traceparent` is given back. When the client goes away, the function is stopped. With
/// `Prefer: respond-async` it is the same as `POST /async-function/{name}`.
#[utoipa::path(
    post, path = "/function/{name}", tag = "calls",
    params(
        ("name" = String, Path, description = "`name`, `name:alias` or `name:version`"),
        ("arg" = Option<Vec<String>>, Query, description = "Arguments of a program"),
        ("entry" = Option<String>, Query, description = "Which entry of a task function"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repetitions get the first answer, for 24 h"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`"),
    ),
    request_body(content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The function's answer; an HTTP function chooses its own status",
         content_type = "application/octet-stream",
         headers(
            ("fanfold-version" = String, description = "Digest of the version that ran"),
            ("fanfold-start" = String, description = "`cold` or `warm`"),
            ("fanfold-invocation" = String, description = "The call's id, under which its logs can be read for a while"),
            ("Server-Timing" = String, description = "`queue`, `compile`, `instantiate`, `run`, in milliseconds"),
         )),
        (status = 202, description = "Accepted (`Prefer: respond-async`)", body = AcceptedView),
        (status = 404, description = "No such function, version or alias", body = Problem),
        (status = 405, description = "Not a POST", body = Problem),
        (status = 408, description = "The body stood still", body = Problem),
        (status = 409, description = "The Idempotency-Key was used for another request or is in use", body = Problem),
        (status = 413, description = "The body is too large", body = Problem),
        (status = 429, description = "The function's queue is full; see Retry-After", body = Problem),
        (status = 502, description = "The function failed or went over a limit", body = Problem),
        (status = 504, description = "The function took too long", body = Problem),
    ),
)]
async fn call() {}

/// Any request to an HTTP function, with any method. It sees `/{path}` and the query, and where it hangs in
/// `x-forwarded-prefix`.
#[utoipa::path(
    get, path = "/function/{name}/{path}", tag = "calls",
    params(
        ("name" = String, Path, description = "`name`, `name:alias` or `name:version`"),
        ("path" = String, Path, description = "Any path"),
    ),
    responses(
        (status = "default", description = "The function's answer, or a problem as for POST /function/{name}"),
    ),
)]
async fn call_path() {}

/// Accept a call and run it later.
#[utoipa::path(
    post, path = "/async-function/{name}", tag = "calls",
    params(
        ("name" = String, Path, description = "`name`, `name:alias` or `name:version`"),
        ("entry" = Option<String>, Query, description = "Which entry of a task function"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repetitions are the same invocation, for 24 h"),
    ),
    request_body(content_type = "application/octet-stream", description = "At most 8 MiB"),
    responses(
        (status = 202, description = "It is journalled: it will run, or end up in the dead-letter list",
         body = AcceptedView, headers(("Location" = String, description = "Where to ask for it"))),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 413, body = Problem),
        (status = 429, body = Problem),
    ),
)]
async fn call_async() {}

#[derive(utoipa::OpenApi)]
#[openapi(paths(call, call_path, call_async))]
pub(super) struct Calls;
