//! Time of the sort's inner loops, natively or in WebAssembly: a table of nanoseconds per record.
//!
//! `cargo run --release --target x86_64-unknown-linux-gnu -p sort --example kernels` is the native side. Built for
//! `wasm32-wasip2` it is a program: deploy it and call it, and compare (`bench/` does both and prints the ratio).

use std::{hint::black_box, time::Instant};

use fanfold::Result;
use fanfold_shuffle::{
    kernel::{
        deal::Dealt,
        merge::{Run, merge},
        record::{CHUNK_BYTES, Chunk, Copies, RECORD_BYTES, Record, key, payload_hash, records},
        sort::Sorter,
    },
    partition::{Key, Ranges},
    random::Random,
};

/// Records of a map's split.
const SPLIT: usize = 320_000;
/// Records of a column.
const COLUMN: usize = 20_000;
/// Columns that are dealt into.
const COLUMNS: u32 = 512;
/// Runs that are merged.
const RUNS: usize = 32;
/// Each is measured so often; the least time counts.
const TIMES: usize = 40;

fn main() -> Result<()> {
    let split = chunks(&random_records(SPLIT, 1));
    let column = chunks(&random_records(COLUMN, 2));
    let mut sample: Vec<Key> = split.iter().flat_map(|chunk| records(chunk)).map(key).collect();
    let ranges = Ranges::new(Ranges::quantiles(&mut sample, COLUMNS))?;
    let runs = sorted_runs(SPLIT / RUNS)?;
    let mut sorter = Sorter::default();
    measure("sort a split", SPLIT, || drain(&mut sorter.sort(&split)))?;
    measure("sort a column", COLUMN, || drain(&mut sorter.sort(&column)))?;
    measure("deal a split", SPLIT, || {
        let mut dealt = Dealt::new(COLUMNS, SPLIT * RECORD_BYTES);
        for record in split.iter().flat_map(|chunk| records(chunk)) {
            dealt.push(ranges.column(key(record), || payload_hash(record)), record);
        }
        dealt.each(|_, bytes| {
            black_box(bytes);
            Ok(())
        })
    })?;
    measure("merge runs", SPLIT / RUNS * RUNS, || {
        let runs: Vec<_> = runs.iter().map(|run| Chunks(run.iter())).collect();
        merge(runs, copied())
    })
}

/// Copies sorted records as a writer does: into a buffer that is used again.
fn drain(records: &mut impl Copies) -> Result<()> {
    let mut chunk = Chunk::default();
    loop {
        chunk.fill(records);
        black_box(chunk.bytes());
        if !chunk.is_full() {
            return Ok(());
        }
        chunk.clear();
    }
}

/// Takes a kernel's output as a writer does: into a buffer that is used again.
fn copied() -> impl FnMut(&Record) -> Result<()> {
    let mut chunk = Chunk::default();
    move |record| {
        if chunk.is_full() {
            black_box(chunk.bytes());
            chunk.clear();
        }
        chunk.push(record);
        Ok(())
    }
}

/// Measures one kernel, if the program's argument, when there is one, is in its name.
fn measure(name: &str, count: usize, mut kernel: impl FnMut() -> Result<()>) -> Result<()> {
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return Ok(());
    }
    let mut best = f64::MAX;
    for _ in 0..TIMES {
        let start = Instant::now();
        kernel()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{{\"kernel\": \"{name}\", \"records\": {count}, \"ns_per_record\": {:.2}}}",
        best * 1e9 / count as f64
    );
    Ok(())
}

fn random_records(count: usize, seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed, 0);
    let mut record = [0; RECORD_BYTES];
    let make = |_| {
        record[..8].copy_from_slice(&random.next_u64().to_be_bytes());
        record[8..16].copy_from_slice(&random.next_u64().to_be_bytes());
        record
    };
    (0..count).map(make).collect()
}

fn chunks(records: &[Record]) -> Vec<Vec<u8>> {
    records.chunks(CHUNK_BYTES / RECORD_BYTES).map(|chunk| chunk.concat()).collect()
}

fn sorted_runs(count: usize) -> Result<Vec<Vec<Vec<u8>>>> {
    let run = |seed| {
        let mut run = random_records(count, seed);
        run.sort_unstable();
        // As large as a merge's buffers are.
        Ok(run.chunks(CHUNK_BYTES / RECORD_BYTES / 4).map(|chunk| chunk.concat()).collect())
    };
    (10..10 + RUNS as u64).map(run).collect()
}

/// A run in memory. Its chunks are copied, as the host copies them.
struct Chunks<'a>(std::slice::Iter<'a, Vec<u8>>);

impl Run for Chunks<'_> {
    fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.next().cloned())
    }
}
