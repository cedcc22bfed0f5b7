//! What a trigger's runs are made of: target, input and key.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use fanfold_protocol::{
    Digest, Error,
    function::FunctionRef,
    record::{Fired, HeldEvent, Says},
    trigger::{Input, Trigger as Definition},
};
use fanfold_triggers::{CloudEvent, Data, ObjectChange, event, manifest};

use super::too_long;
use crate::{
    clock,
    owner::{BATCH_TYPE, NewJob},
    registry::{Callable, Trigger},
    shared::Shared,
};

const EVENT_TYPE: &str = "application/cloudevents+json";
const BYTES: &str = "application/octet-stream";
const JSON: &str = "application/json";
/// The type of the events of schedules.
const SCHEDULED: &str = "dev.fanfold.schedule";

/// What a trigger calls now.
///
/// # Errors
/// `not-found` / `function` or `version`.
pub(super) async fn target(shared: &Shared, trigger: &Trigger) -> Result<Arc<Callable>, Error> {
    resolve(shared, &trigger.definition().target()?)
        .await
        .map_err(|error| error.context(format_args!("trigger `{}`", trigger.name())))
}

async fn resolve(shared: &Shared, target: &FunctionRef) -> Result<Arc<Callable>, Error> {
    shared.registry.find(target.name.as_str(), target.selector.as_deref()).await
}

/// The run of one event.
pub(super) fn single(trigger: &Trigger, target: &Callable, event: &CloudEvent) -> NewJob {
    let (input, content_type) = match trigger.definition().input {
        // Of a single event there is no manifest.
        Input::Event | Input::Manifest => (event.to_json().to_string().into(), EVENT_TYPE),
        Input::Data => {
            let plain = if matches!(event.data, Data::Bytes(_)) { BYTES } else { JSON };
            (event.data_bytes(), event.attribute("datacontenttype").unwrap_or(plain))
        }
    };
    let traceparent = event.attribute("traceparent").map(str::to_owned);
    let fired = Fired { hops: event.hops(), ordering: ordering(trigger, event), ..fired(trigger) };
    let run = run(trigger, target, key(trigger, event), fired, input, content_type);
    NewJob { traceparent, ..run }
}

/// The run of a scheduled time.
///
/// # Errors
/// `invalid` / `event`, which no trigger's name and no time leads to.
pub(super) fn scheduled(trigger: &Trigger, target: &Callable, at_ms: u64) -> Result<NewJob, Error> {
    let time = event::timestamp(at_ms);
    let attributes = [
        ("specversion", event::SPECVERSION.to_owned()),
        ("id", time.clone()),
        ("source", format!("/v1/triggers/{}", trigger.name())),
        ("type", SCHEDULED.to_owned()),
        ("time", time),
    ];
    let attributes: BTreeMap<_, _> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let event = CloudEvent::new(attributes, Data::None)?.hop()?;
    let (input, content_type) = match &trigger.definition().body {
        Some(body) => (body.to_string().into(), JSON),
        None => (event.to_json().to_string().into(), EVENT_TYPE),
    };
    let fired = Fired { hops: event.hops(), scheduled_ms: Some(at_ms), ..fired(trigger) };
    Ok(run(trigger, target, key(trigger, &event), fired, input, content_type))
}

/// An event that shall wait for its batch.
///
/// # Errors
/// `invalid` / `body-too-large`.
pub(super) fn held(
    trigger: &Trigger,
    event: &CloudEvent,
    object: Option<&ObjectChange>,
) -> Result<HeldEvent, Error> {
    let json = event.to_json().to_string();
    if json.len() > fanfold_protocol::limit::HELD_EVENT_BYTES_MAX {
        return Err(too_long(json.len()));
    }
    let definition = trigger.definition();
    Ok(HeldEvent {
        trigger: trigger.name().clone(),
        function: definition.function.clone(),
        entry: definition.entry.clone(),
        key: key(trigger, event),
        at_ms: clock::now_ms(),
        bytes: object.and_then(|object| object.bytes).unwrap_or(0),
        event: json.into(),
        hops: event.hops(),
        input: definition.input,
        says: says(definition),
    })
}

/// The run of a batch, of which all events call the same.
///
/// # Errors
/// `not-found` / `function` or `version`; `invalid` for a batch of none.
pub(super) async fn batch(shared: &Shared, events: &[Arc<HeldEvent>]) -> Result<NewJob, Error> {
    let Some(first) = events.first() else { return Err(Error::internal("a batch has no events")) };
    let target = resolve(shared, &first.function.parse()?).await?;
    let keys: Vec<Digest> = events.iter().map(|held| held.key).collect();
    let parts: Vec<&[u8]> = keys.iter().map(|key| key.0.as_slice()).collect();
    let key = Digest::of_parts(&parts);
    let (input, content_type) = match first.input {
        Input::Manifest => (table(events)?, manifest::MEDIA_TYPE),
        Input::Event | Input::Data => (list(events), BATCH_TYPE),
    };
    let fired = Fired {
        trigger: first.trigger.clone(),
        scheduled_ms: None,
        events: keys,
        hops: events.iter().map(|held| held.hops).max().unwrap_or(0),
        ordering: None,
        says: first.says.clone(),
    };
    Ok(NewJob {
        function: Arc::clone(&target.version),
        entry: first.entry.clone(),
        input,
        content_type: content_type.to_owned(),
        idempotency: Some((key, key)),
        traceparent: None,
        batch: false,
        fired: Some(Box::new(fired)),
    })
}

/// The events of a batch as a JSON list.
fn list(events: &[Arc<HeldEvent>]) -> Bytes {
    let mut list = Vec::with_capacity(events.iter().map(|held| held.event.len() + 1).sum::<usize>() + 1);
    for (index, held) in events.iter().enumerate() {
        list.push(if index == 0 { b'[' } else { b',' });
        list.extend_from_slice(&held.event);
    }
    list.push(b']');
    list.into()
}

/// The objects that the events of a batch tell of as a table.
fn table(events: &[Arc<HeldEvent>]) -> Result<Bytes, Error> {
    let read = |held: &Arc<HeldEvent>| {
        let value = serde_json::from_slice(&held.event);
        CloudEvent::from_json(value.map_err(|e| Error::internal(format!("a held event is no JSON: {e}")))?)
    };
    manifest::write(&events.iter().map(read).collect::<Result<Vec<_>, _>>()?)
}

/// What a trigger says of its runs.
fn says(definition: &Definition) -> Says {
    let Definition { emits, concurrency, retry, .. } = definition;
    let partial = definition.batch.is_some_and(|batch| batch.partial);
    Says { partial, emits: emits.clone(), concurrency: *concurrency, retry: *retry }
}

/// The ordering key of an event. One without the attribute has none, and waits for nobody.
fn ordering(trigger: &Trigger, event: &CloudEvent) -> Option<Digest> {
    let value = event.attribute(trigger.definition().ordering_key.as_deref()?)?;
    Some(Digest::of_parts(&[b"ordering", value.as_bytes()]))
}

/// A run of the trigger that has no batch: nothing of its answer is about items.
fn fired(trigger: &Trigger) -> Fired {
    let says = Says { partial: false, ..says(trigger.definition()) };
    Fired {
        trigger: trigger.name().clone(),
        scheduled_ms: None,
        events: Vec::new(),
        hops: 0,
        ordering: None,
        says,
    }
}

fn run(
    trigger: &Trigger,
    target: &Callable,
    key: Digest,
    fired: Fired,
    input: Bytes,
    content_type: &str,
) -> NewJob {
    NewJob {
        function: Arc::clone(&target.version),
        entry: trigger.definition().entry.clone(),
        input,
        content_type: content_type.to_owned(),
        // Two tellings of one event may differ in what is no part of its identity, so the key stands for the request, too.
        idempotency: Some((key, key)),
        traceparent: None,
        batch: false,
        fired: Some(Box::new(fired)),
    }
}

/// The idempotency key of what an event makes a trigger do.
fn key(trigger: &Trigger, event: &CloudEvent) -> Digest {
    let created = trigger.record.created_at_ms.to_be_bytes();
    Digest::of_parts(&[b"trigger", trigger.name().as_str().as_bytes(), &created, &event.identity().0])
}
