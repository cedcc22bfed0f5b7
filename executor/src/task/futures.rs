//! The partitions a task may name, the handles it holds to them, and what is known of them.
//!
//! A task may name its arguments, what they refer to, the outputs of its calls, what it `put`, and whatever is named
//! in a payload that it has. The owner counts a reference for each output of a call; when the task drops one, the
//! owner passes what its bytes name on to the task, which may have adopted some of it. So whatever loses its last
//! handle is reported as dropped, and with it, after it, what it names and the task does not hold.

use std::collections::{HashMap, hash_map::Entry};

use fanfold_protocol::{Error, PartitionId, limit, value::Output};
use slab::Slab;

/// See the module.
#[derive(Debug, Default)]
pub struct Futures {
    handles: Slab<PartitionId>,
    named: HashMap<PartitionId, Named>,
    /// What was dropped and the owner has not been told of, in order.
    dropped: Vec<PartitionId>,
    /// Bytes of the answers in `named`.
    answer_bytes: usize,
}

/// Why a partition exists as long as it is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// As long as the attempt: an argument, something an argument refers to, or something it `put`.
    Attempt,
    /// As long as the owner's reference, which goes with the last handle.
    Counted,
    /// As long as one of these, whose payloads name it.
    Within(Vec<PartitionId>),
}

/// What is known of a partition.
#[derive(Clone, Debug)]
enum Known {
    /// Nothing.
    No,
    /// That it was made or failed. There was no room to keep how.
    Ready,
    /// How it ended.
    Ended(Result<Output, Error>),
}

#[derive(Debug)]
struct Named {
    origin: Origin,
    known: Known,
    /// Partitions named in it, once it is known.
    inner: Vec<PartitionId>,
    /// Handles to it.
    handles: u32,
}

impl Futures {
    /// Makes `id` nameable.
    pub fn name(&mut self, id: PartitionId, origin: Origin) {
        let entry = match self.named.entry(id) {
            Entry::Vacant(free) => {
                free.insert(Named { origin, known: Known::No, inner: Vec::new(), handles: 0 });
                return;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        match (&mut entry.origin, origin) {
            (Origin::Within(all), Origin::Within(more)) => all.extend(more),
            (Origin::Within(_), stronger) => entry.origin = stronger,
            _ => {}
        }
    }

    /// Whether the task may name `id`.
    pub fn may_name(&self, id: PartitionId) -> bool {
        self.named.contains_key(&id)
    }

    /// A new handle to `id`.
    ///
    /// # Errors
    /// [`fanfold_protocol::Kind::Invalid`] where it may not be named, or too many handles are held.
    pub fn hold(&mut self, id: PartitionId) -> Result<u32, Error> {
        if self.room() == 0 {
            return Err(Error::invalid(format!(
                "the task holds {} futures: drop some before it makes more",
                limit::FUTURES_HELD_MAX
            )));
        }
        self.named.get_mut(&id).ok_or_else(|| unknown(id))?.handles += 1;
        Ok(self.handles.insert(id) as u32)
    }

    /// Handles that can still be made.
    pub fn room(&self) -> usize {
        limit::FUTURES_HELD_MAX.saturating_sub(self.handles.len())
    }

    /// The partition behind a handle.
    pub fn id(&self, handle: u32) -> Option<PartitionId> {
        self.handles.get(handle as usize).copied()
    }

    /// Drops a handle.
    pub fn release(&mut self, handle: u32) {
        let Some(id) = self.handles.try_remove(handle as usize) else { return };
        let Some(named) = self.named.get_mut(&id) else { return };
        named.handles -= 1;
        if named.handles > 0 {
            return;
        }
        match named.origin {
            Origin::Attempt => {}
            Origin::Counted => self.drop_all(id),
            // The owner has counted it if it was waited for.
            Origin::Within(_) => self.dropped.push(id),
        }
    }

    /// What was dropped since the last time, if it is at least so many.
    pub fn take_dropped(&mut self, at_least: usize) -> Option<Vec<PartitionId>> {
        (self.dropped.len() >= at_least.max(1)).then(|| std::mem::take(&mut self.dropped))
    }

    /// Takes back what [`Futures::take_dropped`] gave out and could not be sent.
    pub fn put_back_dropped(&mut self, mut earlier: Vec<PartitionId>) {
        earlier.append(&mut self.dropped);
        self.dropped = earlier;
    }

    /// Whether `id` was made or failed, as far as is known.
    pub fn ready(&self, id: PartitionId) -> bool {
        self.named.get(&id).is_some_and(|named| !matches!(named.known, Known::No))
    }

    /// How `id` ended, where that is known and still kept.
    pub fn ended(&self, id: PartitionId) -> Option<&Result<Output, Error>> {
        match &self.named.get(&id)?.known {
            Known::Ended(result) => Some(result),
            _ => None,
        }
    }

    /// Notes how `id` ended, and that the task may name what it refers to. Returns whether the answer was kept, which
    /// it is while there is room: a driver that waits for 100,000 small results before it takes the first must not
    /// need all of them in memory here.
    pub fn learn(&mut self, id: PartitionId, result: &Result<Output, Error>) -> bool {
        let Some(named) = self.named.get_mut(&id) else { return false };
        self.answer_bytes -= bytes_of(&named.known);
        let size = size_of_result(result);
        let kept = self.answer_bytes + size <= limit::ANSWERS_HELD_BYTES_MAX;
        if kept {
            named.known = Known::Ended(result.clone());
            self.answer_bytes += size;
        } else {
            named.known = Known::Ready;
        }
        let Some(inner) = result.as_ref().ok().map(refs).filter(|inner| !inner.is_empty()) else {
            return kept;
        };
        if named.inner.is_empty() {
            named.inner = inner.to_vec();
            let origin =
                if named.origin == Origin::Attempt { Origin::Attempt } else { Origin::Within(vec![id]) };
            for &id in inner {
                self.name(id, origin.clone());
            }
        }
        kept
    }

    /// Forgets how `id` ended: its copy was lost.
    pub fn forget(&mut self, id: PartitionId) {
        if let Some(named) = self.named.get_mut(&id) {
            self.answer_bytes -= bytes_of(&named.known);
            named.known = Known::No;
        }
    }

    /// Drops `id`, and what was nameable only because of it and is not held.
    fn drop_all(&mut self, id: PartitionId) {
        let mut going = vec![id];
        while let Some(id) = going.pop() {
            let Some(named) = self.named.remove(&id) else { continue };
            self.dropped.push(id);
            self.answer_bytes -= bytes_of(&named.known);
            for inner in named.inner {
                let Some(entry) = self.named.get_mut(&inner) else { continue };
                let Origin::Within(containers) = &mut entry.origin else { continue };
                containers.retain(|container| *container != id);
                if !containers.is_empty() {
                    continue;
                }
                entry.origin = Origin::Counted;
                if entry.handles == 0 {
                    going.push(inner);
                }
            }
        }
    }
}

/// Refusal of an id that the task has no right to.
pub fn unknown(id: PartitionId) -> Error {
    Error::invalid(format!(
        "partition {id} is not held by this task: name it in the `refs` of the payload that carries it, or keep its future"
    ))
}

/// Partitions named in an output.
pub fn refs(output: &Output) -> &[PartitionId] {
    match output {
        Output::Inline(payload) => &payload.refs,
        Output::Stored(stored) => &stored.refs,
        Output::Alias(_) => &[],
    }
}

fn bytes_of(known: &Known) -> usize {
    match known {
        Known::Ended(result) => size_of_result(result),
        _ => 0,
    }
}

/// Memory that keeping an answer takes beyond its entry.
fn size_of_result(result: &Result<Output, Error>) -> usize {
    match result {
        Ok(Output::Inline(payload)) => payload.bytes.len() + size_of_val(payload.refs.as_slice()),
        Ok(output) => size_of_val(refs(output)),
        Err(error) => error.message.len(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanfold_protocol::{TaskId, value::Payload};

    use super::*;

    fn id(n: u8) -> PartitionId {
        PartitionId { task: TaskId([n; 16]), output: 0 }
    }

    fn naming(refs: &[PartitionId]) -> Result<Output, Error> {
        Ok(Output::Inline(Payload { bytes: Bytes::from_static(b"x"), refs: refs.to_vec() }))
    }

    #[test]
    fn the_last_handle_drops_the_reference() {
        let mut futures = Futures::default();
        futures.name(id(1), Origin::Counted);
        let (a, b) = (futures.hold(id(1)).unwrap(), futures.hold(id(1)).unwrap());
        futures.release(a);
        assert_eq!(futures.take_dropped(0), None);
        futures.release(b);
        assert_eq!(futures.take_dropped(2), None);
        assert_eq!(futures.take_dropped(0), Some(vec![id(1)]));
        assert!(!futures.may_name(id(1)));
        futures.release(b);
        assert!(futures.hold(id(1)).is_err());
    }

    #[test]
    fn a_dropped_payload_leaves_what_was_adopted_from_it() {
        let mut futures = Futures::default();
        futures.name(id(1), Origin::Counted);
        let outer = futures.hold(id(1)).unwrap();
        futures.learn(id(1), &naming(&[id(2), id(3)]));
        let inner = futures.hold(id(2)).unwrap();
        futures.learn(id(2), &naming(&[id(4)]));
        futures.release(outer);
        assert_eq!(
            futures.take_dropped(0),
            Some(vec![id(1), id(3)]),
            "the owner passes on both, one is not wanted"
        );
        assert!(futures.may_name(id(2)) && futures.may_name(id(4)) && !futures.may_name(id(3)));
        futures.release(inner);
        assert_eq!(futures.take_dropped(0), Some(vec![id(2), id(4)]));
        assert!(futures.named.is_empty() && futures.answer_bytes == 0);
    }

    #[test]
    fn what_two_payloads_name_lives_with_either() {
        let mut futures = Futures::default();
        let outer = [1, 2].map(|n| {
            futures.name(id(n), Origin::Counted);
            let handle = futures.hold(id(n)).unwrap();
            futures.learn(id(n), &naming(&[id(9)]));
            handle
        });
        futures.release(outer[0]);
        assert!(futures.may_name(id(9)));
        futures.release(outer[1]);
        assert!(!futures.may_name(id(9)));
    }

    #[test]
    fn arguments_stay() {
        let mut futures = Futures::default();
        futures.name(id(1), Origin::Attempt);
        futures.learn(id(1), &naming(&[id(2)]));
        let handles = [1, 2].map(|n| futures.hold(id(n)).unwrap());
        handles.into_iter().for_each(|handle| futures.release(handle));
        assert_eq!(futures.take_dropped(0), None);
        assert!(futures.may_name(id(1)) && futures.may_name(id(2)));
    }

    #[test]
    fn answers_are_kept_while_there_is_room() {
        let mut futures = Futures::default();
        let big = Ok(Output::Inline(Bytes::from(vec![0; limit::ANSWERS_HELD_BYTES_MAX]).into()));
        for n in [1, 2] {
            futures.name(id(n), Origin::Counted);
            futures.hold(id(n)).unwrap();
        }
        assert!(futures.learn(id(1), &big) && !futures.learn(id(2), &big));
        assert!(futures.ready(id(2)) && futures.ended(id(2)).is_none());
        futures.forget(id(1));
        assert!(!futures.ready(id(1)) && futures.learn(id(2), &big));
    }
}
