//! The task that keeps what is announced alive, and the view fresh.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fanfold_protocol::{Error, cluster::Member};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, MissedTickBehavior, interval},
};

use super::{View, directory::Directory, lock};

/// Between two announcements; also between two tries while the directory is away.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the keeper is to do: the handles write it down and call.
#[derive(Debug, Default)]
pub(super) struct Desk {
    announced: Mutex<Announced>,
    called: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Announced {
    pub(super) members: BTreeMap<u64, Member>,
    pub(super) leaving: Vec<(u64, oneshot::Sender<()>)>,
}

impl Desk {
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Announced) -> T) -> T {
        change(&mut lock(&self.announced))
    }

    /// Has the keeper look at once.
    pub(super) fn call(&self) {
        self.called.notify_one();
    }
}

#[derive(Debug)]
pub(super) struct Keeper {
    desk: Arc<Desk>,
    directory: Directory,
    tell: watch::Sender<Arc<View>>,
}

impl Keeper {
    pub(super) fn new(desk: Arc<Desk>, directory: Directory, tell: watch::Sender<Arc<View>>) -> Self {
        Self { desk, directory, tell }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.desk.called.notified() => {}
            }
            let (members, leaving) = self.desk.with(|announced| {
                let members: Vec<_> = announced.members.values().cloned().collect();
                (members, std::mem::take(&mut announced.leaving))
            });
            let ids: Vec<_> = leaving.iter().map(|(id, _)| *id).collect();
            let seen = self.round(&members, &ids).await;
            self.publish(seen);
            for (_, done) in leaving {
                // Whoever left may not wait for it any more.
                let _ = done.send(());
            }
        }
    }

    /// Announces and withdraws; the last answer says who is alive.
    async fn round(&mut self, members: &[Member], leaving: &[u64]) -> Result<Vec<Member>, Error> {
        let mut seen = None;
        for id in leaving {
            seen = Some(self.directory.withdraw(*id).await?);
        }
        for member in members {
            seen = Some(self.directory.announce(member).await?);
        }
        match seen {
            Some(seen) => Ok(seen),
            None => self.directory.look().await,
        }
    }

    fn publish(&self, seen: Result<Vec<Member>, Error>) {
        let before = self.tell.borrow().clone();
        let view = match seen {
            Ok(members) => {
                if !before.reachable {
                    tracing::info!(members = members.len(), "the list of members is there again");
                }
                View { members, at: Instant::now(), reachable: true }
            }
            Err(error) => {
                if before.reachable {
                    tracing::warn!("the list of members is as it was: {error}; trying again every second");
                }
                View { members: before.members.clone(), at: before.at, reachable: false }
            }
        };
        // Nobody may be looking.
        self.tell.send_replace(Arc::new(view));
    }
}
