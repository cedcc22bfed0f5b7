//! The owners of the journal shards that this gateway has: that of its own, which takes new jobs, and those it took over
//! from gateways that are gone.

use std::sync::Arc;

use arc_swap::ArcSwap;
use fanfold_protocol::link::{ShardName, ShardTag};

use crate::owner::Owner;

/// A shard and its owner.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) name: ShardName,
    pub(crate) tag: ShardTag,
    /// The epoch under which it is owned.
    pub(crate) epoch: u64,
    pub(crate) owner: Owner,
}

impl Shard {
    pub(crate) fn new(name: ShardName, epoch: u64, owner: Owner) -> Self {
        let tag = name.tag();
        Self { name, tag, epoch, owner }
    }
}

/// See the module.
pub(crate) struct Owners {
    home: Shard,
    adopted: ArcSwap<Vec<Shard>>,
}

impl Owners {
    /// Only the shard of its own.
    pub(crate) fn new(home: Shard) -> Self {
        Self { home, adopted: ArcSwap::default() }
    }

    /// The shard of its own.
    pub(crate) fn home(&self) -> &Shard {
        &self.home
    }

    /// Those it took over.
    pub(crate) fn adopted(&self) -> Arc<Vec<Shard>> {
        self.adopted.load_full()
    }

    /// All of them, its own first.
    pub(crate) fn all(&self) -> Vec<Shard> {
        std::iter::once(&self.home).chain(&**self.adopted.load()).cloned().collect()
    }

    /// The owner of the jobs with this tag.
    pub(crate) fn of(&self, tag: ShardTag) -> Option<Owner> {
        self.tagged(tag).map(|shard| shard.owner)
    }

    /// A shard by tag.
    pub(crate) fn tagged(&self, tag: ShardTag) -> Option<Shard> {
        self.find(|shard| shard.tag == tag)
    }

    /// A shard by name.
    pub(crate) fn named(&self, name: &ShardName) -> Option<Shard> {
        self.find(|shard| shard.name == *name)
    }

    /// Adds one that was taken over.
    pub(crate) fn adopt(&self, shard: Shard) {
        self.change(|adopted| adopted.push(shard.clone()));
    }

    /// Takes one off that was taken over.
    pub(crate) fn give_up(&self, name: &ShardName) {
        self.change(|adopted| adopted.retain(|shard| shard.name != *name));
    }

    fn change(&self, change: impl Fn(&mut Vec<Shard>)) {
        self.adopted.rcu(|adopted| {
            let mut adopted = Vec::clone(adopted);
            change(&mut adopted);
            adopted
        });
    }

    fn find(&self, is: impl Fn(&Shard) -> bool) -> Option<Shard> {
        if is(&self.home) {
            return Some(self.home.clone());
        }
        self.adopted.load().iter().find(|shard| is(shard)).cloned()
    }
}
