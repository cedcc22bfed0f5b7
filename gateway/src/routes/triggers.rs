//! `/v1/triggers`: rules from events to invocations.

use axum::{Json, extract::State};
use fanfold_protocol::{
    FunctionName,
    rest::{Page, Problem, TriggerView},
    trigger::{Trigger, refuse},
};
use http::StatusCode;

use super::{
    Answer, Gateway,
    extract::{Paging, Params, Segments, Whole, json},
};
use crate::{registry::Change, triggers};

/// List triggers in the order of their names.
#[utoipa::path(
    get, path = "/v1/triggers", tag = "triggers", params(Paging),
    responses((status = 200, body = Page<TriggerView>)),
)]
pub(super) async fn list(
    State(shared): Gateway,
    Params(paging): Params<Paging>,
) -> Answer<Json<Page<TriggerView>>> {
    let (after, limit) = (paging.after::<FunctionName>()?, paging.limit());
    let catalog = shared.registry.catalog();
    let later = |name: &FunctionName| after.as_ref().is_none_or(|after| name > after);
    let mut rest = catalog.triggers().values().filter(|trigger| later(trigger.name()));
    let page: Vec<_> = rest.by_ref().take(limit).map(AsRef::as_ref).collect();
    let next = page.last().filter(|_| rest.next().is_some()).map(|last| last.name().to_string());
    let items = triggers::views(&shared, page.into_iter()).await?;
    Ok(Json(Page { items, next }))
}

/// Describe a trigger: its definition, what waits, its next time, its last runs and listing.
#[utoipa::path(
    get, path = "/v1/triggers/{name}", tag = "triggers",
    params(("name" = String, Path, description = "The trigger")),
    responses((status = 200, body = TriggerView), (status = 404, body = Problem)),
)]
pub(super) async fn describe(
    State(shared): Gateway,
    Segments(name): Segments<String>,
) -> Answer<Json<TriggerView>> {
    let name = name.parse()?;
    let catalog = shared.registry.catalog();
    Ok(Json(triggers::view(&shared, catalog.trigger(&name)?).await?))
}

/// Add a trigger, or put another definition in place of the one it has. What it has fired and what it holds stays.
#[utoipa::path(
    put, path = "/v1/triggers/{name}", tag = "triggers",
    params(("name" = String, Path, description = "The trigger: the same characters as a function's name")),
    request_body = Trigger,
    responses(
        (status = 201, description = "A new trigger", body = TriggerView),
        (status = 200, description = "There was one", body = TriggerView),
        (status = 400, description = "The definition is wrong, or the trigger would fire itself", body = Problem),
        (status = 404, description = "There is no such function", body = Problem),
    ),
)]
pub(super) async fn set(
    State(shared): Gateway,
    Segments(name): Segments<String>,
    Whole(body): Whole,
) -> Answer<(StatusCode, Json<TriggerView>)> {
    let name: FunctionName = name.parse()?;
    let definition: Trigger = json(&body)?;
    if let Some(other) = definition.name.as_ref().filter(|other| **other != name) {
        return Err(refuse(format!("name is `{other}`, but the path says `{name}`: make them equal")).into());
    }
    definition.check()?;
    // Another gateway may have deployed the function a moment ago.
    let target = definition.target()?;
    shared.registry.find(target.name.as_str(), target.selector.as_deref()).await?;
    let known = shared.registry.catalog().trigger(&name).is_ok();
    shared.change(Change::SetTrigger { name: name.clone(), definition: Box::new(definition) }).await?;
    let catalog = shared.registry.catalog();
    let view = triggers::view(&shared, catalog.trigger(&name)?).await?;
    Ok((if known { StatusCode::OK } else { StatusCode::CREATED }, Json(view)))
}

/// Remove a trigger. What it fired goes on; events that wait for a batch fire now.
#[utoipa::path(
    delete, path = "/v1/triggers/{name}", tag = "triggers",
    params(("name" = String, Path, description = "The trigger")),
    responses((status = 204), (status = 404, body = Problem)),
)]
pub(super) async fn remove(State(shared): Gateway, Segments(name): Segments<String>) -> Answer<StatusCode> {
    let name: FunctionName = name.parse()?;
    shared.change(Change::RemoveTrigger { name: name.clone() }).await?;
    shared.triggers.forget(&name);
    if let Err(error) = shared.store.forget_seen(&name).await {
        tracing::warn!(trigger = %name, %error, "what its listings saw could not be removed; it is not read any more");
    }
    Ok(StatusCode::NO_CONTENT)
}
