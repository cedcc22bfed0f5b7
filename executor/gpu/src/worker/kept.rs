//! What a worker keeps beyond its sessions: things that were dear to make, the least recently used of which go first.

use std::{collections::HashMap, hash::Hash};

/// A bounded cache.
pub(super) struct Kept<K, V> {
    max: usize,
    /// Counts uses.
    now: u64,
    things: HashMap<K, (u64, V)>,
}

impl<K: Hash + Eq + Clone, V: Clone> Kept<K, V> {
    /// Keeps at most `max`, which is over 0.
    pub fn new(max: usize) -> Self {
        Self { max, now: 0, things: HashMap::new() }
    }

    /// What was kept under this key.
    pub fn get(&mut self, key: &K) -> Option<V> {
        self.now += 1;
        let (used, thing) = self.things.get_mut(key)?;
        *used = self.now;
        Some(thing.clone())
    }

    /// Keeps a thing, in place of the one that was not used for longest. That is looked for among all: there are few, and what was
    /// just made took thousands of times as long.
    pub fn put(&mut self, key: K, thing: V) {
        if self.things.len() >= self.max {
            let oldest = self.things.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.things.remove(&oldest);
            }
        }
        self.now += 1;
        self.things.insert(key, (self.now, thing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_lately_stays() {
        let mut kept = Kept::new(2);
        kept.put('a', 1);
        kept.put('b', 2);
        assert_eq!(kept.get(&'a'), Some(1));
        kept.put('c', 3);
        assert_eq!((kept.get(&'a'), kept.get(&'b'), kept.get(&'c')), (Some(1), None, Some(3)));
    }
}
