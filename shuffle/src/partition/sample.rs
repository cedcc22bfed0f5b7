//! A sample of an input, by ranged reads at evenly spaced places: a few megabytes tell where the quantiles of
//! terabytes are.

use fanfold::{ObjectRange, Result, objects::Object};

/// Calls `take` with about `records` records of `record_bytes` bytes, read in runs from `places` places that are spread
/// evenly over all objects taken as one.
///
/// Runs keep the number of requests low; where neighbours are alike (the input is nearly sorted), places matter more.
/// An object that is replaced meanwhile is an error. Records that an object ends in the middle of are left out.
///
/// # Errors
/// `conflict` if an object has changed since it was listed; those of reading.
pub fn records(
    objects: &[Object],
    record_bytes: u64,
    records: u64,
    places: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<()> {
    let record_bytes = record_bytes.max(1);
    let all: u64 = objects.iter().map(|object| object.bytes / record_bytes).sum();
    let places = places.clamp(1, all.max(1));
    let run = records.div_ceil(places).min(all / places).max(1);
    // The place of the next run, in records over all objects, and where the present object begins.
    let (mut place, mut begin) = (0, 0);
    for object in objects {
        let count = object.bytes / record_bytes;
        while place < places && place * all / places < begin + count {
            let first = place * all / places - begin;
            let range = ObjectRange {
                key: object.key.clone(),
                etag: Some(object.etag.clone()),
                offset: first * record_bytes,
                length: Some(run.min(count - first) * record_bytes),
            };
            let bytes = range.open()?.bytes()?;
            bytes.chunks_exact(record_bytes as usize).for_each(&mut take);
            place += 1;
        }
        begin += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_all_objects_and_never_repeat_a_record() {
        fanfold::native::reset();
        let sizes = [10u32, 0, 1, 500, 3];
        let mut next = 0u32;
        for (n, size) in sizes.iter().enumerate() {
            let records: Vec<u8> = (next..next + size).flat_map(u32::to_be_bytes).collect();
            next += size;
            fanfold::objects::put(&format!("in/{n}"), &[records, vec![9; n % 4]].concat()).unwrap();
        }
        let objects = fanfold::objects::list("in/").collect::<Result<Vec<_>>>().unwrap();
        for (wanted, places) in [(1, 1), (100, 10), (514, 514), (10_000, 64), (50, 1_000)] {
            let mut seen = Vec::new();
            records(&objects, 4, wanted, places, |record| {
                seen.push(u32::from_be_bytes(record.try_into().unwrap()))
            })
            .unwrap();
            assert!(seen.is_sorted_by(|a, b| a < b) && seen.last().is_some_and(|last| *last < next));
            assert!(seen.len() as u64 <= wanted.max(places) + places, "{} of {wanted}", seen.len());
            assert!(seen.len() as u64 * 2 >= wanted.min(514), "{} of {wanted}", seen.len());
        }
    }
}
