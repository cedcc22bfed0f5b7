//! A slab: values by small dense indices.
//!
//! A removed index rests until [`Slab::recycle`], so that within one step of the scheduler an index never comes to
//! mean something else while it is still noted somewhere.

use std::ops::{Index, IndexMut};

/// A typed index of a slab.
pub(crate) trait Key: Copy {
    fn new(n: u32) -> Self;
    fn get(self) -> usize;
}

macro_rules! key {
    ($(#[$doc:meta] $name:ident),* $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) struct $name(u32);

        impl Key for $name {
            fn new(n: u32) -> Self {
                Self(n)
            }
            fn get(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

key! {
    /// A task.
    TaskIx,
    /// A job.
    JobIx,
    /// An executor.
    ExecutorIx,
    /// An entry of a list of those who wait for an output.
    NodeIx,
    /// Runnable tasks of one shape.
    ClassIx,
}

/// Items of one chunk. A full slab grows by a chunk: nothing is moved, and no room is kept for twice as many.
const CHUNK: usize = 1024;

#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    /// All full but the last.
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<K>,
    resting: Vec<K>,
    len: usize,
}

impl<K, T> Default for Slab<K, T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), resting: Vec::new(), len: 0 }
    }
}

impl<K: Key, T> Slab<K, T> {
    pub fn insert(&mut self, item: T) -> K {
        self.len += 1;
        if let Some(key) = self.free.pop() {
            self.chunks[key.get() / CHUNK][key.get() % CHUNK] = Some(item);
            return key;
        }
        let key = K::new(self.bound() as u32);
        match self.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK) {
            Some(chunk) => chunk.push(Some(item)),
            None => {
                // The first chunk grows as needed; who fills it will need most of the next.
                let mut chunk = Vec::with_capacity(if self.chunks.is_empty() { 0 } else { CHUNK });
                chunk.push(Some(item));
                self.chunks.push(chunk);
            }
        }
        key
    }

    pub fn remove(&mut self, key: K) -> Option<T> {
        let item = self.chunks.get_mut(key.get() / CHUNK)?.get_mut(key.get() % CHUNK)?.take()?;
        self.len -= 1;
        self.resting.push(key);
        Some(item)
    }

    /// Lets indices removed so far be used again.
    pub fn recycle(&mut self) {
        self.free.append(&mut self.resting);
    }

    pub fn get(&self, key: K) -> Option<&T> {
        self.chunks.get(key.get() / CHUNK)?.get(key.get() % CHUNK)?.as_ref()
    }

    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.chunks.get_mut(key.get() / CHUNK)?.get_mut(key.get() % CHUNK)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// One more than the largest index ever used.
    pub fn bound(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// All items, by index.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let items = self.chunks.iter().flatten().enumerate();
        items.filter_map(|(n, item)| Some((K::new(n as u32), item.as_ref()?)))
    }

    /// All items, by index, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        let items = self.chunks.iter_mut().flatten().enumerate();
        items.filter_map(|(n, item)| Some((K::new(n as u32), item.as_mut()?)))
    }
}

impl<K: Key, T> Index<K> for Slab<K, T> {
    type Output = T;
    #[track_caller]
    fn index(&self, key: K) -> &T {
        match self.get(key) {
            Some(item) => item,
            None => unreachable!("a vacant index was used"),
        }
    }
}

impl<K: Key, T> IndexMut<K> for Slab<K, T> {
    #[track_caller]
    fn index_mut(&mut self, key: K) -> &mut T {
        match self.get_mut(key) {
            Some(item) => item,
            None => unreachable!("a vacant index was used"),
        }
    }
}
