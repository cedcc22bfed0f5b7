//! Sources that are read all the time: queues, each once for all triggers that name it, and streams.
//!
//! They are read by the gateway that has the shard with the keys, and given up when it has it no more: what was read and not
//! recorded comes again, to whoever reads next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fanfold_protocol::{
    Code, Error, FunctionName, Kind,
    rest::TroubleView,
    trigger::{Trigger as Definition, TriggerRecord, refuse},
};
use fanfold_store::{queue::Queue, stream::Stream};
use fanfold_triggers::CloudEvent;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{queue, stream::Reading, take_for};
use crate::{
    clock,
    registry::{Catalog, Trigger},
    shared::Shared,
};

/// Pause after a failure, doubled up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause where too much waits already.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// The variable with the URL of the Redis that a process was given.
const REDIS: &str = "FANFOLD_REDIS";

/// Something that is read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Feed {
    /// A queue, by URL and region.
    Queue(String, Option<String>),
    /// The stream of a trigger that was created then, by Redis and name: each trigger has a group of its own.
    Stream(FunctionName, u64, Option<String>, String),
}

impl Feed {
    /// What a trigger reads.
    fn of(trigger: &Trigger) -> Option<Self> {
        let Definition { queue, region, stream, redis, paused, .. } = trigger.definition();
        match (queue, stream) {
            _ if *paused => None,
            (Some(queue), _) => Some(Self::Queue(queue.clone(), region.clone())),
            (_, Some(stream)) => {
                let TriggerRecord { name, created_at_ms, .. } = &trigger.record;
                Some(Self::Stream(name.clone(), *created_at_ms, redis.clone(), stream.clone()))
            }
            _ => None,
        }
    }
}

/// The feeds that are read now.
#[derive(Default)]
pub(super) struct Feeds {
    running: BTreeMap<Feed, CancellationToken>,
}

impl Feeds {
    /// Reads what the triggers of this catalog name, and nothing else any more.
    pub(super) fn keep(
        &mut self,
        shared: &Arc<Shared>,
        catalog: &Catalog,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) {
        let wanted: BTreeSet<_> =
            catalog.triggers().values().filter_map(|trigger| Feed::of(trigger)).collect();
        self.running.retain(|feed, reading| {
            let keep = wanted.contains(feed);
            if !keep {
                reading.cancel();
            }
            keep
        });
        for feed in wanted {
            let (shared, token) = (Arc::clone(shared), stop.child_token());
            self.running.entry(feed.clone()).or_insert_with(|| {
                let stopped = token.clone();
                tasks.spawn(async move {
                    // Wherever it is broken off: what was not acknowledged comes again.
                    tokio::select! {
                        () = stopped.cancelled() => {}
                        () = read(&shared, &feed) => {}
                    }
                });
                token
            });
        }
    }

    /// Reads nothing any more: another gateway does.
    pub(super) fn end(&mut self) {
        std::mem::take(&mut self.running).into_values().for_each(|reading| reading.cancel());
    }
}

/// Reads a feed for ever.
async fn read(shared: &Shared, feed: &Feed) {
    let mut pause = PAUSE_MIN;
    loop {
        let error = match feed {
            Feed::Queue(url, region) => read_queue(shared, feed, url, region.as_deref(), &mut pause).await,
            Feed::Stream(..) => read_stream(shared, feed, &mut pause).await,
        };
        trouble(shared, feed, &error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Takes messages of a queue until something fails.
async fn read_queue(
    shared: &Shared,
    feed: &Feed,
    url: &str,
    region: Option<&str>,
    pause: &mut Duration,
) -> Error {
    let queue = match Queue::open(url, region) {
        Ok(queue) => queue,
        Err(error) => return error,
    };
    loop {
        match queue::turn(shared, &queue, url, &readers(shared, feed)).await {
            Ok(poison) => {
                *pause = PAUSE_MIN;
                if let Some(error) = poison {
                    trouble(shared, feed, &error);
                }
            }
            Err(error) => return error,
        }
    }
}

/// Takes entries of a trigger's stream until something fails.
async fn read_stream(shared: &Shared, feed: &Feed, pause: &mut Duration) -> Error {
    let Some(trigger) = readers(shared, feed).pop() else { return gone() };
    let mut reading = match Reading::begin(&trigger).await {
        Ok(reading) => reading,
        Err(error) => return error,
    };
    loop {
        // Its definition may have changed.
        let Some(trigger) = readers(shared, feed).pop() else { return gone() };
        match reading.turn(shared, &trigger).await {
            Ok(poison) => {
                *pause = PAUSE_MIN;
                if let Some(error) = poison {
                    trouble(shared, feed, &error);
                }
            }
            Err(error) => return error,
        }
    }
}

/// A moment before its feed is given up.
fn gone() -> Error {
    Error::not_found(Code::Trigger, "the trigger is gone")
}

/// Refuses a source that this gateway could not read, as far as can be seen without asking it.
///
/// # Errors
/// `invalid`, saying what is missing.
pub(crate) fn check(definition: &Definition) -> Result<(), Error> {
    if let Some(queue) = &definition.queue {
        Queue::open(queue, definition.region.as_deref())?;
    }
    if let Some(stream) = &definition.stream {
        Stream::open(&redis_url(definition)?, stream, "check")?;
    }
    Ok(())
}

/// The Redis of a trigger's stream: its own, else the one that this process was given.
///
/// # Errors
/// `invalid` where there is none.
pub(super) fn redis_url(definition: &Definition) -> Result<String, Error> {
    let of_process = || std::env::var(REDIS).ok().filter(|url| !url.is_empty());
    definition.redis.clone().or_else(of_process).ok_or_else(|| {
        let why = "redis is missing: give redis://HOST:PORT/DB, or start gateways with FANFOLD_REDIS, which may hold a password";
        refuse(why)
    })
}

/// Has events taken, however long too much waits already: these sources can wait, and what comes again changes nothing.
pub(super) async fn take(
    shared: &Shared,
    triggers: &[&Arc<Trigger>],
    events: Vec<CloudEvent>,
) -> Result<(), Error> {
    loop {
        match take_for(shared, triggers, events.clone()).await {
            Err(error) if error.kind == Kind::Overloaded && error.code != Code::Draining => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            taken => return taken.map(drop),
        }
    }
}

/// The triggers that read a feed.
fn readers(shared: &Shared, feed: &Feed) -> Vec<Arc<Trigger>> {
    let catalog = shared.registry.catalog();
    let reads = |trigger: &&Arc<Trigger>| Feed::of(trigger).as_ref() == Some(feed);
    catalog.triggers().values().filter(reads).cloned().collect()
}

/// Shows what went wrong with each trigger that reads the feed; the log has it when it is new.
fn trouble(shared: &Shared, feed: &Feed, error: &Error) {
    let mut new = false;
    for trigger in readers(shared, feed) {
        let trouble = TroubleView { at_ms: clock::now_ms(), error: error.clone() };
        shared.triggers.change(trigger.name(), |figures| {
            new |= figures.trouble.as_ref().is_none_or(|known| known.error != trouble.error);
            figures.trouble = Some(trouble);
        });
    }
    if new {
        tracing::warn!(%error, ?feed, "what triggers read from fails; trying on");
    }
}
