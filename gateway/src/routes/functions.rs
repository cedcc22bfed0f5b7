//! `/v1/functions`: listing, describing, removing, aliases, rolling back. (Deploying: [`super::deploy`].)

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use bytes::Bytes;
use fanfold_protocol::{
    Error, FunctionName,
    rest::{AliasRequest, FunctionView, Page, Problem},
};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::{
    Answer, Gateway,
    extract::{Paging, Params, Segments, Whole, json},
};
use crate::{
    idempotency::{self, once_json},
    registry::Change,
    shared::Shared,
};

/// List functions in the order of their names.
#[utoipa::path(
    get, path = "/v1/functions", tag = "functions", params(Paging),
    responses((status = 200, body = Page<FunctionView>)),
)]
pub(super) async fn list(
    State(shared): Gateway,
    Params(paging): Params<Paging>,
) -> Answer<Json<Page<FunctionView>>> {
    let (after, limit) = (paging.after::<FunctionName>()?, paging.limit());
    let functions = shared.registry.catalog().functions();
    let mut rest =
        functions.iter().filter(|function| after.as_ref().is_none_or(|after| function.name > *after));
    let items: Vec<_> = rest.by_ref().take(limit).map(|function| function.view()).collect();
    let more = rest.next().is_some();
    let next = items.last().filter(|_| more).map(|last| last.name.to_string());
    Ok(Json(Page { items, next }))
}

/// Describe a function: its versions, newest first, and its aliases.
#[utoipa::path(
    get, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "The function")),
    responses((status = 200, body = FunctionView), (status = 404, body = Problem)),
)]
pub(super) async fn describe(
    State(shared): Gateway,
    Segments(name): Segments<String>,
) -> Answer<Json<FunctionView>> {
    Ok(Json(shared.registry.function(&name.parse()?).await?.view()))
}

/// Remove a function with all its versions and aliases. What was accepted before still runs.
#[utoipa::path(
    delete, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "The function")),
    responses((status = 204), (status = 404, body = Problem)),
)]
pub(super) async fn remove(State(shared): Gateway, Segments(name): Segments<String>) -> Answer<StatusCode> {
    shared.change(Change::Remove { name: name.parse()? }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Point an alias to one version, or to several by weight. An empty map removes the alias.
#[utoipa::path(
    post, path = "/v1/functions/{name}/aliases/{alias}", tag = "functions",
    params(
        ("name" = String, Path, description = "The function"),
        ("alias" = String, Path, description = "The alias: the same characters as a function's name, but no version"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repetitions get the first answer, for 24 h"),
    ),
    request_body = AliasRequest,
    responses((status = 200, body = FunctionView), (status = 400, body = Problem), (status = 404, body = Problem)),
)]
pub(super) async fn set_alias(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Segments((name, alias)): Segments<(String, String)>,
    Whole(body): Whole,
) -> Answer<Response> {
    let AliasRequest { weights } = json(&body)?;
    let (name, alias) = (name.parse::<FunctionName>()?, alias.parse()?);
    let change = Change::Alias { name: name.clone(), alias, weights };
    change_function(&shared, &uri, &headers, &body, name, change).await
}

/// Point `latest` to the version that was deployed before the one it points to.
#[utoipa::path(
    post, path = "/v1/functions/{name}/rollback", tag = "functions",
    params(
        ("name" = String, Path, description = "The function"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repetitions get the first answer, for 24 h"),
    ),
    responses((status = 200, body = FunctionView), (status = 404, body = Problem), (status = 412, body = Problem)),
)]
pub(super) async fn roll_back(
    State(shared): Gateway,
    uri: Uri,
    headers: HeaderMap,
    Segments(name): Segments<String>,
) -> Answer<Response> {
    let name: FunctionName = name.parse()?;
    let change = Change::Rollback { name: name.clone() };
    change_function(&shared, &uri, &headers, &Bytes::new(), name, change).await
}

/// Makes a change, once per key, and shows the function as it then is.
async fn change_function(
    shared: &Arc<Shared>,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
    name: FunctionName,
    change: Change,
) -> Answer<Response> {
    let key = idempotency::key(&Method::POST, uri.path(), headers)?;
    let make = async {
        shared.change(change).await?;
        Ok::<_, Error>((StatusCode::OK, shared.registry.function(&name).await?.view()))
    };
    Ok(once_json(shared, key, body, make).await?)
}
