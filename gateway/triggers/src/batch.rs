//! When a batch closes, and how one that failed is split.

use fanfold_protocol::trigger::Batch;

/// Events that wait for their batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// How many.
    pub events: u64,
    /// Bytes of the objects they tell of.
    pub bytes: u64,
    /// When the oldest came: Unix milliseconds.
    pub since_ms: u64,
}

/// What to do with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Close the batch.
    Now,
    /// Look again then.
    At(u64),
    /// Nothing waits.
    Never,
}

/// When the batch closes that these events make.
pub fn due(batch: &Batch, waiting: &Waiting, now_ms: u64) -> Due {
    if waiting.events == 0 {
        return Due::Never;
    }
    let full = waiting.events >= u64::from(batch.max) || batch.bytes.is_some_and(|max| waiting.bytes >= max);
    let closes_ms = waiting.since_ms.saturating_add(batch.window);
    if full || closes_ms <= now_ms { Due::Now } else { Due::At(closes_ms) }
}

/// How many of the events, whose objects have these sizes, make one batch: as many as may be, and at least one.
pub fn take(batch: &Batch, sizes: impl Iterator<Item = u64>) -> usize {
    let mut bytes = 0_u64;
    let mut taken = 0;
    for size in sizes.take(batch.max as usize) {
        bytes = bytes.saturating_add(size);
        if taken > 0 && batch.bytes.is_some_and(|max| bytes > max) {
            break;
        }
        taken += 1;
    }
    taken
}

/// How many of a failed batch's events make its first half; the rest make the second. `None`: a single event is not split, so it
/// is the one that fails.
pub fn half(events: usize) -> Option<usize> {
    (events > 1).then(|| events.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bound_closes_a_batch() {
        let batch = Batch { max: 3, window: 1_000, bytes: Some(100), partial: false };
        let check = |events, bytes, now_ms| due(&batch, &Waiting { events, bytes, since_ms: 500 }, now_ms);
        assert_eq!(check(0, 0, 9_999), Due::Never);
        assert_eq!(check(2, 99, 600), Due::At(1_500));
        assert_eq!(check(2, 99, 1_500), Due::Now);
        assert_eq!(check(3, 0, 600), Due::Now);
        assert_eq!(check(1, 100, 600), Due::Now);
        assert_eq!(take(&batch, [60, 40, 1].into_iter()), 2);
        assert_eq!(take(&batch, [500, 1].into_iter()), 1, "one that is too large goes alone");
        assert_eq!(take(&batch, [1; 9].into_iter()), 3);
    }

    #[test]
    fn splitting_finds_the_poison() {
        for poison in 0..100_usize {
            let (mut whole, mut committed, mut letters) =
                (vec![(0..100).collect::<Vec<_>>()], Vec::new(), Vec::new());
            while let Some(mut events) = whole.pop() {
                match (events.contains(&poison), half(events.len())) {
                    (false, _) => committed.extend(events),
                    (true, Some(first)) => {
                        let second = events.split_off(first);
                        whole.extend([events, second]);
                    }
                    (true, None) => letters.extend(events),
                }
            }
            assert_eq!((committed.len(), letters), (99, vec![poison]));
        }
    }
}
