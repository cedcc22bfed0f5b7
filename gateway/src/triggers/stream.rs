//! Entries of a Redis stream, taken as events by one trigger, whose own consumer group delivers them.
//!
//! An entry is acknowledged once what it led to is recorded. One that can never be taken stays with the group, and is told.

use std::sync::Arc;

use fanfold_protocol::{Error, Kind};
use fanfold_store::stream::{Entry, Stream};
use fanfold_triggers::{CloudEvent, stream};

use super::feeds;
use crate::{clock, registry::Trigger, shared::Shared};

/// Entries that are taken together.
const ENTRIES_MAX: usize = 256;
/// How long a request waits for the first: shorter than a Redis may take to answer.
const WAIT_MS: u64 = 500;
/// An entry that was delivered so long ago and not acknowledged is stuck.
const STUCK_MS: u64 = 60_000;

/// A trigger's stream while it is read.
pub(super) struct Reading {
    stream: Stream,
    name: String,
    /// What was delivered so long ago and not acknowledged is claimed at the next look: for a new reader, all of it.
    idle_ms: u64,
    /// When that is: Unix milliseconds.
    look_at_ms: u64,
}

impl Reading {
    /// Begins to read: makes the trigger's group, which gets what came after the trigger, or with `backfill` everything.
    ///
    /// # Errors
    /// Those of [`Stream`].
    pub(super) async fn begin(trigger: &Trigger) -> Result<Self, Error> {
        let (definition, record) = (trigger.definition(), &trigger.record);
        let name = definition.stream.clone().unwrap_or_default();
        let group = format!("fanfold:{}:{}", record.name, record.created_at_ms);
        let mut stream = Stream::open(&feeds::redis_url(definition)?, &name, &group)?;
        let from = if definition.backfill { "0".to_owned() } else { format!("{}-0", record.created_at_ms) };
        stream.begin(&from).await?;
        // Whoever read before is gone, and what it did not acknowledge comes first.
        Ok(Self { stream, name, idle_ms: 0, look_at_ms: 0 })
    }

    /// Takes what is there, or waits a little for it. `Some`: what kept an entry from being taken.
    ///
    /// # Errors
    /// Those of [`Stream`]; those of taking but `invalid`.
    pub(super) async fn turn(
        &mut self,
        shared: &Shared,
        trigger: &Arc<Trigger>,
    ) -> Result<Option<Error>, Error> {
        let mut poison = None;
        if self.look_at_ms <= clock::now_ms() {
            let mut after = Some("0-0".to_owned());
            while let Some(from) = after {
                let (entries, next) = self.stream.claim(self.idle_ms, &from, ENTRIES_MAX).await?;
                poison = self.take(shared, trigger, entries).await?.or(poison);
                after = next;
            }
            (self.idle_ms, self.look_at_ms) = (STUCK_MS, clock::now_ms() + STUCK_MS);
        }
        let entries = self.stream.read(WAIT_MS, ENTRIES_MAX).await?;
        Ok(self.take(shared, trigger, entries).await?.or(poison))
    }

    async fn take(
        &mut self,
        shared: &Shared,
        trigger: &Arc<Trigger>,
        entries: Vec<Entry>,
    ) -> Result<Option<Error>, Error> {
        if entries.is_empty() {
            return Ok(None);
        }
        let event = |entry: &Entry| stream::event(&self.name, &entry.id, &entry.fields);
        let events: Result<Vec<CloudEvent>, Error> = entries.iter().map(event).collect();
        let taken = match events {
            Ok(events) => feeds::take(shared, &[trigger], events).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => {
                let ids: Vec<_> = entries.into_iter().map(|entry| entry.id).collect();
                self.stream.acknowledge(&ids).await.map(|()| None)
            }
            // One of them; the others are taken by themselves.
            Err(error) if error.kind == Kind::Invalid => self.take_each(shared, trigger, entries).await,
            Err(error) => Err(error),
        }
    }

    async fn take_each(
        &mut self,
        shared: &Shared,
        trigger: &Arc<Trigger>,
        entries: Vec<Entry>,
    ) -> Result<Option<Error>, Error> {
        let mut poison = None;
        for entry in entries {
            let taken = match stream::event(&self.name, &entry.id, &entry.fields) {
                Ok(event) => feeds::take(shared, &[trigger], vec![event]).await,
                Err(error) => Err(error),
            };
            match taken {
                Ok(()) => self.stream.acknowledge(&[entry.id]).await?,
                Err(error) if error.kind == Kind::Invalid => {
                    poison = Some(error.context(format_args!("entry {} is not taken", entry.id)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(poison)
    }
}
