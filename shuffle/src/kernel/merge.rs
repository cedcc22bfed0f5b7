//! Merging sorted runs: a tree of losers (Knuth, *The Art of Computer Programming* 3, 5.4.1) over the runs' next keys.
//!
//! Each output record costs log2(k) comparisons of numbers that lie together; a run's records are looked at when they
//! come up, and only where keys are equal are whole records compared. Runs are read chunk by chunk: what is in memory is
//! one chunk of each.

use fanfold::Result;

use super::record::{RECORD_BYTES, Record, prefix, records, tail};

/// A sorted run of records, chunk by chunk.
pub trait Run {
    /// The next records (whole ones); nothing after the last.
    ///
    /// # Errors
    /// Those of reading.
    fn chunk(&mut self) -> Result<Option<Vec<u8>>>;
}

/// Calls `emit` with the records of all runs (fewer than 2³²) in order of their keys; records of equal keys are in the
/// order of all their bytes, provided they are so within each run.
///
/// # Errors
/// The first of reading or of `emit`.
pub fn merge<R: Run>(runs: Vec<R>, mut emit: impl FnMut(&Record) -> Result<()>) -> Result<()> {
    let mut heads = runs.into_iter().map(Head::new).collect::<Result<Vec<_>>>()?;
    if heads.is_empty() {
        return Ok(());
    }
    let mut tree = Tree::new(&heads);
    while !tree.winner.has_ended() {
        let run = tree.winner.run();
        let head = &mut heads[run];
        emit(head.record())?;
        head.next += 1;
        if head.next * RECORD_BYTES >= head.chunk.len() {
            head.refill()?;
        }
        tree.replay(&heads, head_key(&heads[run], run));
    }
    Ok(())
}

/// A run and its next record.
#[derive(Debug)]
struct Head<R> {
    run: R,
    /// Empty once the run has ended.
    chunk: Vec<u8>,
    next: usize,
}

impl<R: Run> Head<R> {
    fn new(run: R) -> Result<Self> {
        let mut head = Self { run, chunk: Vec::new(), next: 0 };
        head.refill()?;
        Ok(head)
    }

    #[inline]
    fn record(&self) -> &Record {
        &records(&self.chunk)[self.next]
    }

    #[cold]
    fn refill(&mut self) -> Result<()> {
        self.next = 0;
        loop {
            self.chunk = self.run.chunk()?.unwrap_or_default();
            // A chunk without a record in it tells nothing; no chunk tells that this was the end.
            if self.chunk.is_empty() || self.chunk.len() >= RECORD_BYTES {
                return Ok(());
            }
        }
    }
}

/// The next key of a run as two numbers: what the tree compares. A run that has ended is after every key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct HeadKey {
    prefix: u64,
    /// From the top: the last two bytes of the key, whether the run has ended, the number of the run.
    rest: u64,
}

const ENDED: u64 = 1 << 47;

impl HeadKey {
    #[inline]
    fn run(self) -> usize {
        self.rest as u32 as usize
    }

    #[inline]
    fn has_ended(self) -> bool {
        self.rest & ENDED != 0
    }
}

#[inline]
fn head_key<R: Run>(head: &Head<R>, run: usize) -> HeadKey {
    match records(&head.chunk).get(head.next) {
        Some(record) => HeadKey { prefix: prefix(record), rest: u64::from(tail(record)) << 48 | run as u64 },
        None => HeadKey { prefix: u64::MAX, rest: 0xffff << 48 | ENDED | run as u64 },
    }
}

/// A complete binary tree whose leaves are the runs; each inner node holds the key that lost there, the least of all is
/// beside the root.
#[derive(Debug)]
struct Tree {
    /// Inner nodes 1 to k - 1: node *n* has the children 2*n* and 2*n* + 1, and leaf *r* is node *k* + *r*.
    losers: Vec<HeadKey>,
    winner: HeadKey,
}

impl Tree {
    fn new<R: Run>(heads: &[Head<R>]) -> Self {
        let k = heads.len();
        let mut losers = vec![HeadKey::default(); k];
        let mut winners = vec![HeadKey::default(); k];
        winners.extend(heads.iter().zip(0..).map(|(head, run)| head_key(head, run)));
        for node in (1..k).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            (winners[node], losers[node]) = if before(heads, a, b) { (a, b) } else { (b, a) };
        }
        Self { losers, winner: winners[1] }
    }

    /// Lets the last winner's run compete with its next key.
    #[inline]
    fn replay<R: Run>(&mut self, heads: &[Head<R>], mut key: HeadKey) {
        let mut node = (heads.len() + key.run()) / 2;
        while node > 0 {
            let other = self.losers[node];
            // Which of two random keys is less no processor foresees: the two are exchanged without a branch.
            let exchange = before(heads, other, key);
            self.losers[node] = if exchange { key } else { other };
            key = if exchange { other } else { key };
            node /= 2;
        }
        self.winner = key;
    }
}

/// Whether `a` comes before `b`: nearly always the first eight bytes tell.
#[inline]
fn before<R: Run>(heads: &[Head<R>], a: HeadKey, b: HeadKey) -> bool {
    if a.prefix == b.prefix {
        return equal_before(heads, a, b);
    }
    a.prefix < b.prefix
}

/// The same for equal first bytes. Of equal keys the whole records decide, and of equal records the earlier run.
#[cold]
fn equal_before<R: Run>(heads: &[Head<R>], a: HeadKey, b: HeadKey) -> bool {
    if a.has_ended() || b.has_ended() || a.rest >> 48 != b.rest >> 48 {
        return a < b;
    }
    (heads[a.run()].record(), a.run()) < (heads[b.run()].record(), b.run())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::record::tests::{make, shapes};

    struct Chunks(std::vec::IntoIter<Vec<u8>>);

    impl Run for Chunks {
        fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
            Ok(self.0.next())
        }
    }

    #[test]
    fn merging_sorted_runs_equals_sorting_their_records() {
        for (shape, count) in shapes() {
            for k in [0, 1, 2, 3, 7, 64] {
                let mut all: Vec<Record> = Vec::new();
                let mut runs = Vec::new();
                for run in 0..k {
                    // Runs of different lengths, every third one empty.
                    let mut run_records = records(&make(shape, count / 20 * (run % 3), run as u64)).to_vec();
                    run_records.sort_unstable();
                    all.extend(&run_records);
                    let chunks = run_records.chunks(7).map(|chunk| chunk.concat()).collect::<Vec<_>>();
                    runs.push(Chunks(chunks.into_iter()));
                }
                all.sort_unstable();
                let mut merged = Vec::new();
                let emit = |record: &Record| {
                    merged.push(*record);
                    Ok(())
                };
                merge(runs, emit).unwrap();
                assert!(merged == all, "{k} runs of {count} records, {shape:?}");
            }
        }
    }
}
