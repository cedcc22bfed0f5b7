//! The listing of a trigger: finds what no event told of, what was there before (`backfill`), and what is gone.
//!
//! The store's keys, in their order, are merged with what the last listing saw, in the same order: both as streams, so a listing
//! holds a page of the one and a piece of the other. Differences become events, which are known already where an event told of them.
//! What was seen is replaced at the end, once all of them are recorded: a listing that breaks off changes nothing.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use fanfold_protocol::{
    Code, Digest, Error, Kind, limit,
    rest::{ListingView, ObjectView},
    trigger::{Change, Trigger as Definition},
};
use fanfold_store::{objects::ObjectStream, seen::SeenWriter};
use fanfold_triggers::{
    ObjectChange, filter,
    seen::{Lines, Seen, Step, step},
};
use futures::TryStreamExt as _;

use super::take_for;
use crate::{clock, registry::Trigger, shared::Shared};

/// Changes that are taken as events together.
const TAKEN_MAX: usize = 1_000;
/// How long it waits where too much waits already.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of what was seen that are written together.
const PIECE_BYTES: usize = 256 << 10;

/// What a trigger lists: where this changes, what was seen before means nothing.
pub(super) fn what(trigger: &Trigger) -> Digest {
    let Definition { prefix, suffix, bytes_min, bytes_max, .. } = trigger.definition();
    let number = |number: &Option<u64>| number.map_or(Vec::new(), |number| number.to_be_bytes().to_vec());
    let created = trigger.record.created_at_ms.to_be_bytes();
    let sizes = (number(bytes_min), number(bytes_max));
    Digest::of_parts(&[&created, prefix.as_bytes(), suffix.as_bytes(), &sizes.0, &sizes.1])
}

/// Makes a listing; what it came to.
pub(super) async fn list(shared: &Shared, trigger: &Arc<Trigger>) -> ListingView {
    let mut view = ListingView { at_ms: 0, objects: 0, found: 0, error: None };
    let listed = merge(shared, trigger, &mut view).await;
    if let Err(error) = &listed {
        tracing::warn!(trigger = %trigger.name(), %error, "a listing broke off; the next one finds what it missed");
    }
    ListingView { at_ms: clock::now_ms(), error: listed.err(), ..view }
}

async fn merge(shared: &Shared, trigger: &Arc<Trigger>, view: &mut ListingView) -> Result<(), Error> {
    let (store, what) = (&shared.store, what(trigger));
    let before = store.seen(trigger.name(), what).await?;
    // Without backfill, the first listing only takes down what was there before the trigger.
    let first = before.is_none() && !trigger.definition().backfill;
    let old = |object: &ObjectView| first && object.modified_at_ms < trigger.record.created_at_ms;
    let mut known = Known { pieces: before, lines: Lines::default(), ready: VecDeque::new() };
    let mut listing = Listing { shared, trigger, page: VecDeque::new(), after: Some(String::new()) };
    let mut changes = Changes { shared, trigger, taken: Vec::new() };
    let mut out = Out { writer: store.see(trigger.name(), what), lines: Vec::new() };
    loop {
        let (object, seen) = (listing.peek().await?, known.peek().await?);
        let next = step(object.map(|object| (object.key.as_str(), object.etag.as_str())), seen);
        let object = matches!(next, Step::Same | Step::Changed | Step::Created)
            .then(|| listing.page.pop_front())
            .flatten();
        let seen = matches!(next, Step::Same | Step::Changed | Step::Removed)
            .then(|| known.ready.pop_front())
            .flatten();
        if next == Step::End {
            break;
        }
        if let Some(object) = object {
            view.objects += 1;
            out.write(&object).await?;
            if next != Step::Same && !old(&object) {
                view.found += 1;
                changes.push(created(object)).await?;
            }
        } else if let Some(seen) = seen {
            view.found += 1;
            changes.push(removed(seen)).await?;
        }
    }
    changes.take().await?;
    out.finish().await
}

fn created(object: ObjectView) -> ObjectChange {
    change(object.key, object.etag, Change::Created, Some(object.bytes), object.modified_at_ms)
}

fn removed(seen: Seen) -> ObjectChange {
    change(seen.key, seen.etag, Change::Removed, None, clock::now_ms())
}

fn change(key: String, etag: String, change: Change, bytes: Option<u64>, at_ms: u64) -> ObjectChange {
    ObjectChange { bucket: None, key, change, bytes, etag: Some(etag), version: None, sequencer: None, at_ms }
}

/// The store's objects that the trigger waits for.
struct Listing<'a> {
    shared: &'a Shared,
    trigger: &'a Trigger,
    page: VecDeque<ObjectView>,
    /// Where the next page begins; `None` after the last one.
    after: Option<String>,
}

impl Listing<'_> {
    async fn peek(&mut self) -> Result<Option<&ObjectView>, Error> {
        let definition = self.trigger.definition();
        while self.page.is_empty()
            && let Some(after) = self.after.take()
        {
            let objects = self.shared.store.objects();
            let page = objects.list(&definition.prefix, Some(&after), limit::LIST_PAGE_MAX).await?;
            self.after = page.next;
            self.page.extend(
                page.items.into_iter().filter(|object| filter::wants(definition, &object.key, object.bytes)),
            );
        }
        Ok(self.page.front())
    }
}

/// What was seen before.
struct Known {
    pieces: Option<ObjectStream>,
    lines: Lines,
    ready: VecDeque<Seen>,
}

impl Known {
    async fn peek(&mut self) -> Result<Option<&Seen>, Error> {
        while self.ready.is_empty()
            && let Some(pieces) = &mut self.pieces
        {
            match pieces.try_next().await? {
                Some(piece) => self.ready.extend(self.lines.push(&piece)?),
                None => self.pieces = None,
            }
        }
        Ok(self.ready.front())
    }
}

/// Changes on their way to be events.
struct Changes<'a> {
    shared: &'a Shared,
    trigger: &'a Arc<Trigger>,
    taken: Vec<ObjectChange>,
}

impl Changes<'_> {
    async fn push(&mut self, change: ObjectChange) -> Result<(), Error> {
        self.taken.push(change);
        if self.taken.len() >= TAKEN_MAX { self.take().await } else { Ok(()) }
    }

    /// Has them taken. Where too much waits already, so does the listing: it is the one source that can.
    async fn take(&mut self) -> Result<(), Error> {
        // A key that can be no attribute of an event fires nothing.
        let events: Vec<_> = self.taken.drain(..).filter_map(|change| change.event().ok()).collect();
        loop {
            self.still_wanted()?;
            match take_for(self.shared, &[self.trigger], events.clone()).await {
                Err(error) if error.kind == Kind::Overloaded && error.code != Code::Draining => {
                    tokio::time::sleep(PAUSE).await;
                }
                taken => return taken.map(drop),
            }
        }
    }

    /// A long listing may outlive its trigger.
    fn still_wanted(&self) -> Result<(), Error> {
        let (catalog, record) = (self.shared.registry.catalog(), &self.trigger.record);
        let now = catalog.trigger(&record.name)?;
        if now.definition().paused || now.record.created_at_ms != record.created_at_ms {
            return Err(Error::not_found(
                Code::Trigger,
                format!("trigger `{}` is paused or another one", record.name),
            ));
        }
        Ok(())
    }
}

/// What is seen now.
struct Out {
    writer: SeenWriter,
    lines: Vec<u8>,
}

impl Out {
    async fn write(&mut self, object: &ObjectView) -> Result<(), Error> {
        Seen { key: object.key.clone(), etag: object.etag.clone() }.write(&mut self.lines);
        if self.lines.len() < PIECE_BYTES {
            return Ok(());
        }
        self.writer.write(Bytes::from(std::mem::take(&mut self.lines))).await
    }

    async fn finish(mut self) -> Result<(), Error> {
        self.writer.write(self.lines.into()).await?;
        self.writer.finish().await
    }
}
