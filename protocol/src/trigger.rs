//! Triggers: rules from events to invocations, as users write them: the body of `PUT /v1/triggers/{name}` and `[[trigger]]` of a
//! manifest.
//!
//! A definition is flat, and each key belongs to some kinds of trigger; [`Trigger::check`] says which. What needs more than the
//! definition itself (cron expressions, time zones, the function, other triggers) is checked by the gateway.

mod check;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    Code, Error, FunctionName, Kind,
    function::FunctionRef,
    limit,
    manifest::{Retry, duration, duration_option, size_option},
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
    /// CloudEvents that somebody posts, or that come from a queue.
    Event,
    /// Jobs of a function that end.
    Job,
    /// Entries of a Redis stream.
    Stream,
}

impl Source {
    /// The name in a definition.
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Cron => "cron",
            Self::Interval => "interval",
            Self::Event => "event",
            Self::Job => "job",
            Self::Stream => "stream",
        }
    }
}

/// What a trigger of objects or jobs can wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum On {
    /// An object was written.
    Created,
    /// An object is gone.
    Removed,
    /// A job ended well.
    Succeeded,
    /// A job was given up.
    Failed,
}

impl From<Change> for On {
    fn from(change: Change) -> Self {
        match change {
            Change::Created => Self::Created,
            Change::Removed => Self::Removed,
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
    /// Whether the function's answer says which events failed, so that the others are not run again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self { max: 100, window: 5_000, bytes: None, partial: false }
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
    /// Of a batch of objects, a table of them in Arrow's IPC stream format.
    Manifest,
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
    /// All but `cron` and `interval`: how events are gathered; left out, each has a run of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    /// The type of the CloudEvents that the function's results are, which are taken as events again; a `*` at the end stands for
    /// any rest. Left out, results are results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emits: Option<String>,
    /// How many of its runs are under way at once, at most; left out, as many as the function may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How its runs are tried again, in place of the function's `[retry]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// All but `cron` and `interval`, without `batch`: the attribute of events that is their ordering key. Events with the same value
    /// run one after the other, in the order in which they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,

    /// `objects`: the bucket of the S3 notifications it waits for; left out, the platform's own objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// `objects`: what keys begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// `objects`: what keys end with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suffix: String,
    /// `objects`: `created` (if left out), `removed`. `job`: `succeeded`, `failed`; both if left out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub on: BTreeSet<On>,
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
    /// `objects`, `stream`: whether what was there before the trigger counts as new.
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

    /// `job`: the function whose jobs it waits for, whichever version ran them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FunctionName>,

    /// `objects` of a bucket, `event`: the URL of the SQS-compatible queue that its events come from, and no others. The gateway's
    /// environment has the access key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The queue's region; left out, that in its host's name, else the gateway's `AWS_REGION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// `stream`: the key of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// `stream`: the URL of its Redis, without a password; left out, that of the gateway's `FANFOLD_REDIS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
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

impl Trigger {
    /// Whether it waits for this.
    pub fn waits_for(&self, what: On) -> bool {
        match self.kind {
            Source::Objects if self.on.is_empty() => what == On::Created,
            Source::Job if self.on.is_empty() => matches!(what, On::Succeeded | On::Failed),
            Source::Objects | Source::Job => self.on.contains(&what),
            Source::Cron | Source::Interval | Source::Event | Source::Stream => false,
        }
    }

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
