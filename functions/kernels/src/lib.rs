//! Times the kernels of the shuffle library on data in memory. The benchmark `kernels` runs this same code as a component
//! and natively, and compares.

use std::time::Instant;

use fanfold::{Error, Result};
use fanfold_shuffle::{
    kernel::{
        aggregate::{Accumulator, Aggregator, Sum},
        deal::Dealt,
        merge::{self, Run},
        record::{self, CHUNK_BYTES, Chunk, Copies, KEY_BYTES, RECORD_BYTES, Record, key, payload_hash},
        sort::Sorter,
    },
    partition::{Key, Ranges},
    random::Random,
};
use serde::{Deserialize, Serialize};

/// Rows of a batch, as an Arrow file has them.
const BATCH_ROWS: usize = 1 << 15;
/// Runs that are merged: as many as a reducer has.
const RUNS: usize = 40;
/// Columns that are dealt into: as many as a sort of one gigabyte has.
const COLUMNS: u32 = 512;
/// Rows or records at most: what fits into an instance.
const ROWS_MAX: u32 = 16_000_000;
const RECORDS_MAX: u32 = 2_000_000;

/// What to time.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Count and sum by key.
    Aggregate,
    /// Sorting records of 100 bytes.
    Sort,
    /// Merging sorted runs of such records.
    Merge,
    /// Dealing such records into columns.
    Deal,
}

/// On what.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What to time.
    pub kernel: Kernel,
    /// Rows or records.
    pub rows: u32,
    /// Different keys, to aggregate by.
    #[serde(default = "distinct_default")]
    pub distinct: u32,
    /// Times.
    pub rounds: u32,
}

fn distinct_default() -> u32 {
    1_000_000
}

/// How long it took.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// Nanoseconds of every round.
    pub ns: Vec<u64>,
    /// Of the result: equal wherever it was computed.
    pub checksum: u64,
}

/// Times a kernel.
///
/// # Errors
/// `invalid` for more rows than fit into memory, or no rounds.
#[fanfold::function]
pub fn kernels(request: Request) -> Result<Report> {
    let Request { kernel, rows, distinct, rounds } = request;
    let rows_max = if kernel == Kernel::Aggregate { ROWS_MAX } else { RECORDS_MAX };
    if rows == 0 || rows > rows_max || rounds == 0 || distinct == 0 {
        return Err(Error::invalid(format!(
            "{rows} rows, {rounds} rounds: ask for 1 to {rows_max} rows, once at least"
        )));
    }
    match kernel {
        Kernel::Aggregate => {
            let mut random = Random::new(1, 1);
            let row = |_| (i64::from(random.below(distinct)), f64::from(random.below(8_000)) / 8.0);
            let (keys, values): (Vec<i64>, Vec<f64>) = (0..rows).map(row).unzip();
            time(rounds, || Ok(aggregate(&keys, &values)))
        }
        Kernel::Sort => {
            let chunks = records(rows, 0);
            let (mut sorter, mut drain) = (Sorter::default(), Drain::default());
            time(rounds, || Ok(drain.all(sorter.sort(&chunks))))
        }
        Kernel::Merge => {
            let mut sorter = Sorter::default();
            let runs = (0..RUNS).map(|run| sorted(&mut sorter, &records(rows / RUNS as u32, run)));
            let (runs, mut drain) = (runs.collect::<Vec<_>>(), Drain::default());
            time(rounds, || merged(&runs, &mut drain))
        }
        Kernel::Deal => {
            let chunks = records(rows, 0);
            let mut keys: Vec<Key> =
                chunks.iter().flat_map(|chunk| record::records(chunk)).map(key).collect();
            let ranges = Ranges::new(Ranges::quantiles(&mut keys, COLUMNS))?;
            time(rounds, || dealt(&chunks, &ranges))
        }
    }
}

/// Runs work some times; all rounds must have the same result.
fn time(rounds: u32, mut work: impl FnMut() -> Result<u64>) -> Result<Report> {
    let mut report = Report { ns: Vec::new(), checksum: 0 };
    for round in 0..rounds {
        let begin = Instant::now();
        let checksum = work()?;
        report.ns.push(begin.elapsed().as_nanos() as u64);
        if round > 0 && checksum != report.checksum {
            return Err(Error::guest("two rounds had different results"));
        }
        report.checksum = checksum;
    }
    Ok(report)
}

fn aggregate(keys: &[i64], values: &[f64]) -> u64 {
    let mut groups = Aggregator::<Sum<f64>>::default();
    for (keys, values) in keys.chunks(BATCH_ROWS).zip(values.chunks(BATCH_ROWS)) {
        groups.add(keys, values);
    }
    let mut checksum = 0u64;
    groups.each(|hash, _, state| {
        checksum = checksum.wrapping_add(hash.wrapping_mul(state.totals().sum.to_bits() | 1));
    });
    checksum
}

/// Records with random keys, in chunks; others for every `run`.
fn records(count: u32, run: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(2 + run as u64, u64::from(count));
    let mut left = count as usize * RECORD_BYTES;
    let mut chunks = Vec::new();
    while left > 0 {
        let mut chunk = vec![b'.'; left.min(CHUNK_BYTES)];
        for record in chunk.chunks_exact_mut(RECORD_BYTES) {
            let (high, low) = (random.next_u64().to_be_bytes(), random.next_u64().to_be_bytes());
            record[..8].copy_from_slice(&high);
            record[8..KEY_BYTES].copy_from_slice(&low[..KEY_BYTES - 8]);
        }
        left -= chunk.len();
        chunks.push(chunk);
    }
    chunks
}

/// All records in order, as one copy.
fn sorted(sorter: &mut Sorter, chunks: &[Vec<u8>]) -> Vec<u8> {
    sorter.sort(chunks).flatten().copied().collect()
}

/// Copies records as a writer does, into a buffer that is used again; a checksum of all that was in it.
#[derive(Default)]
struct Drain {
    chunk: Chunk,
    sum: u64,
}

impl Drain {
    fn all(&mut self, mut records: impl Copies) -> u64 {
        loop {
            self.chunk.fill(&mut records);
            if !self.chunk.is_full() {
                return self.finish();
            }
            self.flush();
        }
    }

    fn push(&mut self, record: &Record) {
        if self.chunk.is_full() {
            self.flush();
        }
        self.chunk.push(record);
    }

    fn flush(&mut self) {
        self.sum = self.sum.rotate_left(1) ^ checksum(self.chunk.bytes());
        self.chunk.clear();
    }

    fn finish(&mut self) -> u64 {
        self.flush();
        std::mem::take(&mut self.sum)
    }
}

/// A run that is read chunk by chunk.
struct InMemory<'a>(&'a [u8]);

impl Run for InMemory<'_> {
    fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let (chunk, rest) = self.0.split_at(self.0.len().min(CHUNK_BYTES / 4 / RECORD_BYTES * RECORD_BYTES));
        self.0 = rest;
        Ok((!chunk.is_empty()).then(|| chunk.to_vec()))
    }
}

fn merged(runs: &[Vec<u8>], drain: &mut Drain) -> Result<u64> {
    merge::merge(runs.iter().map(|run| InMemory(run)).collect(), |record: &Record| {
        drain.push(record);
        Ok(())
    })?;
    Ok(drain.finish())
}

/// What a map does with its split once it is in memory.
fn dealt(chunks: &[Vec<u8>], ranges: &Ranges) -> Result<u64> {
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    let mut dealt = Dealt::new(ranges.columns(), bytes / RECORD_BYTES);
    for chunk in chunks {
        let column = |record: &Record| ranges.column(key(record), || payload_hash(record));
        dealt.extend(record::records(chunk), column);
    }
    let mut sum = 0u64;
    dealt.each(chunks, |column, piece| {
        sum = sum.rotate_left(1) ^ checksum(piece).wrapping_add(u64::from(column));
        Ok(())
    })?;
    Ok(sum)
}

/// Of some of the records: enough to notice another order, too few to count as work.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(RECORD_BYTES).step_by(97).fold(0, |sum: u64, record| {
        let key = record.first_chunk().map_or(0, |key| u64::from_be_bytes(*key));
        (sum ^ key).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs_and_refuses_what_does_not_fit() {
        for kernel in [Kernel::Aggregate, Kernel::Sort, Kernel::Merge, Kernel::Deal] {
            let request = Request { kernel, rows: 30_000, distinct: 1_000, rounds: 2 };
            assert_eq!(kernels(request).unwrap().ns.len(), 2);
            assert!(kernels(Request { rows: u32::MAX, ..request }).is_err());
            assert!(kernels(Request { rounds: 0, ..request }).is_err());
        }
    }
}
