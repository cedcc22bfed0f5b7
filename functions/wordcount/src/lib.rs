//! Counts the words of all objects under a prefix: map, hash fan-out, merge, top-k.
//!
//! A word is a maximal run of ASCII letters, digits and underscores; case matters. An object's end ends a word.

pub mod counts;
pub mod scan;
mod text;

use fanfold::{Inputs, Partition, Result, objects};
use fanfold_shuffle::{
    Columns, Exchange, simple,
    split::{self, Split},
};
use serde::{Deserialize, Serialize};

use counts::{Counts, Top};

/// Input read by one map task when the request does not say: some tenths of a second of work.
const SPLIT_BYTES: u64 = 16 << 20;
/// Input per reducer when the request does not say.
const COLUMN_BYTES: u64 = 64 << 20;
/// Reducers at most.
const COLUMNS_MAX: u32 = 256;

/// What to count.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Objects whose keys start with this.
    pub prefix: String,
    /// How many of the most frequent words to return.
    #[serde(default = "top_default")]
    pub top: usize,
    /// Bytes of input per map task.
    pub split_bytes: Option<u64>,
    /// Reduce tasks.
    pub reducers: Option<u32>,
}

fn top_default() -> usize {
    20
}

/// What was counted.
#[derive(Serialize)]
pub struct Report {
    /// All words.
    pub words: u64,
    /// Different words.
    pub distinct: u64,
    /// Bytes of input.
    pub bytes: u64,
    /// Objects of input.
    pub objects: u64,
    /// Map tasks.
    pub maps: usize,
    /// Reduce tasks.
    pub reducers: u32,
    /// The most frequent words: by falling count, then by word.
    pub top: Vec<Row>,
}

/// A word and how often it occurs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// ASCII.
    pub word: String,
    /// At least 1.
    pub count: u64,
}

/// One column, counted. All of a word is in one column, so the top of the whole is among the tops of the columns.
#[derive(Serialize, Deserialize)]
pub struct Column {
    words: u64,
    distinct: u64,
    top: Vec<Row>,
}

/// The driver.
///
/// # Errors
/// `invalid` for no or too many reducers; what a task failed with.
#[fanfold::function(tasks(map, reduce))]
pub fn wordcount(request: Request) -> Result<Report> {
    let input = objects::list(request.prefix).collect::<Result<Vec<_>>>()?;
    let (objects, bytes) = (input.len() as u64, input.iter().map(|object| object.bytes).sum());
    let splits = split::plan(input, request.split_bytes.unwrap_or(SPLIT_BYTES));
    let reducers = request.reducers.unwrap_or_else(|| columns(bytes));
    if !(1..=COLUMNS_MAX).contains(&reducers) {
        return Err(fanfold::Error::invalid(format!("{reducers} reducers: ask for 1 to {COLUMNS_MAX}")));
    }
    let (maps, top) = (splits.len(), request.top);
    fanfold::info!("{objects} objects, {bytes} bytes: {maps} maps, {reducers} reducers");
    let columns = simple::submit(splits, reducers, map::call, |c, blocks| reduce::call(c, top, blocks))?;
    let columns = fanfold::wait_all(&columns)?;
    let mut best = Top::new(top);
    columns.iter().flat_map(|column| &column.top).for_each(|row| best.offer(row.word.as_bytes(), row.count));
    Ok(Report {
        words: columns.iter().map(|column| column.words).sum(),
        distinct: columns.iter().map(|column| column.distinct).sum(),
        bytes,
        objects,
        maps,
        reducers,
        top: best.into_rows(),
    })
}

fn columns(bytes: u64) -> u32 {
    bytes.div_ceil(COLUMN_BYTES).clamp(1, u64::from(COLUMNS_MAX)) as u32
}

/// Counts the words of one split, by column.
#[fanfold::task]
fn map(split: Split, columns: u32) -> Result<Partition> {
    simple::map(&WordCount { top: 0 }, split, columns)
}

/// Merges one column.
#[fanfold::task]
fn reduce(column: u32, top: usize, blocks: Inputs<Partition>) -> Result<Column> {
    simple::reduce(&WordCount { top }, column, blocks)
}

struct WordCount {
    top: usize,
}

impl Exchange for WordCount {
    type Split = Split;
    type Reduced = Column;

    fn map(&self, split: Split, columns: &mut Columns) -> Result<()> {
        let mut counts = Counts::default();
        for range in split {
            text::count(&range, &mut counts)?;
        }
        counts.each(|word, count| counts::encode(word, count, columns.of_key(word)));
        Ok(())
    }

    fn reduce(&self, _: u32, blocks: impl Iterator<Item = Result<Vec<u8>>>) -> Result<Column> {
        let mut counts = Counts::default();
        for block in blocks {
            counts.merge(&block?)?;
        }
        let mut column = Column { words: 0, distinct: 0, top: Vec::new() };
        let mut top = Top::new(self.top);
        counts.each(|word, count| {
            column.words += count;
            column.distinct += 1;
            top.offer(word, count);
        });
        column.top = top.into_rows();
        Ok(column)
    }
}
