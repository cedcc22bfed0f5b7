//! The catalog: a fold over the journal's records of deploys, aliases and removals.
//!
//! Folding is idempotent over a suffix: replaying records over a catalog that has them already ends in the same
//! catalog. Entries are shared, so a copy with one change costs one map of pointers.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use fanfold_protocol::{
    Digest, FunctionName, function::FunctionVersion, record::Record, trigger::TriggerRecord,
};
use http::HeaderValue;
use rand::Rng as _;

use super::triggers::Trigger;
use crate::direct::Admission;

/// The alias that a deploy moves and a call without a selector uses.
pub const LATEST: &str = "latest";

/// Every function there is, and every version there was.
#[derive(Clone, Default)]
pub struct Catalog {
    pub(super) functions: HashMap<FunctionName, Arc<Function>>,
    /// Versions by digest, those of removed functions too: jobs that were accepted still run them.
    pub(super) versions: HashMap<Digest, Arc<FunctionVersion>>,
    /// Triggers by name.
    pub(super) triggers: BTreeMap<FunctionName, Arc<Trigger>>,
    /// Functions whose jobs' ends a trigger waits for; shared by copies.
    pub(super) waited_for: Arc<HashSet<FunctionName>>,
}

/// One function.
#[derive(Clone)]
pub struct Function {
    /// Its name.
    pub name: FunctionName,
    /// Newest deploy first; never empty.
    pub versions: Vec<Arc<Callable>>,
    /// Aliases, `latest` among them.
    pub aliases: BTreeMap<FunctionName, Alias>,
    /// Shared by all versions; its bounds are those of the newest.
    pub(crate) admission: Arc<Admission>,
}

/// A version with what a direct call of it needs at hand.
pub struct Callable {
    /// The version.
    pub version: Arc<FunctionVersion>,
    pub(crate) admission: Arc<Admission>,
    /// The value of `fanfold-version`.
    pub(crate) version_header: HeaderValue,
    /// The value of `x-forwarded-prefix` for a call without a selector.
    pub(crate) prefix_header: HeaderValue,
}

/// Where an alias points: versions and their weights, all above 0; never empty.
#[derive(Clone)]
pub struct Alias {
    /// Versions by digest, with their weights.
    pub targets: Vec<(Arc<Callable>, u32)>,
    total: u64,
}

impl Alias {
    fn new(targets: Vec<(Arc<Callable>, u32)>) -> Option<Self> {
        let total = targets.iter().map(|(_, weight)| u64::from(*weight)).sum();
        (total > 0).then_some(Self { targets, total })
    }

    /// One of the versions, at random by weight.
    pub fn pick(&self) -> Option<&Arc<Callable>> {
        if let [(only, _)] = self.targets.as_slice() {
            return Some(only);
        }
        let mut left = rand::rng().random_range(0..self.total);
        self.targets.iter().find_map(|(callable, weight)| {
            let weight = u64::from(*weight);
            if left < weight {
                return Some(callable);
            }
            left -= weight;
            None
        })
    }

    /// Version digest to weight.
    pub fn weights(&self) -> BTreeMap<Digest, u32> {
        self.targets.iter().map(|(callable, weight)| (callable.version.version, *weight)).collect()
    }
}

impl Callable {
    fn new(version: Arc<FunctionVersion>, admission: Arc<Admission>) -> Self {
        // Names and digests are visible ASCII, so these conversions cannot fail.
        let header =
            |text: String| HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            version_header: header(version.version.to_string()),
            prefix_header: header(format!("/function/{}", version.name)),
            version,
            admission,
        }
    }
}

impl Function {
    fn new(version: &FunctionVersion) -> Self {
        Self {
            name: version.name.clone(),
            versions: Vec::new(),
            aliases: BTreeMap::new(),
            admission: Arc::new(Admission::new(version.manifest.concurrency)),
        }
    }

    /// Makes `version` the newest, whether or not it was there.
    fn deploy(&mut self, version: &Arc<FunctionVersion>) {
        self.admission.resize(version.manifest.concurrency);
        let at = self.versions.iter().position(|c| c.version.version == version.version);
        let callable = match at {
            Some(at) => self.versions.remove(at),
            None => Arc::new(Callable::new(Arc::clone(version), Arc::clone(&self.admission))),
        };
        self.versions.insert(0, callable);
    }

    fn set_alias(&mut self, alias: &FunctionName, weights: &BTreeMap<Digest, u32>) {
        let targets = weights
            .iter()
            .filter_map(|(digest, weight)| {
                let callable = self.versions.iter().find(|c| c.version.version == *digest)?;
                Some((Arc::clone(callable), *weight))
            })
            .collect();
        match Alias::new(targets) {
            Some(target) => self.aliases.insert(alias.clone(), target),
            None => self.aliases.remove(alias),
        };
    }
}

impl Catalog {
    /// Applies one journal entry; entries of other kinds change nothing.
    pub fn fold(&mut self, record: &Record) {
        match record {
            Record::Deployed(version) => self.deploy(version),
            Record::AliasSet { name, alias, weights } => {
                if let Some(function) = self.functions.get_mut(name) {
                    Arc::make_mut(function).set_alias(alias, weights);
                }
            }
            Record::Removed { name } => {
                self.functions.remove(name);
            }
            Record::TriggerSet(record) => {
                self.triggers
                    .insert(record.name.clone(), Arc::new(Trigger::new(TriggerRecord::clone(record))));
                self.note_waited_for();
            }
            Record::TriggerRemoved { name } => {
                self.triggers.remove(name);
                self.note_waited_for();
            }
            _ => {}
        }
    }

    fn deploy(&mut self, version: &FunctionVersion) {
        let digest = version.version;
        let version = Arc::clone(self.versions.entry(digest).or_insert_with(|| Arc::new(version.clone())));
        let function =
            self.functions.entry(version.name.clone()).or_insert_with(|| Arc::new(Function::new(&version)));
        let function = Arc::make_mut(function);
        function.deploy(&version);
        if let Ok(latest) = LATEST.parse() {
            function.set_alias(&latest, &BTreeMap::from([(digest, 1)]));
        }
    }

    /// Records that make this catalog from an empty one.
    pub fn records(&self) -> Vec<Record> {
        let live = |version: &FunctionVersion| {
            let function = self.functions.get(&version.name)?;
            function.versions.iter().find(|c| c.version.version == version.version)
        };
        let mut retired: Vec<_> = self.versions.values().filter(|version| live(version).is_none()).collect();
        retired.sort_by_key(|version| version.version);
        let removed: std::collections::BTreeSet<_> = retired.iter().map(|version| &version.name).collect();
        let mut records: Vec<_> = retired.iter().map(|version| deployed(version)).collect();
        records.extend(removed.into_iter().map(|name| Record::Removed { name: name.clone() }));
        for (name, function) in &self.functions {
            records.extend(function.versions.iter().rev().map(|callable| deployed(&callable.version)));
            records.extend(function.aliases.iter().map(|(alias, target)| Record::AliasSet {
                name: name.clone(),
                alias: alias.clone(),
                weights: target.weights(),
            }));
        }
        let triggers = self.triggers.values();
        records.extend(triggers.map(|trigger| Record::TriggerSet(Box::new(trigger.record.clone()))));
        records
    }
}

fn deployed(version: &Arc<FunctionVersion>) -> Record {
    Record::Deployed(Box::new(FunctionVersion::clone(version)))
}
