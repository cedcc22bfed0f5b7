//! Who is alive: every process of a cluster announces itself once a second, and sees who else does.
//!
//! This is memory that can be lost. An announcement lives for three seconds unless it is repeated, so whatever a Redis
//! forgets is there again a second later. While it is away everybody keeps the last [`View`], marked as not reachable:
//! nobody may take silence for death then. What is true of jobs and shards is in the object store, not here.
//!
//! - `keeper`: the task that announces and looks.
//! - `directory`: where announcements are: Redis, or this process's memory. Its clock alone decides what has expired.

mod directory;
mod keeper;

use std::sync::{Arc, Mutex, PoisonError};

use fanfold_protocol::{Error, cluster::Member};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::Instant,
};

use self::{
    directory::{Directory, Redis},
    keeper::{Desk, Keeper},
};
use crate::redis_client::check_namespace;

/// Members that a cluster may have: bounds what one announcement brings back, and what a Redis holds.
pub const MEMBERS_MAX: usize = 4096;

/// A handle to the members of one cluster; cheap to clone. With the last clone and the last [`Announcement`], what they
/// announced is no longer repeated.
#[derive(Clone, Debug)]
pub struct Members(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    desk: Arc<Desk>,
    view: watch::Receiver<Arc<View>>,
    /// The keeper; ends with this.
    _keeper: Mutex<JoinSet<()>>,
}

/// Who was alive at some time.
#[derive(Clone, Debug)]
pub struct View {
    /// By id, oneself included.
    pub members: Vec<Member>,
    /// When this was seen.
    pub at: Instant,
    /// Whether the last look succeeded. Otherwise the members are those of the last that did.
    pub reachable: bool,
}

impl Members {
    /// The members in the namespace (`a-z`, `0-9`, `-`) of a Redis, `redis://[[user]:password@]host:port[/db]` or
    /// `rediss://` for TLS. Looks once, so that what is wrong shows at once; from then on its absence is waited out.
    ///
    /// # Errors
    /// `invalid` for a URL or namespace that is none; `platform` / `storage`, retryable where the Redis was not reached, not
    /// where it refused.
    pub async fn redis(url: &str, namespace: &str) -> Result<Self, Error> {
        check_namespace(namespace)?;
        let mut directory = Directory::Redis(Box::new(Redis::new(url, namespace)?));
        let members = directory.look().await?;
        Ok(Self::over(directory, members))
    }

    /// Members that live and die with this process; clones of the handle see each other's.
    pub fn in_memory() -> Self {
        Self::over(Directory::memory(), Vec::new())
    }

    fn over(directory: Directory, members: Vec<Member>) -> Self {
        let desk = Arc::new(Desk::default());
        let (tell, view) = watch::channel(Arc::new(View { members, at: Instant::now(), reachable: true }));
        let mut keeper = JoinSet::new();
        keeper.spawn(Keeper::new(desk.clone(), directory, tell).run());
        Self(Arc::new(Inner { desk, view, _keeper: Mutex::new(keeper) }))
    }

    /// Announces a member at once and then every second, until it is withdrawn or the answer is dropped.
    pub fn announce(&self, member: Member) -> Announcement {
        let id = member.id;
        self.0.desk.with(|announced| announced.members.insert(id, member));
        self.0.desk.call();
        Announcement { members: self.clone(), id }
    }

    /// Who is alive, as it was last seen; changes about once a second.
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.0.view.clone()
    }
}

/// A member that is being announced. Dropped without [`Announcement::withdraw`], it expires as after a crash.
#[derive(Debug)]
#[must_use = "it is announced only as long as this is kept"]
pub struct Announcement {
    members: Members,
    id: u64,
}

impl Announcement {
    /// Changes what is announced, and announces it at once. Its id stays.
    pub fn update(&self, change: impl FnOnce(&mut Member)) {
        self.members.0.desk.with(|announced| {
            if let Some(member) = announced.members.get_mut(&self.id) {
                change(member);
                member.id = self.id;
            }
        });
        self.members.0.desk.call();
    }

    /// Takes the member off the list; returns when that is done, or when it turns out that nobody can be told.
    pub async fn withdraw(self) {
        let (done, answer) = oneshot::channel();
        self.members.0.desk.with(|announced| {
            announced.members.remove(&self.id);
            announced.leaving.push((self.id, done));
        });
        self.members.0.desk.call();
        // An error would mean that the keeper is gone, and with it what is announced.
        let _ = answer.await;
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.members.0.desk.with(|announced| announced.members.remove(&self.id));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
