//! Everything but calls: one module per noun of the REST interface, each handler documented where it stands.
//!
//! The router and `/openapi.json` come from the same list, so neither can have a route that the other lacks.

mod calls;
mod dead_letters;
mod deploy;
mod events;
mod executors;
mod extract;
mod follow;
mod functions;
mod invocations;
mod jobs;
mod mirrored;
mod objects;
mod openapi;
mod operations;
mod partitions;
mod triggers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::Uri};
use fanfold_protocol::{Code, Error, Kind};
use http::Method;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{problem::Failure, shared::Shared};

/// The media type of bytes of which nothing is known.
const BYTES: &str = "application/octet-stream";

/// What a handler answers.
type Answer<T> = Result<T, Failure>;
/// What a handler reaches.
type Gateway = State<Arc<Shared>>;

/// The router of everything but calls.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let (router, document) = documented().split_for_parts();
    let document = Arc::new(openapi::finish(document));
    router
        .route("/openapi.json", axum::routing::get(async move || Json(Arc::clone(&document))))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(shared)
}

fn documented() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(functions::list))
        .routes(routes!(functions::describe, deploy::deploy, functions::remove))
        .routes(routes!(functions::set_alias))
        .routes(routes!(functions::roll_back))
        .routes(routes!(invocations::list))
        .routes(routes!(invocations::status))
        .routes(routes!(invocations::output))
        .routes(routes!(invocations::logs))
        .routes(routes!(invocations::cancel))
        .routes(routes!(jobs::list, jobs::start))
        .routes(routes!(jobs::status))
        .routes(routes!(jobs::events))
        .routes(routes!(jobs::graph))
        .routes(routes!(jobs::cost))
        .routes(routes!(partitions::read))
        .routes(routes!(partitions::lineage))
        .routes(routes!(objects::list))
        .routes(routes!(objects::put, objects::get, objects::head_only, objects::delete))
        .routes(routes!(triggers::list))
        .routes(routes!(triggers::describe, triggers::set, triggers::remove))
        .routes(routes!(events::post))
        .routes(routes!(executors::list))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show, dead_letters::remove))
        .routes(routes!(dead_letters::input))
        .routes(routes!(dead_letters::retry))
        .routes(routes!(operations::healthz))
        .routes(routes!(operations::readyz))
        .routes(routes!(operations::metrics))
}

async fn no_route(uri: Uri) -> Failure {
    let why = format!("there is nothing at {}: see /openapi.json", uri.path().escape_debug());
    Failure(Error::not_found(Code::Route, why))
}

async fn no_method(method: Method, uri: Uri) -> Failure {
    let why = format!("{} does not answer {method}: see /openapi.json", uri.path().escape_debug());
    Failure(Error::new(Kind::Invalid, Code::Method, why))
}
