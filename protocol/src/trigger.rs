//! Triggers: rules from events to invocations, as users write them: the body of `PUT /v1/triggers/{name}` and `[[trigger]]` of a
//! manifest.
//!
//! A definition is flat, and each key belongs to some kinds of trigger; [`Trigger::check`] says which. What needs more than the
//! definition itself (cron expressions, time zones, the function, other triggers) is checked by the gateway.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    Code, Error, FunctionName, Kind,
    function::FunctionRef,
    limit,
    manifest::{duration, duration_option, size_option},
};

/// What a trigger waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Source {
    /// Objects that are created or removed.
    Objects,
    /// Times of a cron expression.
    Cron,
    /// Every so often.
    Interval,
    /// CloudEvents that somebody posts.
    Event,
}

impl Source {
    /// The name in a definition.
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Cron => "cron",
            Self::Interval => "interval",
            Self::Event => "event",
        }
    }
}

/// What happened to an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Change {
    /// It was written, whether or not there was one before.
    Created,
    /// It is gone.
    Removed,
}

/// What becomes of scheduled times at which nobody could fire: the gateway was down for over a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One run, for the last of them.
    #[default]
    One,
    /// A run for each, the oldest first; the last [`limit::MISSED_RUNS_MAX`] of them.
    All,
}

/// What becomes of a scheduled time while the run before has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Overlap {
    /// It is passed over.
    #[default]
    Skip,
    /// It waits for that end; of several that wait, one run is made.
    Wait,
    /// It runs beside it.
    Allow,
}

/// How events are gathered to one run. The first bound that is reached closes a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Batch {
    /// Events.
    pub max: u32,
    /// Age of the oldest.
    #[serde(with = "duration")]
    pub window: u64,
    /// Bytes of the objects they tell of.
    #[serde(with = "size_option", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { max: 100, window: 5_000, bytes: None }
    }
}

/// What the function gets as its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Input {
    /// The CloudEvent as JSON; of a batch, a JSON list of them.
    #[default]
    Event,
    /// Its data alone.
    Data,
}

/// A trigger as its user defines it. Sizes are bytes, times milliseconds; in JSON and TOML they may be strings such as `"1MiB"` and
/// `"5s"`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trigger {
    /// Its name. In a manifest, the function's if left out; over REST the path says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<FunctionName>,
    /// What it waits for.
    pub kind: Source,
    /// What it calls: `name` or `name:alias`. In a manifest, the function itself if left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub function: String,
    /// Which entry of a task function; empty: the main one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entry: String,
    /// Whether it lets events and times pass without a run.
    #[serde(default)]
    pub paused: bool,
    /// What the function gets.
    #[serde(default)]
    pub input: Input,
    /// `cron`, `interval`: the function's input as JSON, in place of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
    /// `objects`, `event`: how events are gathered; left out, each has a run of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,

    /// `objects`: the bucket of the S3 notifications it waits for; left out, the platform's own objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// `objects`: what keys begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// `objects`: what keys end with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suffix: String,
    /// `objects`: changes it waits for; `created` if left out.
    #[serde(default = "created", skip_serializing_if = "is_created")]
    pub on: BTreeSet<Change>,
    /// `objects`: smallest size.
    #[serde(default, with = "size_option", skip_serializing_if = "Option::is_none")]
    pub bytes_min: Option<u64>,
    /// `objects`: largest size.
    #[serde(default, with = "size_option", skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// `objects`: what the keys begin with that the function writes, for the guard against loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// `objects`: time between two listings that find what no event told of; left out, an hour, and with `"0s"` there are none.
    #[serde(default, with = "duration_option", skip_serializing_if = "Option::is_none")]
    pub listing: Option<u64>,
    /// `objects`: whether what was there before the trigger counts as created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backfill: bool,

    /// `cron`: minute, hour, day of month, month, day of week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// `cron`: an IANA name such as `Europe/Berlin`; `UTC` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// `interval`: time between two runs, counted from the trigger's creation.
    #[serde(default, with = "duration_option", skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// `cron`, `interval`: what becomes of missed times; `one` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// `cron`, `interval`: what becomes of times while the run before goes on; `skip` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,

    /// `event`: attributes and the values they must have; a `*` at the end stands for any rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filter: BTreeMap<String, String>,
}

/// A trigger as it is recorded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TriggerRecord {
    /// Its name.
    pub name: FunctionName,
    /// What its user wrote; `function` is never empty.
    pub definition: Trigger,
    /// The function whose manifest brought it, and takes it away again.
    pub manifest_of: Option<FunctionName>,
    /// When it was created: part of the identity of its runs, so that one that is removed and added again runs anew.
    pub created_at_ms: u64,
    /// Scheduled times before this are none of its own: when it was created, or last paused or given another schedule.
    pub since_ms: u64,
}

fn created() -> BTreeSet<Change> {
    BTreeSet::from([Change::Created])
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's `skip_serializing_if` asks for this signature")]
fn is_created(on: &BTreeSet<Change>) -> bool {
    *on == created()
}

impl Trigger {
    /// Time between two of its listings; `None`: there are none.
    pub fn listing_every_ms(&self) -> Option<u64> {
        let platform = self.kind == Source::Objects && self.bucket.is_none();
        platform.then(|| self.listing.unwrap_or(limit::LISTING_EVERY_MS)).filter(|every| *every > 0)
    }

    /// The function it calls.
    ///
    /// # Errors
    /// `invalid` / `name`.
    pub fn target(&self) -> Result<FunctionRef, Error> {
        self.function.parse()
    }

    /// Checks what can be seen from the definition alone.
    ///
    /// # Errors
    /// `invalid` / `trigger`, naming the key and what to write.
    pub fn check(&self) -> Result<(), Error> {
        if self.function.is_empty() {
            return Err(refuse("function is missing: say what the trigger calls"));
        }
        self.target()?;
        self.check_keys()?;
        match self.kind {
            Source::Objects => self.check_objects()?,
            Source::Cron if self.schedule.is_none() => {
                return Err(refuse("schedule is missing: give five fields such as \"0 3 * * *\""));
            }
            Source::Interval => self.check_interval()?,
            Source::Event if self.filter.is_empty() => {
                let why = "filter is empty, so every event would fire: give at least one attribute, such as \
                           filter = { type = \"com.example.*\" }";
                return Err(refuse(why));
            }
            Source::Cron | Source::Event => {}
        }
        self.check_batch()
    }

    /// Each key stands only where it means something.
    fn check_keys(&self) -> Result<(), Error> {
        use Source::{Cron, Event, Interval, Objects};
        let keys: [(&str, bool, &[Source]); 16] = [
            ("bucket", self.bucket.is_some(), &[Objects]),
            ("prefix", !self.prefix.is_empty(), &[Objects]),
            ("suffix", !self.suffix.is_empty(), &[Objects]),
            ("on", !is_created(&self.on), &[Objects]),
            ("bytes_min", self.bytes_min.is_some(), &[Objects]),
            ("bytes_max", self.bytes_max.is_some(), &[Objects]),
            ("output", self.output.is_some(), &[Objects]),
            ("listing", self.listing.is_some(), &[Objects]),
            ("backfill", self.backfill, &[Objects]),
            ("batch", self.batch.is_some(), &[Objects, Event]),
            ("body", self.body.is_some(), &[Cron, Interval]),
            ("schedule", self.schedule.is_some(), &[Cron]),
            ("timezone", self.timezone.is_some(), &[Cron]),
            ("every", self.every.is_some(), &[Interval]),
            ("missed or overlap", self.missed.is_some() || self.overlap.is_some(), &[Cron, Interval]),
            ("filter", !self.filter.is_empty(), &[Event]),
        ];
        match keys.iter().find(|(_, given, kinds)| *given && !kinds.contains(&self.kind)) {
            None => Ok(()),
            Some((key, _, kinds)) => {
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                let (own, kinds) = (self.kind.name(), kinds.join(" and "));
                Err(refuse(format!(
                    "{key} is a key of {kinds} triggers, and this one is of kind {own}: leave it out"
                )))
            }
        }
    }

    fn check_objects(&self) -> Result<(), Error> {
        if self.on.is_empty() {
            return Err(refuse("on is empty: give created, removed or both, or leave it out"));
        }
        if self.bytes_min > self.bytes_max && self.bytes_max.is_some() {
            return Err(refuse("bytes_min is above bytes_max, so no object would fire"));
        }
        if self.prefix.len() + self.suffix.len() > limit::OBJECT_KEY_BYTES_MAX {
            return Err(refuse("prefix and suffix together are longer than a key can be"));
        }
        if self.bucket.is_some() && (self.listing.is_some_and(|every| every > 0) || self.backfill) {
            let why = "listing and backfill are for the platform's own objects: leave bucket out, or them";
            return Err(refuse(why));
        }
        if self.backfill && self.listing == Some(0) {
            return Err(refuse("backfill needs a listing, and listing is \"0s\": leave one of them out"));
        }
        let every = self.listing.unwrap_or(limit::LISTING_EVERY_MS);
        if every > 0 && !(limit::LISTING_EVERY_MS_MIN..=limit::LISTING_EVERY_MS_MAX).contains(&every) {
            return Err(refuse(
                "listing is the time between two listings: give \"1s\" to \"12h\", or \"0s\" for none",
            ));
        }
        Ok(())
    }

    fn check_interval(&self) -> Result<(), Error> {
        match self.every {
            None => Err(refuse("every is missing: give a time such as \"5m\"")),
            Some(every) if every < limit::INTERVAL_MS_MIN => {
                Err(refuse("every is shorter than a second: give \"1s\" or more"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_batch(&self) -> Result<(), Error> {
        let Some(batch) = self.batch else { return Ok(()) };
        if self.input == Input::Data {
            return Err(refuse("input = \"data\" has no meaning for a batch: leave one of them out"));
        }
        if !(1..=limit::BATCH_EVENTS_MAX).contains(&batch.max) {
            return Err(refuse(format!("batch.max is {}: give 1 to {}", batch.max, limit::BATCH_EVENTS_MAX)));
        }
        if batch.window > limit::BATCH_WINDOW_MS_MAX {
            return Err(refuse("batch.window is longer than an hour: give less"));
        }
        Ok(())
    }
}

/// The names of a manifest's triggers, in order: what they say, else the function's own name, numbered from the second on.
pub fn manifest_names(function: &FunctionName, triggers: &[Trigger]) -> Result<Vec<FunctionName>, Error> {
    let mut names = Vec::with_capacity(triggers.len());
    for (index, trigger) in triggers.iter().enumerate() {
        let name = match &trigger.name {
            Some(name) => name.clone(),
            None if index == 0 => function.clone(),
            None => format!("{function}-{}", index + 1).parse()?,
        };
        if names.contains(&name) {
            return Err(refuse(format!("two triggers are called `{name}`: give each a name of its own")));
        }
        names.push(name);
    }
    Ok(names)
}

/// A definition that cannot be.
pub fn refuse(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Invalid, Code::Trigger, message).context("trigger")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, wanted: Result<(), &str>) {
        let read = toml::from_str::<Trigger>(text).map_err(|e| refuse(e.to_string()));
        match (read.and_then(|trigger| trigger.check()), wanted) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{error}"),
            (got, wanted) => panic!("{text}: {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn definitions_are_checked() {
        let own = |rest: &str| format!("function = \"f\"\n{rest}");
        let objects = "kind = \"objects\"\nprefix = \"inbox/\"\nsuffix = \".jpg\"\n";
        check(&own(&format!("{objects}batch = {{ max = 100, window = \"5s\" }}")), Ok(()));
        check(objects, Err("function is missing"));
        check(&own(&format!("{objects}bytes_min = \"2KiB\"\nbytes_max = 1")), Err("bytes_min is above"));
        check(&own(&format!("{objects}every = \"5s\"")), Err("every is a key of interval triggers"));
        check(&own(&format!("{objects}bucket = \"b\"\nbackfill = true")), Err("platform's own objects"));
        check(&own(&format!("{objects}listing = \"2d\"")), Err("30s"));
        check(&own(&format!("{objects}listing = \"13h\"")), Err("12h"));
        check(&own(&format!("{objects}batch = {{ max = 0 }}")), Err("batch.max is 0"));
        check(&own(&format!("{objects}batch = {{}}\ninput = \"data\"")), Err("no meaning for a batch"));
        check(&own(&format!("{objects}sufix = \"x\"")), Err("unknown field `sufix`"));
        check(&own("kind = \"cron\""), Err("schedule is missing"));
        check(&own("kind = \"cron\"\nschedule = \"0 3 * * *\"\nbody = { n = 1 }"), Ok(()));
        check(&own("kind = \"cron\"\nschedule = \"0 3 * * *\"\nbatch = {}"), Err("objects and event"));
        check(&own("kind = \"interval\"\nevery = \"500ms\""), Err("shorter than a second"));
        check(&own("kind = \"interval\"\nevery = \"1s\"\noverlap = \"wait\""), Ok(()));
        check(&own("kind = \"event\""), Err("filter is empty"));
        check(&own("kind = \"queue\""), Err("unknown variant `queue`"));
    }

    #[test]
    fn definitions_survive_the_journal() {
        let text = "function = \"f\"\nkind = \"cron\"\nschedule = \"0 3 * * *\"\nbody = { n = [1, \"a\"] }\nmissed = \"all\"";
        let trigger: Trigger = toml::from_str(text).unwrap();
        let bytes = rmp_serde::to_vec_named(&trigger).unwrap();
        assert_eq!(rmp_serde::from_slice::<Trigger>(&bytes).unwrap(), trigger);
    }

    #[test]
    fn triggers_of_a_manifest_have_names() {
        let function: FunctionName = "thumb".parse().unwrap();
        let unnamed: Trigger = toml::from_str("kind = \"event\"").unwrap();
        let named = Trigger { name: Some("other".parse().unwrap()), ..unnamed.clone() };
        let names = manifest_names(&function, &[unnamed.clone(), named.clone(), unnamed]).unwrap();
        assert_eq!(names.iter().map(FunctionName::as_str).collect::<Vec<_>>(), ["thumb", "other", "thumb-3"]);
        assert!(manifest_names(&function, &[named.clone(), named]).unwrap_err().message.contains("`other`"));
    }
}
