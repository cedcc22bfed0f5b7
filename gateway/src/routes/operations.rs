//! What operators and their machines ask: alive, ready, figures.

use std::collections::BTreeMap;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use fanfold_protocol::{Code, Error, Kind, rest::Problem};
use http::header;

use super::{Answer, Gateway};
use crate::{
    clock,
    cluster::forward,
    metrics::Text,
    owner,
    shared::{Draining, Shared},
};

/// Whether the process answers. Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, description = "`ok`")))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether requests should be sent here. Needs no token.
#[utoipa::path(
    get, path = "/readyz", tag = "operations",
    responses((status = 200, description = "`ready`"), (status = 503, description = "Shutting down, or cannot go on", body = Problem)),
)]
pub(super) async fn readyz(State(shared): Gateway) -> Answer<&'static str> {
    if shared.draining.has_begun() {
        return Err(Draining::error().into());
    }
    // An owner that gave up (another gateway took its journal over) does not answer any more.
    if let Err(error) = shared.home().metrics().await {
        return Err(Error::new(Kind::Overloaded, Code::Draining, error.message).into());
    }
    Ok("ready\n")
}

/// Figures in the Prometheus text format.
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "Prometheus text, version 0.0.4", content_type = "text/plain")),
)]
pub(super) async fn metrics(State(shared): Gateway) -> Answer<Response> {
    let mut owner = shared.home().metrics().await?;
    for shard in shared.owners.adopted().iter() {
        owner.add(shard.owner.metrics().await?);
    }
    let mut text = Text::default();
    shared.metrics.write(&mut text);
    write_registry(&shared, &mut text);
    write_triggers(&shared, &mut text);
    if forward::keys_elsewhere(&shared).is_none() {
        write_lag(&shared.taker(true).triggers().await?, &mut text);
    }
    write_jobs(&owner, &mut text);
    write_executors(&owner, &mut text);
    write_store(&shared, &owner, &mut text);
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text.finish()).into_response())
}

fn write_registry(shared: &Shared, out: &mut Text) {
    let functions = shared.registry.catalog().functions();
    out.family("fanfold_functions", "gauge", "Deployed functions.");
    out.sample("", functions.len());
    out.family(
        "fanfold_direct_queue_length",
        "gauge",
        "Direct calls waiting for a place, over all functions.",
    );
    out.sample("", functions.iter().map(|function| u64::from(function.admission.waiting())).sum::<u64>());
}

fn write_triggers(shared: &Shared, out: &mut Text) {
    let catalog = shared.registry.catalog();
    let seen: Vec<_> = catalog.triggers().keys().map(|name| (name, shared.triggers.of(name))).collect();
    out.family("fanfold_trigger_events_total", "counter", "Events and scheduled times that fired a trigger.");
    for (name, figures) in &seen {
        out.sample(&format!("{{trigger=\"{name}\"}}"), figures.events);
    }
    out.family(
        "fanfold_trigger_runs_total",
        "counter",
        "Runs that a trigger asked for, repeated ones included.",
    );
    for (name, figures) in &seen {
        out.sample(&format!("{{trigger=\"{name}\"}}"), figures.runs);
    }
}

/// How far triggers are behind. Told by the gateway that keeps their events.
fn write_lag(states: &owner::Triggers, out: &mut Text) {
    let now_ms = clock::now_ms();
    let age = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
    out.family("fanfold_trigger_events_waiting", "gauge", "Events that wait for their batch.");
    for (name, waiting) in &states.waiting {
        out.sample(&format!("{{trigger=\"{name}\"}}"), waiting.events);
    }
    out.family("fanfold_trigger_runs_unfinished", "gauge", "Runs that were accepted and have not ended.");
    for (name, unfinished) in &states.unfinished {
        out.sample(&format!("{{trigger=\"{name}\"}}"), unfinished.runs);
    }
    let mut oldest: BTreeMap<_, u64> =
        states.unfinished.iter().map(|(name, unfinished)| (name, unfinished.since_ms)).collect();
    for (name, waiting) in &states.waiting {
        let since_ms = oldest.entry(name).or_insert(waiting.since_ms);
        *since_ms = waiting.since_ms.min(*since_ms);
    }
    out.family("fanfold_trigger_lag_seconds", "gauge", "Age of the oldest event or run that is not done.");
    for (name, since_ms) in oldest {
        out.sample(&format!("{{trigger=\"{name}\"}}"), age(since_ms));
    }
}

fn write_jobs(owner: &owner::Metrics, out: &mut Text) {
    out.family("fanfold_jobs", "gauge", "Invocations and jobs the owner knows, by state.");
    for (state, count) in [("waiting", owner.waiting), ("running", owner.running), ("ended", owner.kept)] {
        out.sample(&format!("{{state=\"{state}\"}}"), count);
    }
    out.family("fanfold_dead_letters", "gauge", "Invocations that were given up.");
    out.sample("", owner.dead_letters);
    out.family("fanfold_jobs_accepted_total", "counter", "Invocations and jobs accepted since the start.");
    out.sample("", owner.accepted);
    out.family(
        "fanfold_jobs_ended_total",
        "counter",
        "Invocations and jobs ended since the start, by result.",
    );
    let ended = [("succeeded", owner.succeeded), ("failed", owner.failed), ("cancelled", owner.cancelled)];
    for (result, count) in ended {
        out.sample(&format!("{{result=\"{result}\"}}"), count);
    }
    out.family("fanfold_attempts_total", "counter", "Attempts of tasks started since the start.");
    out.sample("", owner.attempts);
    out.family("fanfold_job_input_bytes", "gauge", "Bytes of inputs of unfinished invocations in memory.");
    out.sample("", owner.input_bytes);
}

fn write_executors(owner: &owner::Metrics, out: &mut Text) {
    type Figure = fn(&owner::ExecutorMetrics) -> u64;
    let figures: [(&'static str, &str, Figure); 5] = [
        ("fanfold_executor_cpu_millis", "Slots, in thousandths of a cpu.", |e| u64::from(e.offer.cpu_millis)),
        ("fanfold_executor_cpu_millis_free", "Slots not in use.", |e| u64::from(e.cpu_millis_free)),
        ("fanfold_executor_memory_bytes", "Memory for attempts.", |e| e.offer.memory),
        ("fanfold_executor_memory_free_bytes", "Memory not in use.", |e| e.memory_free),
        ("fanfold_executor_attempts", "Attempts on it now.", |e| e.attempts as u64),
    ];
    for (name, help, figure) in figures {
        out.family(name, "gauge", help);
        for executor in &owner.executors {
            out.sample(&format!("{{executor=\"{}\"}}", executor.executor), figure(executor));
        }
    }
}

fn write_store(shared: &Shared, owner: &owner::Metrics, out: &mut Text) {
    let requests = shared.store.requests();
    out.family("fanfold_store_requests_total", "counter", "Requests to the object store since the start.");
    let kinds = [
        ("get", requests.get),
        ("head", requests.head),
        ("put", requests.put),
        ("part", requests.part),
        ("list", requests.list),
        ("delete", requests.delete),
    ];
    for (kind, count) in kinds {
        out.sample(&format!("{{kind=\"{kind}\"}}"), count);
    }
    out.family("fanfold_journal_waiting", "gauge", "Journal records that are decided and not durable yet.");
    out.sample("", owner.journal.waiting);
    out.family("fanfold_journal_failing", "gauge", "Whether the journal cannot be written.");
    out.sample("", u8::from(owner.journal.failing.is_some()));
    out.family("fanfold_journal_segments", "gauge", "Segments a restart would read.");
    out.sample("", owner.journal.segments);
    out.family("fanfold_owner_epoch", "gauge", "The owner's epoch.");
    out.sample("", owner.journal.epoch);
}
