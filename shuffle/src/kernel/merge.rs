//! Merging sorted runs: a tree of losers (Knuth, *The Art of Computer Programming* 3, 5.4.1) over the runs' next keys.
//!
//! Each output record costs log2(k) comparisons of numbers that lie together; a run's records are looked at when they
//! come up, and only where keys are equal are whole records compared. Runs are read chunk by chunk: what is in memory is
//! one chunk of each.

use std::cmp::Ordering;

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

/// A run's next record.
#[derive(Debug)]
struct Head<R> {
    /// The key as numbers; both are at their highest once the run has ended.
    prefix: u64,
    tail: u32,
    run: R,
    chunk: Vec<u8>,
    next: usize,
}

/// The tail of a run that has ended: above that of any record.
const ENDED: u32 = u32::MAX;

impl<R: Run> Head<R> {
    fn new(run: R) -> Result<Self> {
        let mut head = Self { prefix: 0, tail: 0, run, chunk: Vec::new(), next: 0 };
        head.load()?;
        Ok(head)
    }

    fn record(&self) -> Option<&Record> {
        records(&self.chunk).get(self.next)
    }

    fn advance(&mut self) -> Result<()> {
        self.next += 1;
        self.load()
    }

    /// Fetches a chunk if none is left, and takes up its first record.
    #[inline]
    fn load(&mut self) -> Result<()> {
        while self.next * RECORD_BYTES >= self.chunk.len() {
            match self.run.chunk()? {
                Some(chunk) => (self.chunk, self.next) = (chunk, 0),
                None => {
                    (self.prefix, self.tail) = (u64::MAX, ENDED);
                    return Ok(());
                }
            }
        }
        let record = &records(&self.chunk)[self.next];
        (self.prefix, self.tail) = (prefix(record), u32::from(tail(record)));
        Ok(())
    }
}

/// Calls `emit` with the records of all runs in order of their keys; records of equal keys are in the order of all their
/// bytes, provided they are so within each run.
///
/// # Errors
/// The first of reading or of `emit`.
pub fn merge<R: Run>(runs: Vec<R>, mut emit: impl FnMut(&Record) -> Result<()>) -> Result<()> {
    let mut heads = runs.into_iter().map(Head::new).collect::<Result<Vec<_>>>()?;
    if heads.is_empty() {
        return Ok(());
    }
    let mut tree = Tree::new(&heads);
    while let Some(record) = heads[tree.winner].record() {
        emit(record)?;
        heads[tree.winner].advance()?;
        tree.replay(&heads);
    }
    Ok(())
}

/// A complete binary tree whose leaves are the runs; each inner node holds the run that lost there, the winner of all is
/// beside the root.
#[derive(Debug)]
struct Tree {
    /// Inner nodes 1 to k - 1: node *n* has the children 2*n* and 2*n* + 1, and leaf *r* is node *k* + *r*.
    losers: Vec<u32>,
    winner: usize,
}

impl Tree {
    fn new<R: Run>(heads: &[Head<R>]) -> Self {
        let k = heads.len();
        let mut losers = vec![0; k];
        let mut winners: Vec<usize> = vec![0; 2 * k];
        winners.iter_mut().skip(k).zip(0..).for_each(|(winner, run)| *winner = run);
        for node in (1..k).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if before(heads, a, b) { (a, b) } else { (b, a) };
            (winners[node], losers[node]) = (winner, loser as u32);
        }
        Self { losers, winner: if k > 1 { winners[1] } else { 0 } }
    }

    /// Lets the last winner's run compete again.
    #[inline]
    fn replay<R: Run>(&mut self, heads: &[Head<R>]) {
        let mut winner = self.winner;
        let mut node = (heads.len() + winner) / 2;
        while node > 0 {
            let other = self.losers[node] as usize;
            if before(heads, other, winner) {
                self.losers[node] = winner as u32;
                winner = other;
            }
            node /= 2;
        }
        self.winner = winner;
    }
}

/// Whether run `a`'s next record comes before run `b`'s. Of equal records the one of the earlier run does.
#[inline]
fn before<R: Run>(heads: &[Head<R>], a: usize, b: usize) -> bool {
    let (x, y) = (&heads[a], &heads[b]);
    match (x.prefix, x.tail).cmp(&(y.prefix, y.tail)) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => (x.record(), a) < (y.record(), b),
    }
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
