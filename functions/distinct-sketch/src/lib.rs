//! How many different words are there, and which are the most frequent? An online aggregation: estimates come while the
//! input is read, and get better round by round.
//!
//! The splits are read in random order, so what has been read is a sample of the whole, and the shares of words in it
//! estimate those of the whole. Every partial result is a log line of the job (`fanfold logs -f JOB` shows them as they
//! come), and is in the report, where its error against the final result stands beside it. Distinct words are those read
//! so far: that estimate of the whole only grows.

pub mod sketch;
mod text;

use std::ops::Range;

use fanfold::{Call, Error, Inputs, Outputs, Partition, Result, objects};
use fanfold_shuffle::{
    Blocks, Column, Columns, Exchange, Layout, Output, Tally, Tasks, column_of, hash,
    random::Random,
    split::{self, Pin, Split},
    strategy::{
        simple,
        streaming::{self, Partial, Rounds},
    },
};
use serde::{Deserialize, Serialize};

use sketch::Sketch;

/// Input read by one map task when the request does not say: a tenth of a second of work, so that a first result is soon.
const SPLIT_BYTES: u64 = 8 << 20;
/// Reducers at most: a map's sketch is a hundred kilobytes, so one is nearly always enough.
const REDUCERS_MAX: u32 = 64;

/// What to read.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Objects whose keys start with this.
    pub prefix: String,
    /// How many of the most frequent words to return.
    #[serde(default = "top_default")]
    pub top: usize,
    /// `streaming`, or `simple`: one result at the end.
    #[serde(default)]
    pub strategy: Strategy,
    /// Maps of the first round.
    #[serde(default = "first_default")]
    pub first: u32,
    /// Maps of a round at most.
    #[serde(default = "most_default")]
    pub most: u32,
    /// Bytes of input per map task.
    pub split_bytes: Option<u64>,
    /// Reduce tasks.
    #[serde(default = "reducers_default")]
    pub reducers: u32,
    /// Of the order of the splits.
    #[serde(default)]
    pub seed: u64,
}

fn top_default() -> usize {
    20
}

fn first_default() -> u32 {
    2
}

fn most_default() -> u32 {
    32
}

fn reducers_default() -> u32 {
    1
}

/// How the job goes.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Partial results, round by round.
    #[default]
    Streaming,
    /// One result.
    Simple,
}

/// What was found.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// All words.
    pub words: u64,
    /// About how many different ones.
    pub distinct: f64,
    /// The relative standard error of that.
    pub distinct_error: f64,
    /// By how much a count may be too small.
    pub missed: u64,
    /// The most frequent words.
    pub top: Vec<Row>,
    /// Bytes of input.
    pub bytes: u64,
    /// Map tasks.
    pub maps: usize,
    /// The partial results, in order.
    pub rounds: Vec<Round>,
}

/// A partial result, and how wrong it was.
#[derive(Serialize, Deserialize, Debug)]
pub struct Round {
    /// Counted from 1.
    pub round: u32,
    /// Maps that were in it.
    pub maps: u32,
    /// Words that were in it.
    pub words: u64,
    /// About how many different ones were in it.
    pub distinct: f64,
    /// How much of the different words was missing: 1 - its `distinct` / the final one.
    pub distinct_missing: f64,
    /// How far the shares of the final most frequent words were off, as a share of all of theirs.
    pub share_error: f64,
}

/// A word and how often it occurs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// ASCII.
    pub word: String,
    /// Up to `missed` too small.
    pub count: u64,
}

/// The driver.
///
/// # Errors
/// `invalid` for numbers that cannot be or no data; what a task failed with.
#[fanfold::function(tasks(map, merge, reduce))]
pub fn distinct_sketch(request: Request) -> Result<Report> {
    let input = objects::list(request.prefix.as_str()).collect::<Result<Vec<_>>>()?;
    let bytes = input.iter().map(|object| object.bytes).sum();
    if bytes == 0 {
        return Err(Error::invalid(format!("there is no data under `{}`", request.prefix)));
    }
    if !(1..=REDUCERS_MAX).contains(&request.reducers) {
        return Err(Error::invalid(format!("{} reducers: ask for 1 to {REDUCERS_MAX}", request.reducers)));
    }
    let mut splits = split::plan(input, request.split_bytes.unwrap_or(SPLIT_BYTES), Pin::Cut);
    Random::new(request.seed, 0).permute(&mut splits);
    let (maps, layout) = (splits.len(), Layout::new(request.reducers)?);
    let mut partials = Vec::new();
    let shuffled = match request.strategy {
        Strategy::Simple => simple::run(&Job, splits, layout)?,
        Strategy::Streaming => {
            let rounds = Rounds { first: request.first, most: request.most };
            streaming::run(&Job, splits, layout, rounds, |partial| {
                partials.push(Seen::of(partial)?);
                partials.last().map(Seen::tell);
                Ok(())
            })?
        }
    };
    let all = whole(&shuffled.reduced)?;
    Ok(Report {
        words: all.words,
        distinct: all.distinct.round(),
        distinct_error: Sketch::error(),
        missed: all.missed,
        rounds: partials.iter().map(|partial| partial.against(&all, request.top)).collect(),
        top: all.top(request.top),
        bytes,
        maps,
    })
}

/// What the reducers' sketches say together.
struct Whole {
    words: u64,
    missed: u64,
    distinct: f64,
    sketches: Vec<Sketch>,
}

fn whole(reduced: &[Vec<u8>]) -> Result<Whole> {
    let sketches = reduced.iter().map(|bytes| Sketch::decode(bytes)).collect::<Result<Vec<_>>>()?;
    Ok(Whole {
        words: sketches.iter().map(|sketch| sketch.words).sum(),
        missed: sketches.iter().map(|sketch| sketch.missed).max().unwrap_or(0),
        // Every word is in one column, so these are sums of different things.
        distinct: sketches.iter().map(Sketch::distinct).sum(),
        sketches,
    })
}

impl Whole {
    fn top(&self, size: usize) -> Vec<Row> {
        let mut rows: Vec<_> = self.sketches.iter().flat_map(|sketch| sketch.top(size)).collect();
        rows.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        rows.truncate(size);
        let row = |(word, count): (Vec<u8>, u64)| Row { word: String::from_utf8_lossy(&word).into(), count };
        rows.into_iter().map(row).collect()
    }

    /// The shares of these words among all.
    fn shares(&self, words: &[Row]) -> Vec<f64> {
        let counts: std::collections::HashMap<_, _> =
            self.top(usize::MAX).into_iter().map(|row| (row.word, row.count)).collect();
        let share = |row: &Row| counts.get(&row.word).copied().unwrap_or(0) as f64 / self.words.max(1) as f64;
        words.iter().map(share).collect()
    }
}

/// A partial result.
struct Seen {
    round: u32,
    maps: u32,
    of_maps: u32,
    whole: Whole,
}

impl Seen {
    fn of(partial: Partial<Vec<u8>>) -> Result<Self> {
        let Partial { round, maps, of_maps, reduced } = partial;
        Ok(Self { round, maps, of_maps, whole: whole(&reduced)? })
    }

    /// Shows it.
    fn tell(&self) {
        let Self { round, maps, of_maps, whole } = self;
        let first = whole.top(3);
        let shares = first.iter().zip(whole.shares(&first));
        let shown: Vec<_> =
            shares.map(|(row, share)| format!("{} {:.3} %", row.word, 100.0 * share)).collect();
        let (words, distinct, shown) = (whole.words, whole.distinct, shown.join(", "));
        fanfold::info!(
            "partial {round}: {maps} of {of_maps} maps, {words} words, {distinct:.0} different so far; {shown}"
        );
    }

    fn against(&self, last: &Whole, top: usize) -> Round {
        let words = last.top(top);
        let pairs = || self.whole.shares(&words).into_iter().zip(last.shares(&words));
        let off: f64 = pairs().map(|(mine, theirs)| (mine - theirs).abs()).sum();
        let all: f64 = pairs().map(|(_, theirs)| theirs).sum();
        Round {
            round: self.round,
            maps: self.maps,
            words: self.whole.words,
            distinct: self.whole.distinct.round(),
            distinct_missing: 1.0 - self.whole.distinct / last.distinct.max(1.0),
            share_error: off / all.max(f64::MIN_POSITIVE),
        }
    }
}

/// Sketches the words of one split.
#[fanfold::task]
fn map(split: Split, columns: u32) -> Result<Output> {
    fanfold_shuffle::map(&Words, split, columns)
}

/// Merges the sketches of some columns.
#[fanfold::task]
fn merge(columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    fanfold_shuffle::merge(&Words, columns, &inputs)
}

/// Merges the sketches of one reducer's columns.
#[fanfold::task]
fn reduce(reducer: u32, columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Outputs<(Vec<u8>, Tally)>> {
    fanfold_shuffle::reduce(&Words, reducer, columns, &inputs)
}

/// The calls of these tasks.
struct Job;

impl Tasks for Job {
    type Split = Split;
    type Reduced = Vec<u8>;

    fn map(&self, _: u32, split: Split, columns: u32) -> Call<Output> {
        map::call(split, columns)
    }

    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
        merge::call(columns, inputs)
    }

    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Vec<u8>, Tally)>> {
        reduce::call(reducer, columns, inputs)
    }
}

/// A record is one occurrence of a word; a block is the sketch of its column.
struct Words;

impl Exchange for Words {
    type Split = Split;
    type Reduced = Vec<u8>;

    fn map(&self, split: Split, out: &mut Blocks) -> Result<()> {
        let columns = out.columns().end;
        let mut sketches = vec![Sketch::default(); columns as usize];
        let mut words = 0;
        for range in &split {
            out.read(range.length.unwrap_or(0));
            text::each_word(range, |word| {
                let hash = hash(word);
                words += 1;
                sketches[column_of(hash, columns) as usize].add(hash, word);
            })?;
        }
        out.took(words);
        for (column, sketch) in (0..).zip(sketches) {
            out.gave(sketch.words);
            out.write(column, &sketch.encode())?;
        }
        Ok(())
    }

    fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()> {
        let number = column.number;
        let (sketch, words) = merged(column)?;
        out.took(words);
        out.gave(sketch.words);
        out.write(number, &sketch.encode())
    }

    fn reduce(&self, _: u32, columns: &mut Columns) -> Result<Vec<u8>> {
        let mut all = Sketch::default();
        let mut taken = 0;
        while let Some(column) = columns.next() {
            let (sketch, words) = merged(column)?;
            taken += words;
            all.merge(sketch);
        }
        columns.took(taken);
        columns.gave(all.words);
        Ok(all.encode())
    }
}

/// The sketches of a column as one, and the words in them.
fn merged(column: Column<'_>) -> Result<(Sketch, u64)> {
    let (mut all, mut words) = (Sketch::default(), 0);
    for mut stream in column.streams {
        let sketch = Sketch::decode(&stream.rest()?)?;
        words += sketch.words;
        all.merge(sketch);
    }
    Ok((all, words))
}
