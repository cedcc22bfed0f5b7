//! Checks that the records under a prefix are sorted, within objects and from one to the next, and says what they are:
//! `{"input": "out/"}`. Made after `valsort` (<http://www.ordinal.com/gensort.html>).
//!
//! Objects count in the order of their keys, as listings have them.

use fanfold::{Error, Future, ObjectRange, Result, objects};
use fanfold_shuffle::{
    kernel::record::{CHUNK_BYTES, KEY_BYTES, RECORD_BYTES, records},
    split::{self, Pin},
};
use serde::{Deserialize, Serialize};

/// Bytes that one task checks.
const SPLIT_BYTES: u64 = (64 << 20) / RECORD_BYTES as u64 * RECORD_BYTES as u64;

/// What to check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Objects whose keys start with this.
    pub input: String,
    /// The checksum there should be, such as `gensort`'s.
    pub checksum: Option<String>,
    /// How many records there should be.
    pub records: Option<u64>,
}

/// What was found.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Whether the records are in order, and are as many and have the checksum that the request names.
    pub valid: bool,
    /// Whether every record's key is at least the one before.
    pub sorted: bool,
    /// Records whose key is below the one before.
    pub unordered: u64,
    /// The first of them, counted from 0 over all objects.
    pub first_unordered: Option<u64>,
    /// Objects.
    pub objects: u64,
    /// Records.
    pub records: u64,
    /// Records whose key equals the one before.
    pub duplicates: u64,
    /// The sum of the records' CRC-32s, in hexadecimal.
    pub checksum: String,
}

/// A run of records.
#[derive(Serialize, Deserialize, Default)]
struct Summary {
    records: u64,
    unordered: u64,
    first_unordered: Option<u64>,
    duplicates: u64,
    checksum: String,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// The driver.
///
/// # Errors
/// `not-found` if there are no such objects, `invalid` if one does not consist of whole records; what a task failed
/// with.
#[fanfold::function(tasks(check))]
pub fn valsort(request: Request) -> Result<Report> {
    let input = objects::list(&request.input).collect::<Result<Vec<_>>>()?;
    if input.is_empty() {
        let message = format!("there are no objects under `{}`", request.input);
        return Err(Error::new(fanfold::ErrorKind::NotFound, message));
    }
    if let Some(cut) = input.iter().find(|object| object.bytes % RECORD_BYTES as u64 != 0) {
        let (key, bytes) = (&cut.key, cut.bytes);
        return Err(Error::invalid(format!(
            "object `{key}` has {bytes} bytes: no whole number of 100-byte records"
        )));
    }
    let objects = input.len() as u64;
    let splits = split::plan(input, SPLIT_BYTES, Pin::All);
    let checks = splits.into_iter().map(check::submit).collect::<Result<Vec<Future<Summary>>>>()?;
    let mut all = Totals::default();
    for summary in fanfold::wait_all(&checks)? {
        all.add(&summary);
    }
    let checksum = format!("{:x}", all.checksum);
    let as_expected = request.checksum.as_ref().is_none_or(|wanted| *wanted == checksum)
        && request.records.is_none_or(|wanted| wanted == all.records);
    Ok(Report {
        valid: all.unordered == 0 && as_expected,
        sorted: all.unordered == 0,
        unordered: all.unordered,
        first_unordered: all.first_unordered,
        objects,
        records: all.records,
        duplicates: all.duplicates,
        checksum,
    })
}

/// Adds up summaries in order.
#[derive(Default)]
struct Totals {
    records: u64,
    unordered: u64,
    first_unordered: Option<u64>,
    duplicates: u64,
    checksum: u128,
    last: Vec<u8>,
}

impl Totals {
    fn add(&mut self, part: &Summary) {
        if part.records == 0 {
            return;
        }
        if self.records > 0 && part.first < self.last {
            self.unordered += 1;
            self.first_unordered.get_or_insert(self.records);
        }
        self.duplicates += u64::from(self.records > 0 && part.first == self.last) + part.duplicates;
        self.unordered += part.unordered;
        if let Some(place) = part.first_unordered {
            self.first_unordered.get_or_insert(self.records + place);
        }
        self.records += part.records;
        self.checksum += u128::from_str_radix(&part.checksum, 16).unwrap_or(0);
        self.last.clone_from(&part.last);
    }
}

/// Checks ranges of objects, taken as one.
#[fanfold::task]
fn check(ranges: Vec<ObjectRange>) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut sum = 0u128;
    let mut last = [0; KEY_BYTES];
    for range in ranges {
        let reader = range.open()?;
        let mut at = 0;
        while at < reader.size() {
            let chunk = reader.range(at..at + CHUNK_BYTES as u64)?;
            at += chunk.len() as u64;
            for record in records(&chunk) {
                let key = *record.first_chunk().unwrap_or(&last);
                if summary.records == 0 {
                    summary.first = key.to_vec();
                } else if key < last {
                    summary.unordered += 1;
                    summary.first_unordered.get_or_insert(summary.records);
                } else if key == last {
                    summary.duplicates += 1;
                }
                sum += u128::from(crc32fast::hash(record));
                summary.records += 1;
                last = key;
            }
        }
    }
    (summary.checksum, summary.last) = (format!("{sum:x}"), last.to_vec());
    Ok(summary)
}
