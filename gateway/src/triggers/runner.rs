//! The task that does what is due: batches that close, times of schedules, listings, batches that failed and are split.
//!
//! It keeps nothing that matters: what waits and how far schedules are is asked of the owner, what is due follows from that and the
//! time, and what was done is recorded by the run itself. It works in the gateway that has the shard with the keys, and rests in
//! all others.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use fanfold_protocol::{Digest, Error, FunctionName, trigger::Batch};
use fanfold_triggers::batch::{self, Due, Waiting};
use futures::future::try_join_all;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{feeds::Feeds, fire, follow, listing};
use crate::{
    clock,
    cluster::forward,
    owner::{ENDED_MAX, Owner, Triggers},
    registry::{Catalog, Trigger},
    shared::Shared,
};

/// The longest time between two looks: definitions change, and shards move, without a word to this task.
const LOOK_EVERY_MS: u64 = 500;

/// How long after it broke off a listing is made again.
const LIST_AGAIN_MS: u64 = 10_000;

/// The running task.
pub(crate) struct Runner {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Runner {
    /// Begins to look.
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let work = Work {
            shared,
            tasks: tasks.clone(),
            stop: stop.clone(),
            listed: HashMap::new(),
            feeds: Feeds::default(),
            failing: BTreeMap::new(),
        };
        tasks.spawn(work.run());
        Self { tasks, stop }
    }

    /// Begins nothing any more, and waits for what is under way. Listings are broken off.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

struct Work {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// What each trigger listed last, and when it lists again; a listing that is under way counts as begun.
    listed: HashMap<FunctionName, (Digest, u64)>,
    feeds: Feeds,
    /// What does not succeed, so that each reason is logged once.
    failing: BTreeMap<String, String>,
}

impl Work {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let here = forward::keys_elsewhere(&self.shared).is_none();
            let owner = self.shared.taker(true);
            let mut wake_ms = clock::now_ms() + LOOK_EVERY_MS;
            wake_ms = wake_ms.min(self.follow().await);
            if here {
                wake_ms = wake_ms.min(self.turn(&owner).await);
            } else {
                self.listed.clear();
                self.feeds.end();
            }
            let rest = Duration::from_millis(wake_ms.saturating_sub(clock::now_ms()).max(1));
            tokio::select! {
                () = stop.cancelled() => return,
                () = owner.events_changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// Does what follows from the ends of jobs of all shards that are here; when to look for more.
    async fn follow(&mut self) -> u64 {
        let mut wake_ms = u64::MAX;
        for shard in self.shared.owners.all() {
            let wrote = follow::wrote(&self.shared, shard.owner.take_wrote()).await;
            self.note("the events of objects that functions wrote", wrote.as_ref().err());
            // One that is being replaced is none of ours.
            let Ok(states) = shard.owner.triggers().await else { continue };
            if states.ended.is_empty() {
                continue;
            }
            let done = follow::all(&self.shared, &shard.owner, &states.ended).await;
            self.note("what follows from the ends of jobs", done.as_ref().err());
            if done.is_ok() && states.ended.len() == ENDED_MAX {
                wake_ms = 0;
            }
        }
        wake_ms
    }

    /// Does all that is due now; when something is due again.
    async fn turn(&mut self, owner: &Owner) -> u64 {
        let states = match owner.triggers().await {
            Ok(states) => states,
            Err(error) => {
                self.note("what triggers wait for", Some(&error));
                return u64::MAX;
            }
        };
        let catalog = self.shared.registry.catalog();
        for job in &states.failed {
            let split = owner.split_batch(*job).await;
            self.note(&format!("splitting batch {job}"), split.as_ref().err());
        }
        let batches_ms = self.close_batches(owner, &catalog, &states).await;
        let schedules_ms = self.fire_schedules(owner, &catalog, &states).await;
        self.list(&catalog);
        self.feeds.keep(&self.shared, &catalog, &self.tasks, &self.stop);
        batches_ms.min(schedules_ms)
    }

    async fn close_batches(&mut self, owner: &Owner, catalog: &Catalog, states: &Triggers) -> u64 {
        let mut wake_ms = u64::MAX;
        for (name, waiting) in &states.waiting {
            let trigger = catalog.triggers().get(name);
            if trigger.is_some_and(|trigger| trigger.definition().paused) {
                continue;
            }
            // Events of a trigger that is gone, or gathers no more, have waited long enough.
            let policy = trigger.and_then(|trigger| trigger.definition().batch);
            let policy = policy.unwrap_or(Batch { window: 0, ..Batch::default() });
            match batch::due(&policy, waiting, clock::now_ms()) {
                Due::Never => {}
                Due::At(at_ms) => wake_ms = wake_ms.min(at_ms),
                Due::Now => {
                    let closed = self.close(owner, name, &policy).await;
                    self.note(&format!("the batch of trigger `{name}`"), closed.as_ref().err());
                    // There may be more than were looked at.
                    wake_ms = if closed.is_ok() { 0 } else { wake_ms };
                }
            }
        }
        wake_ms
    }

    /// Makes runs of the batches that are full or old enough.
    async fn close(&self, owner: &Owner, name: &FunctionName, policy: &Batch) -> Result<(), Error> {
        let batches = owner.held(name.clone(), *policy).await?;
        let now_ms = clock::now_ms();
        let last = batches.len();
        let accept = async |(index, events): (usize, Vec<_>)| {
            let run = fire::batch(&self.shared, &events).await?;
            self.shared.triggers.change(name, |figures| figures.runs += 1);
            owner.accept(run).await.map(|job| (index, job))
        };
        let due = batches.into_iter().enumerate().filter(|(index, events)| {
            let bytes = events.iter().fold(0_u64, |sum, held| sum.saturating_add(held.bytes));
            let since_ms = events.first().map_or(0, |held| held.at_ms);
            let waiting = Waiting { events: events.len() as u64, bytes, since_ms };
            // One that others follow took all that fits.
            index + 1 < last || batch::due(policy, &waiting, now_ms) == Due::Now
        });
        try_join_all(due.map(accept)).await.map(drop)
    }

    async fn fire_schedules(&mut self, owner: &Owner, catalog: &Catalog, states: &Triggers) -> u64 {
        let mut wake_ms = u64::MAX;
        for trigger in catalog.triggers().values().filter(|trigger| !trigger.definition().paused) {
            let Some(schedule) = &trigger.schedule else { continue };
            let cursor = states.cursors.get(trigger.name());
            let running = cursor.is_some_and(|cursor| cursor.running);
            let due = schedule.due(cursor.map(|cursor| cursor.at_ms), running, clock::now_ms());
            wake_ms = wake_ms.min(due.wake_ms.unwrap_or(u64::MAX));
            let done = self.fire(owner, trigger, &due.fire, due.pass).await;
            self.note(&format!("the schedule of trigger `{}`", trigger.name()), done.as_ref().err());
        }
        wake_ms
    }

    async fn fire(
        &self,
        owner: &Owner,
        trigger: &Trigger,
        times: &[u64],
        pass: Option<u64>,
    ) -> Result<(), Error> {
        if let Some(at_ms) = pass {
            owner.pass(trigger.name().clone(), at_ms).await?;
        }
        // One after the other: a later time stands for those before it.
        for at_ms in times {
            let target = fire::target(&self.shared, trigger).await?;
            owner.accept(fire::scheduled(trigger, &target, *at_ms)?).await?;
            self.shared.triggers.change(trigger.name(), |figures| {
                figures.events += 1;
                figures.runs += 1;
            });
        }
        Ok(())
    }

    /// Begins the listings that are due.
    fn list(&mut self, catalog: &Catalog) {
        let now_ms = clock::now_ms();
        self.listed.retain(|name, _| catalog.triggers().contains_key(name));
        for trigger in catalog.triggers().values().filter(|trigger| !trigger.definition().paused) {
            let Some(every_ms) = trigger.definition().listing_every_ms() else { continue };
            let what = listing::what(trigger);
            if !self.is_due(trigger, what, now_ms) {
                continue;
            }
            self.listed.insert(trigger.name().clone(), (what, now_ms + every_ms));
            self.shared.triggers.change(trigger.name(), |figures| figures.listing_now = true);
            let (shared, trigger, stop) = (Arc::clone(&self.shared), Arc::clone(trigger), self.stop.clone());
            self.tasks.spawn(async move {
                let listed = tokio::select! {
                    listed = listing::list(&shared, &trigger) => Some(listed),
                    () = stop.cancelled() => None,
                };
                shared.triggers.change(trigger.name(), |figures| {
                    figures.listing_now = false;
                    figures.listing = listed.or(figures.listing.take());
                });
            });
        }
    }

    fn is_due(&self, trigger: &Trigger, what: Digest, now_ms: u64) -> bool {
        let figures = self.shared.triggers.of(trigger.name());
        let broken_off = figures.listing.filter(|listing| listing.error.is_some());
        let again = broken_off.is_some_and(|listing| listing.at_ms + LIST_AGAIN_MS <= now_ms);
        let listed = self.listed.get(trigger.name());
        let due = listed.is_none_or(|(was, next_ms)| *was != what || *next_ms <= now_ms);
        (due || again) && !figures.listing_now
    }

    /// Logs a failure when it begins or changes, and its end.
    fn note(&mut self, what: &str, error: Option<&Error>) {
        match error {
            None => {
                if self.failing.remove(what).is_some() {
                    tracing::info!("{what}: it succeeds again");
                }
            }
            Some(error) => {
                let why = error.to_string();
                if self.failing.get(what) != Some(&why) {
                    tracing::warn!(%error, "{what}: it failed; trying on");
                    self.failing.insert(what.to_owned(), why);
                }
            }
        }
    }
}
