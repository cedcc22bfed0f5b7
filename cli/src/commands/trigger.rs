//! `fanfold trigger`: what calls functions when objects arrive, at times, and at events.

use std::path::PathBuf;

use clap::Subcommand;
use fanfold_client::{
    Client,
    rest::{EventOutcome, TriggerView},
};
use fanfold_protocol::trigger::{Source, Trigger};
use serde_json::{Value, json};

use super::trigger_add as add;
use crate::{
    failure::Failure,
    output::Output,
    table::{Table, left, printable, right},
    units,
};

/// `trigger`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add one, or put another definition in its place
    Add(Box<add::Args>),
    /// List them
    Ls,
    /// Show one: its definition, what waits, its last runs
    Show {
        /// Which
        name: String,
    },
    /// Remove one; what it fired goes on
    Rm {
        /// Which
        name: String,
    },
    /// Say whether an event would fire one, and why not
    Test {
        /// Which
        name: String,
        /// A file with a CloudEvent, a list of them, or a notification of an S3 store, as JSON
        #[arg(long)]
        event: PathBuf,
    },
}

/// Runs it.
pub async fn run(client: &Client, command: Command, out: Output) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add::run(client, *args, out).await,
        Command::Ls => {
            let triggers = client.triggers().await?;
            out.print(&triggers, |triggers| match triggers.is_empty() {
                true => "no triggers".to_owned(),
                false => listing(triggers).to_string(),
            })
        }
        Command::Show { name } => out.print(&client.trigger(&name).await?, description),
        Command::Rm { name } => {
            client.remove_trigger(&name).await?;
            out.print(&json!({ "removed": name }), |_| format!("removed {name}"))
        }
        Command::Test { name, event } => test(client, &name, event, out).await,
    }
}

async fn test(client: &Client, name: &str, file: PathBuf, out: Output) -> Result<(), Failure> {
    let text = std::fs::read(&file).map_err(|e| Failure::file(&file, &e))?;
    let event: Value = serde_json::from_slice(&text).map_err(|e| {
        Failure::usage(format!("{} is no JSON: {e}", file.display()), "give an event as JSON")
    })?;
    let content_type = match &event {
        Value::Array(_) => "application/cloudevents-batch+json",
        event if event.get("specversion").is_some() => "application/cloudevents+json",
        _ => "application/json",
    };
    // A name that is wrong is not one that nothing fires.
    client.trigger(name).await?;
    let mut outcomes = client.try_events(content_type, text).await?.outcomes;
    outcomes.retain(|outcome| outcome.trigger.as_str() == name);
    out.print(&outcomes, |outcomes| outcomes.iter().map(verdict).collect::<Vec<_>>().join("\n"))
}

fn verdict(outcome: &EventOutcome) -> String {
    let event = printable(&outcome.event);
    match &outcome.why {
        None => format!("event {event}: fires"),
        Some(why) => format!("event {event}: does not fire: {}", printable(why)),
    }
}

fn listing(triggers: &[TriggerView]) -> Table {
    let columns = [
        left("NAME"),
        left("KIND"),
        left("WAITS FOR"),
        left("CALLS"),
        right("WAITING"),
        right("RUNS"),
        left("NEXT"),
    ];
    let mut table = Table::new(columns);
    for trigger in triggers {
        let definition = &trigger.definition;
        table.row([
            trigger.name.to_string(),
            definition.kind.name().to_owned(),
            waits_for(definition),
            definition.function.clone(),
            trigger.waiting.to_string(),
            trigger.unfinished.to_string(),
            next(trigger),
        ]);
    }
    table
}

fn waits_for(definition: &Trigger) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match definition.kind {
        Source::Objects => {
            let bucket =
                definition.bucket.as_ref().map_or_else(String::new, |bucket| format!("s3://{bucket}/"));
            format!("{bucket}{}*{}", definition.prefix, definition.suffix)
        }
        Source::Cron => format!("{} {}", text(&definition.schedule), text(&definition.timezone)),
        Source::Interval => {
            format!("every {}", units::duration_us(definition.every.unwrap_or(0).saturating_mul(1000)))
        }
        Source::Event => definition
            .filter
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(" "),
        Source::Job => {
            let after = definition.after.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("jobs of {after}")
        }
        Source::Stream => format!("entries of {}", text(&definition.stream)),
    }
}

fn next(trigger: &TriggerView) -> String {
    match trigger.next_at_ms {
        _ if trigger.definition.paused => "paused".to_owned(),
        Some(at_ms) => {
            let left_ms = at_ms.saturating_sub(units::now_ms());
            format!("in {}", units::duration_us(left_ms.saturating_mul(1000)))
        }
        None => String::new(),
    }
}

fn oldest(since_ms: Option<u64>) -> String {
    since_ms.map_or_else(String::new, |at_ms| format!(", the oldest {}", units::ago(at_ms)))
}

fn description(trigger: &TriggerView) -> String {
    let definition = &trigger.definition;
    let mut lines = vec![
        trigger.name.to_string(),
        String::new(),
        format!("kind         {}", definition.kind.name()),
        format!("waits for    {}", printable(&waits_for(definition))),
        format!("calls        {}", definition.function),
        format!(
            "waiting      {}{}",
            units::count(trigger.waiting, "event"),
            oldest(trigger.waiting_since_ms)
        ),
        format!(
            "unfinished   {}{}",
            units::count(trigger.unfinished, "run"),
            oldest(trigger.unfinished_since_ms)
        ),
    ];
    let last = trigger.last_at_ms.map(|at_ms| format!("last time    {}", units::ago(at_ms)));
    let next = Some(next(trigger)).filter(|next| !next.is_empty()).map(|next| format!("next time    {next}"));
    let manifest = trigger.manifest_of.as_ref().map(|function| format!("manifest of  {function}"));
    let listing = trigger.listing.as_ref().map(|listing| {
        let why = listing.error.as_ref().map_or_else(String::new, |error| format!("; broke off: {error}"));
        format!(
            "listing      {}: {}, {} found{why}",
            units::ago(listing.at_ms),
            units::count(listing.objects, "object"),
            units::count(listing.found, "change"),
        )
    });
    let trouble = trigger
        .trouble
        .as_ref()
        .map(|trouble| format!("trouble      {}: {}", units::ago(trouble.at_ms), trouble.error));
    lines.extend([last, next, manifest, listing, trouble].into_iter().flatten());
    let mut runs = Table::new([left("RUN"), left("STATE"), left("ACCEPTED"), left("ERROR")]);
    for run in &trigger.runs {
        let state = serde_json::to_value(run.state).unwrap_or_default();
        runs.row([
            run.id.to_string(),
            state.as_str().unwrap_or_default().to_owned(),
            units::ago(run.accepted_at_ms),
            run.error.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]);
    }
    format!("{}\n\n{runs}", lines.join("\n"))
}
