//! How triggers are shown over REST.

use fanfold_protocol::{
    Error,
    rest::{JobView, TriggerRun, TriggerView},
};

use crate::{clock, owner, registry::Trigger, shared::Shared};

/// Runs that are shown of one trigger.
const RUNS_SHOWN: usize = 10;

/// One trigger, with its last runs.
///
/// # Errors
/// The owner's.
pub(crate) async fn view(shared: &Shared, trigger: &Trigger) -> Result<TriggerView, Error> {
    let owner = shared.taker(true);
    let states = owner.triggers().await?;
    let runs = owner.fired(trigger.name().clone(), RUNS_SHOWN).await?;
    Ok(TriggerView { runs: runs.into_iter().map(run).collect(), ..of(shared, trigger, &states) })
}

/// Several, without their runs.
///
/// # Errors
/// The owner's.
pub(crate) async fn views<'a>(
    shared: &Shared,
    triggers: impl Iterator<Item = &'a Trigger>,
) -> Result<Vec<TriggerView>, Error> {
    let states = shared.taker(true).triggers().await?;
    Ok(triggers.map(|trigger| of(shared, trigger, &states)).collect())
}

fn of(shared: &Shared, trigger: &Trigger, states: &owner::Triggers) -> TriggerView {
    let record = &trigger.record;
    let cursor = states.cursors.get(&record.name).filter(|cursor| cursor.at_ms >= record.since_ms);
    let waiting = states.waiting.get(&record.name);
    let unfinished = states.unfinished.get(&record.name);
    let schedule = trigger.schedule.as_ref().filter(|_| !record.definition.paused);
    let figures = shared.triggers.of(&record.name);
    TriggerView {
        name: record.name.clone(),
        definition: record.definition.clone(),
        manifest_of: record.manifest_of.clone(),
        created_at_ms: record.created_at_ms,
        next_at_ms: schedule.and_then(|schedule| schedule.next(clock::now_ms())),
        last_at_ms: cursor.map(|cursor| cursor.at_ms),
        waiting: waiting.map_or(0, |waiting| waiting.events),
        waiting_since_ms: waiting.map(|waiting| waiting.since_ms),
        unfinished: unfinished.map_or(0, |unfinished| unfinished.runs as u64),
        unfinished_since_ms: unfinished.map(|unfinished| unfinished.since_ms),
        runs: Vec::new(),
        listing: figures.listing,
        trouble: figures.trouble,
    }
}

fn run(job: JobView) -> TriggerRun {
    let JobView { id, state, accepted_at_ms, ended_at_ms, error, .. } = job;
    TriggerRun { id, state, accepted_at_ms, ended_at_ms, error }
}
