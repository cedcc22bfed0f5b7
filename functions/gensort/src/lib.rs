//! Generates records for sort benchmarks, in parallel, into objects: `{"prefix": "in/", "records": 10000000}`.
//!
//! Object *n* is `PREFIX` + `part-` + *n*, and together they hold the records that `gensort` writes, in its order.

pub mod generator;

use std::io::Write;

use fanfold::{Error, Future, Result, objects};
use fanfold_shuffle::kernel::record::{CHUNK_BYTES, RECORD_BYTES, records};
use serde::{Deserialize, Serialize};

use generator::Generator;

/// Bytes of an object when the request does not say.
const OBJECT_BYTES: u64 = 100_000_000;
/// Objects at most.
const OBJECTS_MAX: u64 = 100_000;

/// What to generate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What the objects' keys start with.
    pub prefix: String,
    /// How many records; or else `bytes`.
    pub records: Option<u64>,
    /// How many bytes, a multiple of 100.
    pub bytes: Option<u64>,
    /// Over how many objects; 100 MB each if it is not said.
    pub objects: Option<u64>,
    /// Whether keys are skewed.
    #[serde(default)]
    pub skew: bool,
    /// Number of the first record.
    #[serde(default)]
    pub first: u64,
    /// Whether to compute the checksum: most of the work.
    #[serde(default = "yes")]
    pub checksum: bool,
}

fn yes() -> bool {
    true
}

/// What was generated.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Objects.
    pub objects: u64,
    /// Records.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
    /// The sum of the records' CRC-32s, in hexadecimal, as `gensort -c` prints it.
    pub checksum: Option<String>,
}

/// The driver.
///
/// # Errors
/// `invalid` for sizes that make no sense; what a task failed with.
#[fanfold::function(tasks(generate))]
pub fn gensort(request: Request) -> Result<Report> {
    let count = records_of(&request)?;
    let wanted = count * RECORD_BYTES as u64;
    let objects = request.objects.unwrap_or_else(|| wanted.div_ceil(OBJECT_BYTES).max(1));
    if !(1..=OBJECTS_MAX).contains(&objects) {
        return Err(Error::invalid(format!("{objects} objects: ask for 1 to {OBJECTS_MAX}")));
    }
    let share = |n: u64| (u128::from(count) * u128::from(n) / u128::from(objects)) as u64;
    let submit = |n: u64| {
        let key = format!("{}part-{n:05}", request.prefix);
        let (first, records) = (request.first + share(n), share(n + 1) - share(n));
        generate::submit(key, first, records, request.skew, request.checksum)
    };
    let parts = (0..objects).map(submit).collect::<Result<Vec<Future<String>>>>()?;
    let mut sum = 0u128;
    for part in fanfold::wait_all(&parts)? {
        sum += u128::from_str_radix(&part, 16).unwrap_or(0);
    }
    let checksum = request.checksum.then(|| format!("{sum:x}"));
    Ok(Report { objects, records: count, bytes: wanted, checksum })
}

fn records_of(request: &Request) -> Result<u64> {
    let count = match (request.records, request.bytes) {
        (Some(records), None) => records,
        (None, Some(bytes)) if bytes % RECORD_BYTES as u64 == 0 => bytes / RECORD_BYTES as u64,
        (None, Some(bytes)) => {
            return Err(Error::invalid(format!("{bytes} bytes are not a whole number of 100-byte records")));
        }
        _ => return Err(Error::invalid("say how many `records` or how many `bytes`, one of them")),
    };
    match count.checked_mul(RECORD_BYTES as u64).and(request.first.checked_add(count)) {
        Some(_) => Ok(count),
        None => Err(Error::invalid(format!("{count} records are too many to number"))),
    }
}

/// Writes one object; the sum of its records' CRC-32s in hexadecimal.
#[fanfold::task]
fn generate(key: String, first: u64, count: u64, skew: bool, checksum: bool) -> Result<String> {
    let mut object = objects::create(&key)?;
    let mut generator = Generator::new(first, skew);
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut left, mut sum) = (count * RECORD_BYTES as u64, 0u128);
    while left > 0 {
        let length = left.min(CHUNK_BYTES as u64) as usize;
        let chunk = &mut buffer[..length];
        chunk.as_chunks_mut().0.iter_mut().for_each(|record| generator.next(record));
        if checksum {
            sum += records(chunk).iter().map(|record| u128::from(crc32fast::hash(record))).sum::<u128>();
        }
        object.write_all(chunk)?;
        left -= length as u64;
    }
    object.finish()?;
    Ok(format!("{sum:x}"))
}
