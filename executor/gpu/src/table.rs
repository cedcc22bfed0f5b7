//! Tables of what a session made, by handles that say how often their place was used before: one that was dropped never means
//! something else later.

use fanfold_protocol::{Code, Error, Kind, limit};

use crate::message::Handle;

/// Things of one kind.
pub(crate) struct Table<T> {
    kind: &'static str,
    /// Kind of the handles, in their upper bits: a buffer's handle is no shader's.
    tag: u8,
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    /// How many things were here, the present one included. Wraps after four billion, by which time the session is long over its limits.
    generation: u32,
    thing: Option<T>,
}

const INDEX_BITS: u32 = 24;
const TAG_SHIFT: u32 = 56;
const _: () = assert!(limit::GPU_HANDLES_MAX <= 1 << INDEX_BITS);

impl<T> Table<T> {
    /// An empty one. `kind` is for messages; `tag` is its own among the tables of a session.
    pub(crate) fn new(kind: &'static str, tag: u8) -> Self {
        Self { kind, tag, places: Vec::new(), free: Vec::new() }
    }

    /// Fails where [`limit::GPU_HANDLES_MAX`] are held.
    pub(crate) fn check_room(&self) -> Result<(), Error> {
        if self.free.is_empty() && self.places.len() >= limit::GPU_HANDLES_MAX {
            let message = format!("more than {} {}s are held: drop some", limit::GPU_HANDLES_MAX, self.kind);
            return Err(Error::new(Kind::Limit, Code::GpuMemory, message));
        }
        Ok(())
    }

    /// Keeps a thing.
    pub(crate) fn insert(&mut self, thing: T) -> Result<Handle, Error> {
        self.check_room()?;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.places.push(Place { generation: 0, thing: None });
                (self.places.len() - 1) as u32
            }
        };
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        place.thing = Some(thing);
        Ok(u64::from(self.tag) << TAG_SHIFT | u64::from(place.generation) << INDEX_BITS | u64::from(index))
    }

    /// What a handle means, if it means something.
    pub(crate) fn get(&self, handle: Handle) -> Result<&T, Error> {
        let found = self.place(handle).and_then(|index| self.places[index].thing.as_ref());
        found.ok_or_else(|| self.unknown())
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Result<&mut T, Error> {
        let unknown = self.unknown();
        let index = self.place(handle);
        index.and_then(|index| self.places[index].thing.as_mut()).ok_or(unknown)
    }

    /// Takes a thing out.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let index = self.place(handle)?;
        let thing = self.places[index].thing.take();
        if thing.is_some() {
            self.free.push(index as u32);
        }
        thing
    }

    /// Takes everything out. Handles to it mean nothing from now on.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let free = &mut self.free;
        let places = self.places.iter_mut().enumerate();
        places
            .filter_map(|(index, place)| {
                let thing = place.thing.take()?;
                free.push(index as u32);
                Some(thing)
            })
            .collect()
    }

    fn place(&self, handle: Handle) -> Option<usize> {
        let index = (handle & ((1 << INDEX_BITS) - 1)) as usize;
        let generation = (handle >> INDEX_BITS) as u32;
        let place = self.places.get(index)?;
        (handle >> TAG_SHIFT == u64::from(self.tag) && place.generation == generation).then_some(index)
    }

    fn unknown(&self) -> Error {
        let message = format!("there is no such {}: it was dropped, or made by another session", self.kind);
        Error::new(Kind::Invalid, Code::Gpu, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_means_one_thing_for_ever() {
        let mut table = Table::new("thing", 1);
        let first = table.insert('a').expect("there is room");
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b').expect("there is room");
        assert_ne!(first, second);
        assert_eq!(table.get(first).map_err(|e| e.code), Err(Code::Gpu));
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second).ok(), Some(&'b'));
        let mut other = Table::new("other", 2);
        other.insert('c').expect("there is room");
        other.insert('d').expect("there is room");
        assert!(other.get(second).is_err() && other.get(u64::MAX).is_err());
    }
}
