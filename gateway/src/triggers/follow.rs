//! What follows from a job's end is worked out and done: its event is taken by triggers of jobs, events that its result emits are
//! taken as any, and items of its batch that it says failed become jobs of their own.
//!
//! All of it has keys, so doing it again after a crash changes nothing, and only then is it recorded as done. Each gateway does it
//! for the jobs of its shards.

use fanfold_protocol::{
    Code, Error, JobId, Kind, limit,
    record::Fired,
    rest::TroubleView,
    trigger::{Change, On},
};
use fanfold_triggers::{
    CloudEvent,
    answer::{self, FailedItem},
    job::JobEnd,
};
use futures::{StreamExt as _, stream};

use super::{change_event, take};
use crate::{
    clock,
    cluster::forward,
    owner::{Ending, Owner, Written},
    shared::Shared,
};

/// Jobs whose ends are worked on at once: their records share writes of the journal.
const AT_ONCE: usize = 64;

/// Has objects that tasks wrote taken as events. What cannot be taken is left to listings.
pub(super) async fn wrote(shared: &Shared, written: Vec<Written>) -> Result<(), Error> {
    let mut events = Vec::with_capacity(written.len());
    for Written { object, hops } in written {
        if hops >= limit::HOPS_MAX {
            tracing::warn!(key = %object.key, hops, "a run that so many led to wrote an object: it fires nothing, since that looks like a loop");
            continue;
        }
        events.extend(change_event(shared, &object, Change::Created).map(|event| event.after(hops)));
    }
    if events.is_empty() {
        return Ok(());
    }
    deliver(shared, events).await
}

/// Does what follows from the ends of these jobs; the first failure, after which all of them are due again.
pub(super) async fn all(shared: &Shared, owner: &Owner, jobs: &[JobId]) -> Result<(), Error> {
    let ends: Vec<_> = jobs.iter().map(|job| one(shared, owner, *job)).collect();
    let done = stream::iter(ends).buffer_unordered(AT_ONCE);
    let results: Vec<Result<(), Error>> = done.collect().await;
    results.into_iter().collect()
}

async fn one(shared: &Shared, owner: &Owner, job: JobId) -> Result<(), Error> {
    let Some(ending) = owner.ending(job).await? else { return Ok(()) };
    if let Some(event) = end(shared, &ending)? {
        deliver(shared, vec![event]).await.or_else(|error| give_up(shared, &ending, error))?;
    }
    if let Some(fired) = ending.accepted.fired.as_deref().filter(|_| ending.result.is_ok())
        && (fired.says.partial || fired.says.emits.is_some())
    {
        said(shared, owner, &ending, fired).await?;
    }
    owner.followed(job).await
}

/// The event of a job's end, where a trigger waits for those of its function.
fn end(shared: &Shared, ending: &Ending) -> Result<Option<CloudEvent>, Error> {
    let accepted = &ending.accepted;
    let waited_for = shared.registry.catalog().is_waited_for(&accepted.name);
    let Some(outcome) = ending.outcome.filter(|_| waited_for) else { return Ok(None) };
    let end = JobEnd {
        job: accepted.job,
        function: &accepted.name,
        version: accepted.version,
        accepted_at_ms: accepted.at_ms,
        ended_at_ms: ending.ended_at_ms,
        attempts: ending.attempts,
        error: ending.result.as_ref().err().filter(|_| outcome == On::Failed),
        hops: accepted.fired.as_ref().map_or(0, |fired| fired.hops),
    };
    end.event().map(Some)
}

/// Does what the answer says. One that cannot be read is no reason to try for ever.
async fn said(shared: &Shared, owner: &Owner, ending: &Ending, fired: &Fired) -> Result<(), Error> {
    let answer = match owner.answer_bytes(ending).await {
        Err(error) if error.retryable => return Err(error),
        answer => answer,
    };
    if fired.says.partial {
        let count = fired.events.len();
        let failed = answer.clone().and_then(|answer| answer::failed(&answer, count));
        let failed = failed.unwrap_or_else(|error| {
            let all = |item| FailedItem { item, reason: error.message.to_string(), retryable: false };
            (0..count).map(all).collect()
        });
        single_out(owner, ending, failed).await?;
    }
    if let Some(emits) = &fired.says.emits {
        let events = answer.and_then(|answer| answer::emitted(&answer, emits));
        let events = events.map(|events| events.into_iter().map(|event| event.after(fired.hops)).collect());
        let delivered = match events {
            Ok(events) => deliver(shared, events).await,
            Err(error) => Err(error),
        };
        delivered.or_else(|error| give_up(shared, ending, error))?;
    }
    Ok(())
}

/// Items that failed: those that may succeed when tried again get a run of their own, where there were others beside them.
async fn single_out(owner: &Owner, ending: &Ending, failed: Vec<FailedItem>) -> Result<(), Error> {
    let many = ending.accepted.fired.as_ref().is_some_and(|fired| fired.events.len() > 1);
    let item = |FailedItem { item, reason, retryable }| {
        let why =
            if reason.is_empty() { "the function says that this item failed".to_owned() } else { reason };
        let why = Error::new(Kind::Guest, Code::ErrorReturned, why);
        (item, (!retryable || !many).then_some(why))
    };
    owner.single_out(&ending.accepted, failed.into_iter().map(item).collect()).await
}

/// Has events taken here, or where the keys are.
async fn deliver(shared: &Shared, events: Vec<CloudEvent>) -> Result<(), Error> {
    match forward::keys_elsewhere(shared) {
        None => take(shared, events).await.map(drop),
        Some(shard) => forward::post_events(shared, shard, &events).await,
    }
}

/// What cannot be taken now or ever is told and let go; the rest is due again.
fn give_up(shared: &Shared, ending: &Ending, error: Error) -> Result<(), Error> {
    if error.kind != Kind::Invalid {
        return Err(error);
    }
    tracing::warn!(job = %ending.accepted.job, %error, "an event that followed from a job fires nothing");
    if let Some(fired) = &ending.accepted.fired {
        let trouble = TroubleView { at_ms: clock::now_ms(), error };
        shared.triggers.change(&fired.trigger, |figures| figures.trouble = Some(trouble));
    }
    Ok(())
}
