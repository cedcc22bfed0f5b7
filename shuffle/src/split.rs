//! Cutting objects into splits: shares of the input of about equal work. Pure: it sees sizes, not bytes.

use fanfold::{ObjectRange, objects::Object};

/// Work of opening an object, in bytes of reading: many small objects are as much work as a large one.
const OPEN_BYTES: u64 = 16 << 10;

/// Ranges of objects, read one after the other by one task.
pub type Split = Vec<ObjectRange>;

/// Which ranges are bound to the present version of their object, so that reading another one is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Those of objects that were cut: their parts must be of one version. A small object may be replaced meanwhile.
    Cut,
    /// All.
    All,
}

/// Cuts `objects` into splits of about `split_bytes` of work each. An object larger than that is cut into ranges of
/// `split_bytes`; smaller ones are collected. The order is kept, nothing is left out, and nothing overlaps. Empty
/// objects are dropped.
///
/// Ranges end anywhere: a record that crosses an end belongs to the range that it starts in, and its reader goes on
/// behind the end.
pub fn plan(objects: impl IntoIterator<Item = Object>, split_bytes: u64, pin: Pin) -> Vec<Split> {
    let split_bytes = split_bytes.max(1);
    let (mut splits, mut current, mut work) = (Vec::new(), Split::new(), 0);
    for object in objects {
        for range in ranges(object, split_bytes, pin) {
            let more = range.length.unwrap_or(0).saturating_add(OPEN_BYTES);
            if work > 0 && work + more > split_bytes.saturating_add(OPEN_BYTES) {
                splits.push(std::mem::take(&mut current));
                work = 0;
            }
            current.push(range);
            work += more;
        }
    }
    if !current.is_empty() {
        splits.push(current);
    }
    splits
}

/// The ranges of one object.
fn ranges(object: Object, split_bytes: u64, pin: Pin) -> impl Iterator<Item = ObjectRange> {
    let Object { key, bytes, etag } = object;
    let pinned = pin == Pin::All || bytes > split_bytes;
    (0..bytes.div_ceil(split_bytes)).map(move |n| {
        let offset = n * split_bytes;
        let length = Some(split_bytes.min(bytes - offset));
        ObjectRange { key: key.clone(), etag: pinned.then(|| etag.clone()), offset, length }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, bytes: u64) -> Object {
        Object { key: key.into(), bytes, etag: "e".into() }
    }

    #[test]
    fn every_byte_is_in_exactly_one_split() {
        let sizes = [0, 1, 700_000, 3 << 20, (3 << 20) + 1, 50, 10 << 20, 0, 9];
        let objects = || sizes.iter().enumerate().map(|(n, bytes)| object(&n.to_string(), *bytes));
        for split_bytes in [1 << 20, 3 << 20, 1 << 40] {
            let splits = plan(objects(), split_bytes, Pin::All);
            let mut next: std::collections::HashMap<String, u64> = Default::default();
            for range in splits.iter().flatten() {
                let end = next.entry(range.key.clone()).or_default();
                assert_eq!(range.offset, *end);
                *end += range.length.unwrap();
            }
            assert!(objects().all(|o| next.get(&o.key).copied().unwrap_or(0) == o.bytes));
            for split in &splits {
                let bytes: u64 = split.iter().map(|r| r.length.unwrap()).sum();
                assert!(!split.is_empty() && bytes <= split_bytes, "{bytes} in a split of {split_bytes}");
            }
        }
    }

    #[test]
    fn small_objects_share_a_split_and_only_cut_ones_are_pinned() {
        let small = (0..100).map(|n| object(&format!("{n}"), 1_000));
        assert_eq!(plan(small, 1 << 20, Pin::Cut).len(), 2);
        let cut = plan([object("large", 5 << 20), object("small", 7)], 2 << 20, Pin::Cut);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2]);
        assert_eq!(cut[2][0].etag.as_deref(), Some("e"));
        assert_eq!(cut[2][1].etag, None);
    }
}
