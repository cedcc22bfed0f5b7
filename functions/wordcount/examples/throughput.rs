//! How fast the map kernel counts files, natively: `cargo run --release --target HOST --example throughput -- FILE…`

use std::time::Instant;

use wordcount::{counts::Counts, scan::Scanner};

/// As large as what a map task reads at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// As much as one map task counts.
const SPLIT_BYTES: usize = 16 << 20;

fn main() -> std::io::Result<()> {
    let texts = std::env::args().skip(1).map(std::fs::read).collect::<std::io::Result<Vec<_>>>()?;
    let bytes: usize = texts.iter().map(Vec::len).sum();
    for _ in 0..5 {
        let begin = Instant::now();
        let splits = texts.iter().flat_map(|text| text.chunks(SPLIT_BYTES));
        let (words, distinct) = splits.map(count).fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1));
        let seconds = begin.elapsed().as_secs_f64();
        println!("{words} words, {distinct} entries: {:.0} MB/s", bytes as f64 / 1e6 / seconds);
    }
    Ok(())
}

fn count(split: &[u8]) -> (u64, u64) {
    let mut counts = Counts::default();
    let mut scanner = Scanner::default();
    split.chunks(CHUNK_BYTES).for_each(|chunk| scanner.chunk(chunk, |t, from, to| counts.add(t, from, to)));
    scanner.finish(|t, from, to| counts.add(t, from, to));
    let mut totals = (0, 0);
    counts.each(|_, count| totals = (totals.0 + count, totals.1 + 1));
    totals
}
