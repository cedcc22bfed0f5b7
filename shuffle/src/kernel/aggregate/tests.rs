//! Against the obvious way to aggregate, at every size at which something else happens.

use std::collections::BTreeMap;

use super::*;

/// Count, sum, smallest and largest by key.
type Expected = BTreeMap<i64, (u64, i128, i64, i64)>;

/// Rows of `distinct` keys, the extreme ones among them.
fn rows(rows: u64, distinct: u64) -> (Vec<i64>, Vec<i64>) {
    let row = |n: u64| {
        let random = hash(n as i64 ^ 0x5eed);
        let key = match random % distinct {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 0,
            key => key as i64 - 7,
        };
        (key, (hash(random as i64) as i64) >> (n % 64))
    };
    (0..rows).map(row).unzip()
}

fn expected(keys: &[i64], values: &[i64]) -> Expected {
    let mut groups = Expected::new();
    for (key, value) in keys.iter().zip(values) {
        let group = groups.entry(*key).or_insert((0, 0, i64::MAX, i64::MIN));
        *group = (group.0 + 1, group.1 + i128::from(*value), group.2.min(*value), group.3.max(*value));
    }
    groups
}

fn got(groups: &mut Aggregator<Spread<i64>>) -> Expected {
    let mut all = Expected::new();
    groups.each(|key_hash, key, state| {
        assert_eq!(key_hash, hash(key));
        let totals = state.totals();
        let (min, max) = totals.extremes.unwrap();
        assert!(all.insert(key, (totals.count, totals.sum, min, max)).is_none(), "{key} came twice");
    });
    all
}

#[test]
fn every_number_of_groups_is_aggregated_as_a_map_does() {
    for distinct in [1, 4, 1_000, SMALL_GROUPS as u64, 4 * SMALL_GROUPS as u64] {
        let (keys, values) = rows(300_000, distinct);
        let expected = expected(&keys, &values);
        let mut groups = Aggregator::<Spread<i64>>::default();
        // Batches end anywhere, lanes and the spreading included.
        for (keys, values) in keys.chunks(977).zip(values.chunks(977)) {
            groups.add(keys, values);
        }
        assert!(got(&mut groups) == expected, "{distinct} keys");
        assert_eq!(groups.groups(), expected.len());
        // Seeing them changes nothing.
        assert!(got(&mut groups) == expected);
    }
}

#[test]
fn what_parts_sent_merges_to_the_whole() {
    let (keys, values) = rows(400_000, 3 * SMALL_GROUPS as u64);
    let mut whole = Aggregator::<Spread<i64>>::default();
    for part in 0..4 {
        let range = part * 100_000..(part + 1) * 100_000;
        let mut groups = Aggregator::<Spread<i64>>::default();
        groups.add(&keys[range.clone()], &values[range]);
        let mut block = Vec::new();
        groups.each(|_, key, state| encode(key, state, &mut block));
        assert_eq!(whole.merge(&block).unwrap(), 100_000);
    }
    assert!(got(&mut whole) == expected(&keys, &values));
    assert!(whole.merge(&[0; 41]).is_err());
}

#[test]
fn groups_without_values_and_numbers_that_are_none() {
    let mut groups = Aggregator::<Spread<f64>>::default();
    groups.touch(i64::MIN);
    groups.add(&[1, 1, 2], &[f64::NAN, 3.0, f64::NAN]);
    groups.touch(1);
    let mut all = BTreeMap::new();
    groups.each(|_, key, state| {
        all.insert(key, state.totals());
    });
    assert_eq!(all.len(), 3);
    assert_eq!(all[&i64::MIN].count, 0);
    // As in SQL and data frames: NaN is not the extreme of anything else.
    assert_eq!(all[&1].extremes, Some((3.0, 3.0)));
    assert!(all[&1].sum.is_nan() && all[&2].extremes.is_some_and(|(min, max)| min.is_nan() && max.is_nan()));
}

#[test]
fn the_hash_never_changes() {
    // Recomputed data must fall into the same columns.
    assert_eq!((hash(0), hash(1), hash(-1)), (0, 0xb456_bcfc_34c2_cb2c, 0x64b5_720b_4b82_5f21));
}
