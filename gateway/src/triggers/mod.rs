//! Events on their way to invocations: what each fires, held or accepted, and passed on where another gateway has the journal
//! shard that keeps their keys.
//!
//! An event run is an asynchronous invocation whose idempotency key is made of trigger and event
//! ([ADR 8](../../../docs/adr/0008-triggers.md)), so what is promised of those holds for it. What is due by time (batches, schedules,
//! listings) is the [`runner`]'s part.

mod feeds;
mod fire;
mod follow;
mod listing;
mod queue;
mod runner;
mod stream;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use fanfold_protocol::{
    Code, Error, FunctionName, Kind, limit,
    rest::{EventOutcome, ListingView, ObjectView, TroubleView},
    trigger::{Change, Source},
};
use fanfold_triggers::{CloudEvent, ObjectChange, filter};
use futures::{StreamExt as _, TryStreamExt as _};

use crate::{
    clock,
    cluster::forward,
    owner::NewJob,
    registry::{Callable, Trigger},
    shared::Shared,
};

pub(crate) use feeds::check;
pub(crate) use runner::Runner;
pub(crate) use view::{view, views};

/// Runs of one request that are accepted at once: they share writes of the journal.
const ACCEPTS_AT_ONCE: usize = 512;

/// What a gateway remembers of triggers, for people.
#[derive(Default)]
pub(crate) struct Seen(Mutex<BTreeMap<FunctionName, Figures>>);

/// Since the start of this process.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    /// Events that fired it.
    pub(crate) events: u64,
    /// Runs that were asked for; a repeated event asks again.
    pub(crate) runs: u64,
    /// What went wrong last with events that its runs emitted.
    pub(crate) trouble: Option<TroubleView>,
    /// Its last listing.
    pub(crate) listing: Option<ListingView>,
    /// Whether another one is under way.
    listing_now: bool,
}

impl Seen {
    fn change(&self, trigger: &FunctionName, change: impl FnOnce(&mut Figures)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(trigger) {
            Some(figures) => change(figures),
            None => change(all.entry(trigger.clone()).or_default()),
        }
    }

    /// Of one trigger.
    pub(crate) fn of(&self, trigger: &FunctionName) -> Figures {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(trigger).cloned().unwrap_or_default()
    }

    /// A trigger is gone.
    pub(crate) fn forget(&self, trigger: &FunctionName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(trigger);
    }
}

/// Takes events for all triggers; what they fire is accepted or held durably on return. For the gateway that has the shard with the
/// keys.
///
/// # Errors
/// `invalid` / `event`; those of accepting. Some of many events may have been taken then: sent again, they are known.
pub(crate) async fn take(shared: &Shared, events: Vec<CloudEvent>) -> Result<Vec<EventOutcome>, Error> {
    let catalog = shared.registry.catalog();
    let triggers: Vec<_> = catalog.triggers().values().filter(|trigger| fired_by_events(trigger)).collect();
    take_for(shared, &triggers, events).await
}

/// The same for some triggers.
async fn take_for(
    shared: &Shared,
    triggers: &[&Arc<Trigger>],
    events: Vec<CloudEvent>,
) -> Result<Vec<EventOutcome>, Error> {
    let (mut held, mut runs, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    let mut targets: BTreeMap<&FunctionName, Arc<Callable>> = BTreeMap::new();
    for event in events {
        let (event, object) = read(shared, event)?;
        for trigger in triggers {
            if trigger.definition().paused
                || filter::verdict(trigger.definition(), &event, object.as_ref()).is_err()
            {
                continue;
            }
            if trigger.definition().batch.is_some() {
                held.push(fire::held(trigger, &event, object.as_ref())?);
                outcomes.push(outcome(&event, trigger, None));
                continue;
            }
            let target = match targets.get(trigger.name()) {
                Some(target) => target,
                None => targets.entry(trigger.name()).or_insert(fire::target(shared, trigger).await?),
            };
            runs.push((fire::single(trigger, target, &event), event.id().to_owned(), *trigger));
        }
    }
    count(shared, held.iter().map(|held| &held.trigger), 0);
    count(shared, runs.iter().map(|(_, _, trigger)| trigger.name()), 1);
    let owner = shared.taker(true);
    owner.hold(held).await?;
    // Those that have an order among them are accepted one after the other.
    let accept = async |chain: Vec<Run<'_>>| {
        let mut accepted = Vec::with_capacity(chain.len());
        for (run, event, trigger) in chain {
            let invocation = Some(owner.accept(run).await?);
            let (trigger, why) = (trigger.name().clone(), None);
            accepted.push(EventOutcome { event, trigger, fires: true, why, invocation });
        }
        Ok::<_, Error>(accepted)
    };
    let accepted = futures::stream::iter(chains(runs)).map(accept).buffered(ACCEPTS_AT_ONCE);
    outcomes.extend(accepted.try_concat().await?);
    Ok(outcomes)
}

/// A run, the event that it is for, and the trigger.
type Run<'a> = (NewJob, String, &'a Arc<Trigger>);

/// Runs with the same ordering key together, in order; each other by itself.
fn chains(runs: Vec<Run<'_>>) -> Vec<Vec<Run<'_>>> {
    let mut chains: Vec<Vec<Run<'_>>> = Vec::with_capacity(runs.len());
    let mut known = HashMap::new();
    for run in runs {
        let ordering = run.0.fired.as_ref().and_then(|fired| Some((fired.trigger.clone(), fired.ordering?)));
        let chain = ordering.map(|ordering| *known.entry(ordering).or_insert(chains.len()));
        match chain.and_then(|index| chains.get_mut(index)) {
            Some(chain) => chain.push(run),
            None => chains.push(vec![run]),
        }
    }
    chains
}

fn count<'a>(shared: &Shared, triggers: impl Iterator<Item = &'a FunctionName>, runs: u64) {
    for trigger in triggers {
        shared.triggers.change(trigger, |figures| {
            figures.events += 1;
            figures.runs += runs;
        });
    }
}

/// What events would do, and why not.
///
/// # Errors
/// `invalid` / `event`.
pub(crate) fn try_out(shared: &Shared, events: Vec<CloudEvent>) -> Result<Vec<EventOutcome>, Error> {
    let catalog = shared.registry.catalog();
    let mut outcomes = Vec::new();
    for event in events {
        let (event, object) = read(shared, event)?;
        for trigger in catalog.triggers().values() {
            let fits = filter::verdict(trigger.definition(), &event, object.as_ref());
            let paused = || Err(String::from("it is paused"));
            let why = if trigger.definition().paused { fits.and_then(|()| paused()) } else { fits }.err();
            outcomes.push(outcome(&event, trigger, why));
        }
    }
    Ok(outcomes)
}

fn outcome(event: &CloudEvent, trigger: &Trigger, why: Option<String>) -> EventOutcome {
    let (event, trigger) = (event.id().to_owned(), trigger.name().clone());
    EventOutcome { event, trigger, fires: why.is_none(), why, invocation: None }
}

/// An event one run further, and the change of an object that it tells of.
fn read(shared: &Shared, event: CloudEvent) -> Result<(CloudEvent, Option<ObjectChange>), Error> {
    filter::read(own(shared, event)?.hop()?)
}

/// An event of an object in the platform's own bucket, told by its store, is that of one of the platform's own objects. Its version is
/// left out, because nobody else who tells of these objects knows it.
fn own(shared: &Shared, event: CloudEvent) -> Result<CloudEvent, Error> {
    if !event.attribute("source").is_some_and(|source| source.starts_with("s3://")) {
        return Ok(event);
    }
    let Some(told) = ObjectChange::of(&event)? else { return Ok(event) };
    match told.bucket.as_deref().and_then(|bucket| shared.store.object_key(bucket, &told.key)) {
        Some(key) => {
            let own = ObjectChange { key: key.to_owned(), bucket: None, version: None, ..told };
            Ok(own.event()?.on_the_way_of(&event))
        }
        None => Ok(event),
    }
}

/// Whether it takes events that come to the platform, and not only those of a source of its own.
fn fired_by_events(trigger: &Trigger) -> bool {
    let definition = trigger.definition();
    matches!(definition.kind, Source::Objects | Source::Event | Source::Job) && definition.queue.is_none()
}

/// The event of a change of the platform's own objects; `None` where no trigger waits for it, which costs nothing.
fn change_event(shared: &Shared, object: &ObjectView, change: Change) -> Option<CloudEvent> {
    let catalog = shared.registry.catalog();
    if catalog.triggers().is_empty() {
        return None;
    }
    let told = ObjectChange {
        bucket: None,
        key: object.key.clone(),
        change,
        bytes: (change == Change::Created).then_some(object.bytes),
        etag: Some(object.etag.clone()),
        version: None,
        sequencer: None,
        at_ms: clock::now_ms(),
    };
    // A key that can be no attribute of an event fires nothing.
    let event = told.event().ok()?;
    let fits = |trigger: &Trigger| filter::verdict(trigger.definition(), &event, Some(&told)).is_ok();
    let wanted = catalog.triggers().values().any(|trigger| fired_by_events(trigger) && fits(trigger));
    wanted.then_some(event)
}

/// Tells of a change of the platform's own objects, made by this gateway. Where no trigger waits for it this costs nothing.
///
/// # Errors
/// What kept the event from being recorded: the change itself stands.
pub(crate) async fn object_changed(
    shared: &Shared,
    object: &ObjectView,
    change: Change,
) -> Result<(), Error> {
    let Some(event) = change_event(shared, object, change) else { return Ok(()) };
    let unrecorded = |error: Error| {
        let done = if change == Change::Created { "written" } else { "removed" };
        error.context(format_args!(
            "the object is {done}, but its event is not recorded; do it again, or the next listing of the trigger finds it"
        ))
    };
    let delivered = match forward::keys_elsewhere(shared) {
        None => take(shared, vec![event]).await.map(drop),
        Some(shard) => forward::post_events(shared, shard, &[event]).await,
    };
    delivered.map_err(unrecorded)
}

/// Refuses an event that is too long to wait for a batch.
fn too_long(bytes: usize) -> Error {
    let max = limit::HELD_EVENT_BYTES_MAX;
    let why = format!(
        "an event of {bytes} bytes is too long to wait for a batch: send at most {max}, or put its data in as an object"
    );
    Error::new(Kind::Invalid, Code::BodyTooLarge, why)
}
