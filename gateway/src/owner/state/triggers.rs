//! What triggers wait for: events that are held for batches, how far schedules are, batches that are to be split.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::Arc,
};

use fanfold_protocol::{
    Digest, FunctionName, JobId, limit,
    record::{Fired, HeldEvent, Record},
    trigger::Batch,
};
use fanfold_triggers::batch::{self, Waiting};

use super::{Job, State};

/// Bytes of the events of one batch: with commas and brackets they are an input.
const BATCH_BYTES_MAX: usize = limit::INPUT_BYTES_MAX as usize / 2;
const _: () = assert!(BATCH_BYTES_MAX >= limit::HELD_EVENT_BYTES_MAX);

/// See the module's documentation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Triggers {
    held: BTreeMap<FunctionName, Held>,
    /// Keys of all of them.
    keys: HashSet<Digest>,
    /// Bytes of all of them.
    bytes: usize,
    cursors: BTreeMap<FunctionName, Cursor>,
    /// Batches that were given up and not split yet.
    failed: BTreeSet<JobId>,
    /// Jobs that ended, and what follows from it is not done yet.
    ended: BTreeSet<JobId>,
}

/// What one trigger holds. Asked for at every look of who closes batches, so the sum is kept.
#[derive(Clone, PartialEq, Debug, Default)]
struct Held {
    /// The oldest first.
    events: VecDeque<Arc<HeldEvent>>,
    /// Bytes of the objects they tell of. Wide, because events say what they like, and what is added is taken away again.
    bytes: u128,
}

impl Held {
    /// Takes out the events with these keys, which are the oldest but for rare cases; how long they were.
    fn remove(&mut self, keys: &HashSet<Digest>) -> usize {
        let mut gone = Vec::with_capacity(keys.len());
        while let Some(event) = self.events.pop_front_if(|event| keys.contains(&event.key)) {
            gone.push(event);
        }
        if gone.len() < keys.len() {
            let (others, kept) = self.events.drain(..).partition(|event| keys.contains(&event.key));
            self.events = kept;
            gone.extend::<VecDeque<_>>(others);
        }
        for event in &gone {
            self.bytes -= u128::from(event.bytes);
        }
        gone.iter().map(|event| event.event.len()).sum()
    }
}

/// How far a schedule is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The last time that fired or was passed over.
    pub at_ms: u64,
    /// The newest run; it may be forgotten by now.
    pub job: Option<JobId>,
}

impl State {
    /// Whether the event with this key waits for its batch.
    pub fn is_held(&self, key: Digest) -> bool {
        self.triggers.keys.contains(&key)
    }

    /// The oldest events of a trigger, as batches, the last of which may want for more: at most `max` of them.
    pub fn held(&self, trigger: &FunctionName, batch: &Batch, max: usize) -> Vec<Vec<Arc<HeldEvent>>> {
        let Some(Held { events: held, .. }) = self.triggers.held.get(trigger) else { return Vec::new() };
        let (mut batches, mut from) = (Vec::new(), 0);
        while from < held.len() && batches.len() < max {
            let (first, mut room) = (&held[from], BATCH_BYTES_MAX);
            let fits = |held: &&Arc<HeldEvent>| {
                let fits = room >= held.event.len();
                room = room.saturating_sub(held.event.len());
                // What a batch calls is said by its events, and may have changed between two of them.
                fits && held.goes_with(first)
            };
            let count = batch::take(batch, held.range(from..).take_while(fits).map(|held| held.bytes));
            batches.push(held.range(from..from + count).cloned().collect());
            from += count;
        }
        batches
    }

    /// What triggers wait for.
    pub fn triggers(&self) -> &Triggers {
        &self.triggers
    }
}

impl Triggers {
    /// Bytes of all events that are held.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Triggers with events that are held.
    pub fn waiting(&self) -> impl Iterator<Item = (&FunctionName, Waiting)> {
        self.held.iter().filter_map(|(trigger, Held { events, bytes })| {
            let since_ms = events.front()?.at_ms;
            let bytes = u64::try_from(*bytes).unwrap_or(u64::MAX);
            Some((trigger, Waiting { events: events.len() as u64, bytes, since_ms }))
        })
    }

    /// How far schedules are.
    pub fn cursors(&self) -> impl Iterator<Item = (&FunctionName, Cursor)> {
        self.cursors.iter().map(|(trigger, cursor)| (trigger, *cursor))
    }

    /// Batches that were given up and not split yet.
    pub fn failed(&self) -> impl Iterator<Item = JobId> {
        self.failed.iter().copied()
    }

    /// Jobs that ended, and what follows from it is not done yet.
    pub fn ended(&self) -> impl Iterator<Item = JobId> {
        self.ended.iter().copied()
    }

    pub(super) fn hold(&mut self, event: HeldEvent) {
        if self.keys.insert(event.key) {
            self.bytes += event.event.len();
            let held = self.held.entry(event.trigger.clone()).or_default();
            held.bytes += u128::from(event.bytes);
            held.events.push_back(Arc::new(event));
        }
    }

    /// In whatever order these come, the result is the same: the latest time and the newest run.
    pub(super) fn pass(&mut self, trigger: FunctionName, to: Cursor) {
        let cursor = self.cursors.entry(trigger).or_insert(to);
        *cursor = Cursor { at_ms: cursor.at_ms.max(to.at_ms), job: cursor.job.max(to.job) };
    }

    /// A trigger fired: its events wait no longer, and its schedule goes on.
    pub(super) fn fire(&mut self, job: JobId, own: Option<Digest>, fired: &Fired) {
        if let Some(at_ms) = fired.scheduled_ms {
            self.pass(fired.trigger.clone(), Cursor { at_ms, job: Some(job) });
        }
        // With the run's own key: an event that was on its way to be held when its trigger ceased to gather.
        let keys = own.iter().chain(&fired.events);
        let gone: HashSet<_> = keys.filter(|key| self.keys.remove(key)).copied().collect();
        let Some(held) = self.held.get_mut(&fired.trigger).filter(|_| !gone.is_empty()) else { return };
        self.bytes -= held.remove(&gone);
        if held.events.is_empty() {
            self.held.remove(&fired.trigger);
        }
    }

    /// Looks whether a job that has ended is a batch that is to be split, and whether something follows from its end.
    pub(super) fn note(&mut self, job: &Job) {
        let id = job.accepted.job;
        let put =
            |set: &mut BTreeSet<JobId>, wanted: bool| if wanted { set.insert(id) } else { set.remove(&id) };
        put(&mut self.failed, job.is_to_be_split());
        put(&mut self.ended, job.follow);
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.failed.remove(&job);
        self.ended.remove(&job);
    }

    /// Records that fold to this, after those of the jobs.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        let events = self.held.values().flat_map(|held| &held.events);
        let held = events.map(|held| Record::Held(Box::new(HeldEvent::clone(held))));
        let passed = self.cursors.iter().map(|(trigger, cursor)| Record::Passed {
            trigger: trigger.clone(),
            at_ms: cursor.at_ms,
            job: cursor.job,
        });
        held.chain(passed)
    }
}
