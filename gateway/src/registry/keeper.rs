//! The task that makes changes and sees those of others.

use std::{
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, Release},
    },
    time::Duration,
};

use fanfold_protocol::{Error, record::Record};
use fanfold_store::{SharedLog, shared_log::Appended};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{Catalog, Change, Shared};
use crate::clock;

/// Time between two looks at what others appended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many requests to look are answered by one look.
const LOOKS_MAX: usize = 64;

type Answer<T> = oneshot::Sender<Result<T, Error>>;

pub(super) enum Request {
    Change { change: Change, answer: Answer<bool> },
    Look { answer: Answer<()> },
}

/// See the module.
pub struct Keeper {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    log: SharedLog,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>, requests: mpsc::Receiver<Request>, log: SharedLog) -> Self {
        Self { shared, requests, log }
    }

    /// Works until no handle is left or `stop` resolves; a change that has begun is finished first.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        let mut look = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut requests, mut failing) = (Vec::new(), false);
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => return,
                taken = self.requests.recv_many(&mut requests, LOOKS_MAX) => {
                    if taken == 0 {
                        return;
                    }
                    self.work_off(&mut requests).await;
                }
                _ = look.tick(), if self.shared.followed => {
                    let looked = self.catch_up().await;
                    match &looked {
                        Err(error) if !failing => {
                            tracing::warn!(%error, "what other gateways deploy cannot be seen; trying on");
                        }
                        Ok(()) if failing => tracing::info!("what other gateways deploy is seen again"),
                        _ => {}
                    }
                    failing = looked.is_err();
                }
            }
        }
    }

    /// Those who asked for a look before it began share it; changes are made one by one, in order.
    async fn work_off(&self, requests: &mut Vec<Request>) {
        let mut looking = Vec::new();
        for request in requests.drain(..) {
            match request {
                Request::Look { answer } => looking.push(answer),
                // Whoever asked may have gone away; the change stands all the same.
                Request::Change { change, answer } => {
                    let _ = answer.send(self.make(&change).await);
                }
            }
        }
        if !looking.is_empty() {
            let looked = self.catch_up().await;
            for answer in looking {
                let _ = answer.send(looked.clone());
            }
        }
    }

    async fn make(&self, change: &Change) -> Result<bool, Error> {
        loop {
            self.catch_up().await?;
            let records = change.records(&self.shared.catalog.load(), clock::now_ms())?;
            if records.is_empty() {
                return Ok(false);
            }
            if self.append(records).await? {
                return Ok(true);
            }
        }
    }

    /// Appends an entry after the last known one and publishes it. `false`: somebody else was faster.
    async fn append(&self, records: Vec<Record>) -> Result<bool, Error> {
        let seq = self.shared.seq.load(Relaxed) + 1;
        let appended = self.log.append(seq, records.clone()).await? == Appended::Written;
        if appended {
            self.publish(seq, &records);
            if SharedLog::wants_checkpoint(seq) {
                self.checkpoint(seq).await;
            }
        }
        Ok(appended)
    }

    /// Reads the log to its tail.
    pub(super) async fn catch_up(&self) -> Result<(), Error> {
        let entries = self.log.read_from(self.shared.seq.load(Relaxed) + 1).await?;
        let Some((seq, _)) = entries.last() else { return Ok(()) };
        let records: Vec<_> = entries.iter().flat_map(|(_, records)| records).cloned().collect();
        self.publish(*seq, &records);
        Ok(())
    }

    /// Makes `earlier` the first entry of a log that has none.
    pub(super) async fn take_over(&self, earlier: Vec<Record>) -> Result<(), Error> {
        if earlier.is_empty() || self.shared.seq.load(Relaxed) > 0 {
            return Ok(());
        }
        tracing::info!(records = earlier.len(), "functions move from the journal to a log of their own");
        if self.append(earlier).await? { Ok(()) } else { self.catch_up().await }
    }

    fn publish(&self, seq: u64, records: &[Record]) {
        let mut next = Catalog::clone(&self.shared.catalog.load());
        records.iter().for_each(|record| next.fold(record));
        self.shared.catalog.store(Arc::new(next));
        // After the catalog: who sees the number finds what it stands for.
        self.shared.seq.store(seq, Release);
    }

    /// Without it, the next gateway that starts has more to read.
    async fn checkpoint(&self, seq: u64) {
        if let Err(error) = self.log.checkpoint(seq, self.shared.catalog.load().records()).await {
            tracing::warn!(%error, "no checkpoint of functions could be written");
        }
    }
}
