//! Changes of the registry: what each needs to be allowed and which records it makes.

use std::collections::BTreeMap;

use fanfold_protocol::{
    Code, Digest, Error, FunctionName, Kind, function::FunctionVersion, limit, record::Record,
    trigger::Trigger as Definition,
};

use super::{
    catalog::{Catalog, Function, LATEST},
    lookup::DIGITS_MIN,
    triggers,
};

/// A change to make.
pub enum Change {
    /// The version exists and `latest` points to it.
    Deploy(Box<FunctionVersion>),
    /// An alias points to versions by weight; an empty map removes it.
    Alias {
        /// The function.
        name: FunctionName,
        /// The alias.
        alias: FunctionName,
        /// Version, or at least 6 leading digits of one, to weight above 0.
        weights: BTreeMap<String, u32>,
    },
    /// `latest` points to the version that was deployed before the one it points to.
    Rollback {
        /// The function.
        name: FunctionName,
    },
    /// The function is gone for new invocations, and the triggers of its manifest with it.
    Remove {
        /// The function.
        name: FunctionName,
    },
    /// The trigger exists, in place of any of that name.
    SetTrigger {
        /// Its name.
        name: FunctionName,
        /// What its user wrote, checked.
        definition: Box<Definition>,
    },
    /// The trigger is gone.
    RemoveTrigger {
        /// Its name.
        name: FunctionName,
    },
}

impl Change {
    /// The records that make this change; none where it is so already.
    pub(super) fn records(&self, catalog: &Catalog, now_ms: u64) -> Result<Vec<Record>, Error> {
        match self {
            Self::Deploy(version) => {
                let mut records = deploy(catalog, version)?;
                records.extend(triggers::of_manifest(catalog, version, now_ms)?);
                Ok(records)
            }
            Self::Alias { name, alias, weights } => {
                set_alias(&*catalog.function(name.as_str())?, alias.clone(), weights)
            }
            Self::Rollback { name } => rollback(catalog, &*catalog.function(name.as_str())?, now_ms),
            Self::Remove { name } => {
                catalog.function(name.as_str())?;
                let mut records = triggers::without(catalog, name)?;
                records.push(Record::Removed { name: name.clone() });
                Ok(records)
            }
            Self::SetTrigger { name, definition } => triggers::set(catalog, name, definition, now_ms),
            Self::RemoveTrigger { name } => {
                catalog.trigger(name)?;
                Ok(vec![Record::TriggerRemoved { name: name.clone() }])
            }
        }
    }
}

/// A version that is there already is not recorded again; only `latest` may have to move back to it.
fn deploy(catalog: &Catalog, version: &FunctionVersion) -> Result<Vec<Record>, Error> {
    let deployed = || Ok(vec![Record::Deployed(Box::new(version.clone()))]);
    let Ok(function) = catalog.function(version.name.as_str()) else { return deployed() };
    if function.versions.iter().all(|c| c.version.version != version.version) {
        return deployed();
    }
    point(&function, LATEST.parse()?, BTreeMap::from([(version.version, 1)]))
}

fn set_alias(
    function: &Function,
    alias: FunctionName,
    weights: &BTreeMap<String, u32>,
) -> Result<Vec<Record>, Error> {
    let text = alias.as_str();
    if text.len() >= DIGITS_MIN && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        let why = format!("alias `{alias}` could be the digits of a version: give it another name");
        return Err(Error::new(Kind::Invalid, Code::Name, why));
    }
    if weights.is_empty() && text == LATEST {
        return Err(Error::invalid("alias `latest` cannot be removed: point it to another version"));
    }
    if weights.len() > limit::ALIAS_TARGETS_MAX {
        return Err(Error::invalid(format!(
            "an alias can point to at most {} versions",
            limit::ALIAS_TARGETS_MAX
        )));
    }
    let mut digests = BTreeMap::new();
    for (digits, weight) in weights {
        if *weight == 0 {
            return Err(Error::invalid(format!("version `{digits}` has weight 0: leave it out")));
        }
        let version = function.by_digits(digits)?.version.version;
        if digests.insert(version, *weight).is_some() {
            return Err(Error::invalid(format!("version `{}` is named twice", version.short())));
        }
    }
    if weights.is_empty() && !function.aliases.contains_key(text) {
        let why = format!("function `{}` has no alias `{alias}`", function.name);
        return Err(Error::not_found(Code::Version, why));
    }
    point(function, alias, digests)
}

fn rollback(catalog: &Catalog, function: &Function, now_ms: u64) -> Result<Vec<Record>, Error> {
    let latest = function.aliases.get(LATEST);
    let newest = latest.and_then(|latest| {
        function
            .versions
            .iter()
            .position(|c| latest.targets.iter().any(|(t, _)| t.version.version == c.version.version))
    });
    let Some(earlier) = newest.and_then(|at| function.versions.get(at + 1)) else {
        let why = format!("function `{}` has no version before the one that `latest` means", function.name);
        return Err(Error::new(Kind::Conflict, Code::Precondition, why));
    };
    let mut records = point(function, LATEST.parse()?, BTreeMap::from([(earlier.version.version, 1)]))?;
    records.extend(triggers::of_manifest(catalog, &earlier.version, now_ms)?);
    Ok(records)
}

fn point(
    function: &Function,
    alias: FunctionName,
    weights: BTreeMap<Digest, u32>,
) -> Result<Vec<Record>, Error> {
    if function.aliases.get(&alias).is_some_and(|target| target.weights() == weights) {
        return Ok(Vec::new());
    }
    Ok(vec![Record::AliasSet { name: function.name.clone(), alias, weights }])
}
