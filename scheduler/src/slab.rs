//! A slab: values by small dense indices.
//!
//! A removed index rests until [`Slab::recycle`], so that within one step of the scheduler an index never comes to
//! mean something else while it is still noted somewhere.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

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

#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    items: Vec<Option<T>>,
    free: Vec<K>,
    resting: Vec<K>,
    len: usize,
    of: PhantomData<K>,
}

impl<K, T> Default for Slab<K, T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new(), resting: Vec::new(), len: 0, of: PhantomData }
    }
}

impl<K: Key, T> Slab<K, T> {
    pub fn insert(&mut self, item: T) -> K {
        self.len += 1;
        match self.free.pop() {
            Some(key) => {
                self.items[key.get()] = Some(item);
                key
            }
            None => {
                self.items.push(Some(item));
                K::new((self.items.len() - 1) as u32)
            }
        }
    }

    pub fn remove(&mut self, key: K) -> Option<T> {
        let item = self.items.get_mut(key.get())?.take()?;
        self.len -= 1;
        self.resting.push(key);
        Some(item)
    }

    /// Lets indices removed so far be used again.
    pub fn recycle(&mut self) {
        self.free.append(&mut self.resting);
    }

    pub fn get(&self, key: K) -> Option<&T> {
        self.items.get(key.get())?.as_ref()
    }

    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.items.get_mut(key.get())?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// One more than the largest index ever used.
    pub fn bound(&self) -> usize {
        self.items.len()
    }

    /// All items, by index.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.items.iter().enumerate().filter_map(|(n, item)| Some((K::new(n as u32), item.as_ref()?)))
    }

    /// All items, by index, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        self.items.iter_mut().enumerate().filter_map(|(n, item)| Some((K::new(n as u32), item.as_mut()?)))
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
