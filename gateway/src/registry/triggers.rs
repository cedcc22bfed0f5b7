//! Triggers in the catalog: what each needs to be allowed, and those that manifests bring and take away.

use std::{collections::BTreeMap, sync::Arc};

use fanfold_protocol::{
    Code, Error, FunctionName, Kind,
    function::{ComponentKind, FunctionVersion},
    limit,
    record::Record,
    trigger::{Source, Trigger as Definition, TriggerRecord, refuse},
};
use fanfold_triggers::{cycle, schedule::Schedule};

use super::catalog::Catalog;

/// A trigger.
pub struct Trigger {
    /// As it is recorded.
    pub record: TriggerRecord,
    /// Its times, if it has any.
    pub schedule: Option<Schedule>,
}

impl Trigger {
    pub(super) fn new(record: TriggerRecord) -> Self {
        let schedule = Schedule::recorded(&record);
        Self { record, schedule }
    }

    /// Its name.
    pub fn name(&self) -> &FunctionName {
        &self.record.name
    }

    /// What its user wrote.
    pub fn definition(&self) -> &Definition {
        &self.record.definition
    }
}

impl Catalog {
    /// A trigger by name.
    ///
    /// # Errors
    /// `not-found` / `trigger`.
    pub fn trigger(&self, name: &FunctionName) -> Result<&Arc<Trigger>, Error> {
        self.triggers.get(name).ok_or_else(|| {
            Error::not_found(
                Code::Trigger,
                format!("there is no trigger `{name}`: GET /v1/triggers lists them"),
            )
        })
    }

    /// Whether a trigger waits for the ends of this function's jobs.
    pub fn is_waited_for(&self, function: &FunctionName) -> bool {
        self.waited_for.contains(function)
    }

    pub(super) fn note_waited_for(&mut self) {
        let active = self.triggers.values().filter(|trigger| !trigger.definition().paused);
        let waited_for = active.filter_map(|trigger| trigger.definition().after.clone()).collect();
        if *self.waited_for != waited_for {
            self.waited_for = Arc::new(waited_for);
        }
    }

    /// Triggers in the order of their names.
    pub fn triggers(&self) -> &BTreeMap<FunctionName, Arc<Trigger>> {
        &self.triggers
    }
}

/// The records that set a trigger; none where it is so already.
pub(super) fn set(
    catalog: &Catalog,
    name: &FunctionName,
    definition: &Definition,
    now_ms: u64,
) -> Result<Vec<Record>, Error> {
    let target = definition.target()?;
    let callable = catalog.callable(target.name.as_str(), target.selector.as_deref())?;
    if !definition.entry.is_empty() && callable.version.info.kind != ComponentKind::Task {
        return Err(refuse(format!(
            "entry: `{target}` is no task function and has no entries; leave it out"
        )));
    }
    let others = catalog.triggers.iter().map(|(name, trigger)| (name, trigger.definition()));
    cycle::refuse_loop(name, definition, others)?;
    let manifest_of = catalog.triggers.get(name).and_then(|trigger| trigger.record.manifest_of.clone());
    Ok(record(catalog, name, definition, manifest_of, now_ms)?.into_iter().collect())
}

/// The records that make the triggers of a function those of this version's manifest.
pub(super) fn of_manifest(
    catalog: &Catalog,
    version: &FunctionVersion,
    now_ms: u64,
) -> Result<Vec<Record>, Error> {
    let named: Vec<_> = version.manifest.triggers.iter().filter_map(|t| Some((t.name.clone()?, t))).collect();
    let kept = |name: &FunctionName| named.iter().any(|(wanted, _)| wanted == name);
    let gone = of_function(catalog, &version.name).filter(|trigger| !kept(trigger.name()));
    let mut records: Vec<_> =
        gone.map(|trigger| Record::TriggerRemoved { name: trigger.name().clone() }).collect();
    for (name, definition) in &named {
        let stranger = |trigger: &&Arc<Trigger>| trigger.record.manifest_of.as_ref() != Some(&version.name);
        if catalog.triggers.get(name).filter(stranger).is_some() {
            let why =
                format!("there is a trigger `{name}` that is not of this manifest: give it another name");
            return Err(Error::new(Kind::Conflict, Code::Trigger, why));
        }
        let target = definition.target()?;
        if target.name != version.name || target.selector.is_some() {
            catalog.callable(target.name.as_str(), target.selector.as_deref())?;
        }
        let rest = catalog.triggers.iter().map(|(name, trigger)| (name, trigger.definition()));
        let rest = rest.filter(|(other, _)| !kept(other));
        cycle::refuse_loop(name, definition, rest.chain(named.iter().map(|(name, other)| (name, *other))))?;
        records.extend(record(catalog, name, definition, Some(version.name.clone()), now_ms)?);
    }
    Ok(records)
}

/// The records that remove the triggers of a function's manifest.
///
/// # Errors
/// `conflict` / `trigger` where another trigger calls the function.
pub(super) fn without(catalog: &Catalog, function: &FunctionName) -> Result<Vec<Record>, Error> {
    let calls = |trigger: &&Arc<Trigger>| trigger.definition().target().is_ok_and(|t| t.name == *function);
    let own = |trigger: &&Arc<Trigger>| trigger.record.manifest_of.as_ref() == Some(function);
    if let Some(trigger) = catalog.triggers.values().find(|trigger| calls(trigger) && !own(trigger)) {
        let why = format!("trigger `{}` calls `{function}`: remove it first", trigger.name());
        return Err(Error::new(Kind::Conflict, Code::Trigger, why));
    }
    let own = of_function(catalog, function);
    Ok(own.map(|trigger| Record::TriggerRemoved { name: trigger.name().clone() }).collect())
}

fn of_function<'a>(
    catalog: &'a Catalog,
    function: &'a FunctionName,
) -> impl Iterator<Item = &'a Arc<Trigger>> {
    catalog.triggers.values().filter(move |trigger| trigger.record.manifest_of.as_ref() == Some(function))
}

fn record(
    catalog: &Catalog,
    name: &FunctionName,
    definition: &Definition,
    manifest_of: Option<FunctionName>,
    now_ms: u64,
) -> Result<Option<Record>, Error> {
    definition.check()?;
    Schedule::of(definition, now_ms)?;
    crate::triggers::check(definition)?;
    let definition = Definition { name: Some(name.clone()), ..definition.clone() };
    let before = catalog.triggers.get(name).map(|trigger| &trigger.record);
    if before.is_some_and(|b| b.definition == definition && b.manifest_of == manifest_of) {
        return Ok(None);
    }
    if before.is_none() && catalog.triggers.len() >= limit::TRIGGERS_MAX {
        let why = format!("there are {} triggers already: remove some", limit::TRIGGERS_MAX);
        return Err(Error::new(Kind::Overloaded, Code::Trigger, why));
    }
    let same_times = |before: &&TriggerRecord| times(&before.definition) == times(&definition);
    let since_ms = before.filter(same_times).map_or(now_ms, |before| before.since_ms);
    let created_at_ms = before.map_or(now_ms, |before| before.created_at_ms);
    let name = name.clone();
    let record = TriggerRecord { name, definition, manifest_of, created_at_ms, since_ms };
    Ok(Some(Record::TriggerSet(Box::new(record))))
}

/// What a schedule counts from anew when it changes.
fn times(definition: &Definition) -> (Source, Option<&str>, Option<&str>, Option<u64>, bool) {
    let Definition { kind, schedule, timezone, every, paused, .. } = definition;
    (*kind, schedule.as_deref(), timezone.as_deref(), *every, *paused)
}
