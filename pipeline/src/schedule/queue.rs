//! What waits for a stage: slices in order, and what is taken of them for one task.

use std::collections::VecDeque;

use super::Slice;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    slices: VecDeque<Slice>,
    bytes: u64,
    rows: u64,
}

/// How much a task is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    /// Slices are added while there are no more bytes than this, or less than a batch; the first one always is.
    pub bytes: u64,
    /// Rows are a multiple of this, if there are as many.
    pub batch: u64,
    /// One slice only.
    pub single: bool,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn first(&self) -> Option<&Slice> {
        self.slices.front()
    }

    /// Whether the first slice was begun: it goes on alone, so that its batches are those of before.
    pub fn is_begun(&self) -> bool {
        self.slices.front().is_some_and(|slice| slice.skip > 0)
    }

    /// At its place by key, or at the end.
    pub fn push(&mut self, slice: Slice, by_key: bool) {
        let end = self.slices.len();
        self.insert(slice, if by_key { None } else { Some(end) });
    }

    /// At its place by key, or before all others.
    pub fn put_back(&mut self, slice: Slice, by_key: bool) {
        self.insert(slice, if by_key { None } else { Some(0) });
    }

    fn insert(&mut self, slice: Slice, at: Option<usize>) {
        self.count(&slice);
        let place = |other: &Slice| position(other) <= position(&slice);
        let at = at.unwrap_or_else(|| self.slices.partition_point(place));
        self.slices.insert(at, slice);
    }

    fn count(&mut self, slice: &Slice) {
        self.bytes += slice.bytes;
        self.rows += slice.row_count();
    }

    fn pop(&mut self) -> Option<Slice> {
        let slice = self.slices.pop_front()?;
        self.bytes -= slice.bytes;
        self.rows -= slice.row_count();
        Some(slice)
    }

    /// What one task is given, and whether the last slice of it was cut: the rest of that stays.
    pub fn take(&mut self, portion: Portion) -> (Vec<Slice>, bool) {
        let single = portion.single || self.is_begun();
        let mut taken: Vec<Slice> = self.pop().into_iter().collect();
        let (mut bytes, mut rows) = taken.first().map_or((0, 0), |slice| (slice.bytes, slice.row_count()));
        let more = |next: &Slice, bytes, rows| {
            next.skip == 0 && (bytes + next.bytes <= portion.bytes || rows < portion.batch)
        };
        while !single && self.first().is_some_and(|next| more(next, bytes, rows)) {
            taken.extend(self.pop());
            bytes = taken.iter().map(|slice| slice.bytes).sum();
            rows = taken.iter().map(Slice::row_count).sum();
        }
        let odd = rows % portion.batch;
        let cut = match taken.last_mut() {
            Some(last) if !single && rows > odd && last.row_count() > odd && odd > 0 => {
                let rest = split_off(last, odd);
                self.put_back(rest, false);
                true
            }
            _ => false,
        };
        (taken, cut)
    }

    /// Everything, for good.
    pub fn clear(&mut self) -> Vec<Slice> {
        (self.bytes, self.rows) = (0, 0);
        self.slices.drain(..).collect()
    }
}

/// Where a slice begins, as a key.
pub(super) fn position(slice: &Slice) -> Vec<u64> {
    slice.key.iter().copied().chain([slice.rows.start, slice.skip]).collect()
}

/// Cuts the last `rows` rows off.
fn split_off(slice: &mut Slice, rows: u64) -> Slice {
    let all = slice.row_count();
    let at = slice.rows.end - rows;
    let bytes = (u128::from(slice.bytes) * u128::from(rows) / u128::from(all)) as u64;
    let rest = Slice { rows: at..slice.rows.end, skip: 0, bytes, ..slice.clone() };
    slice.rows.end = at;
    slice.bytes -= bytes;
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(hold: u64, rows: u64) -> Slice {
        Slice { hold, key: vec![hold], rows: 0..rows, skip: 0, bytes: rows * 10 }
    }

    #[test]
    fn batches_are_cut_across_partitions_and_what_is_left_stays() {
        let mut queue = Queue::default();
        (0..3).for_each(|hold| queue.push(slice(hold, 70), false));
        let portion = Portion { bytes: 1500, batch: 50, single: false };
        let (taken, cut) = queue.take(portion);
        assert!(cut);
        assert_eq!(
            taken.iter().map(|s| (s.hold, s.rows.clone())).collect::<Vec<_>>(),
            [(0, 0..70), (1, 0..30)]
        );
        assert_eq!((queue.rows(), queue.bytes()), (110, 1100));
        let (taken, cut) = queue.take(portion);
        assert!(cut);
        assert_eq!(
            taken.iter().map(|s| (s.hold, s.rows.clone())).collect::<Vec<_>>(),
            [(1, 30..70), (2, 0..60)]
        );
        let (taken, cut) = queue.take(portion);
        assert!(!cut, "a last batch may be short");
        assert_eq!((taken[0].rows.clone(), queue.is_empty()), (60..70, true));
    }
}
