//! Counts the words of all objects under a prefix: map, hash fan-out, merge, top-k.
//!
//! A word is a maximal run of ASCII letters, digits and underscores; case matters. An object's end ends a word.

pub mod counts;
pub mod scan;
mod text;

use std::ops::Range;

use fanfold::{Call, Inputs, Outputs, Partition, Result, objects};
use fanfold_shuffle::{
    self as shuffle, Blocks, Buffers, Columns, Exchange, Layout, Output, Tally, Tasks,
    split::{self, Pin, Split},
    strategy::simple,
};
use serde::{Deserialize, Serialize};

use counts::{Counts, Top};

/// Input read by one map task when the request does not say: some tenths of a second of work.
const SPLIT_BYTES: u64 = 16 << 20;
/// Input per reducer when the request does not say.
const COLUMN_BYTES: u64 = 64 << 20;
/// Reducers at most.
const COLUMNS_MAX: u32 = 256;
/// A task's memory. The driver has what the manifest says, which is less: it is held until the job ends.
const TASK_BYTES: u64 = 128 << 20;

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
#[fanfold::function(tasks(map, merge, reduce))]
pub fn wordcount(request: Request) -> Result<Report> {
    let input = objects::list(request.prefix).collect::<Result<Vec<_>>>()?;
    let (objects, bytes) = (input.len() as u64, input.iter().map(|object| object.bytes).sum());
    let splits = split::plan(input, request.split_bytes.unwrap_or(SPLIT_BYTES), Pin::Cut);
    let reducers = request.reducers.unwrap_or_else(|| columns(bytes));
    if !(1..=COLUMNS_MAX).contains(&reducers) {
        return Err(fanfold::Error::invalid(format!("{reducers} reducers: ask for 1 to {COLUMNS_MAX}")));
    }
    let maps = splits.len();
    fanfold::info!("{objects} objects, {bytes} bytes: {maps} maps, {reducers} reducers");
    let columns = simple::run(&Counting { top: request.top }, splits, Layout::new(reducers)?)?.reduced;
    let mut best = Top::new(request.top);
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
fn map(split: Split, columns: u32) -> Result<Output> {
    fanfold_shuffle::map(&WordCount { top: 0 }, split, columns)
}

/// Adds up columns of several maps.
#[fanfold::task]
fn merge(columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    fanfold_shuffle::merge(&WordCount { top: 0 }, columns, &inputs)
}

/// Adds up one column.
#[fanfold::task]
fn reduce(
    top: usize,
    reducer: u32,
    columns: Range<u32>,
    inputs: Inputs<Partition>,
) -> Result<Outputs<(Column, Tally)>> {
    fanfold_shuffle::reduce(&WordCount { top }, reducer, columns, &inputs)
}

/// The calls of these tasks.
struct Counting {
    top: usize,
}

impl Tasks for Counting {
    type Split = Split;
    type Reduced = Column;

    fn map(&self, _: u32, split: Split, columns: u32) -> Call<Output> {
        map::call(split, columns).memory(TASK_BYTES)
    }

    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
        merge::call(columns, inputs).memory(TASK_BYTES)
    }

    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Column, Tally)>> {
        reduce::call(self.top, reducer, columns, inputs).memory(TASK_BYTES)
    }
}

struct WordCount {
    top: usize,
}

/// A record is one occurrence of a word; a block has one entry for each different word.
impl Exchange for WordCount {
    type Split = Split;
    type Reduced = Column;

    fn map(&self, split: Split, out: &mut Blocks) -> Result<()> {
        let mut counts = Counts::default();
        for range in split {
            out.read(range.length.unwrap_or(0));
            text::count(&range, &mut counts)?;
        }
        write(&counts, out)
    }

    fn merge(&self, column: shuffle::Column<'_>, out: &mut Blocks) -> Result<()> {
        let number = column.number;
        let counts = add_up(column)?;
        let (mut block, mut words) = (Vec::new(), 0);
        counts.each(|word, count| {
            words += count;
            counts::encode(word, count, &mut block);
        });
        out.took(words);
        out.gave(words);
        out.write(number, &block)
    }

    fn reduce(&self, _: u32, columns: &mut Columns) -> Result<Column> {
        let (mut result, mut top) = (Column { words: 0, distinct: 0, top: Vec::new() }, Top::new(self.top));
        while let Some(column) = columns.next() {
            add_up(column)?.each(|word, count| {
                result.words += count;
                result.distinct += 1;
                top.offer(word, count);
            });
        }
        columns.took(result.words);
        columns.gave(result.words);
        result.top = top.into_rows();
        Ok(result)
    }
}

/// Writes counts by column.
fn write(counts: &Counts, out: &mut Blocks) -> Result<()> {
    let (mut buffers, mut words) = (Buffers::of(out), 0);
    let columns = out.columns().end;
    let mut encoded = Ok(());
    counts.each(|word, count| {
        words += count;
        match buffers.of_key(word, columns) {
            Ok(buffer) => counts::encode(word, count, buffer),
            Err(error) => encoded = Err(error),
        }
    });
    encoded?;
    out.took(words);
    out.gave(words);
    buffers.write(out)
}

/// The sum of a column's blocks: one entry for each different word has to fit in memory.
fn add_up(column: shuffle::Column<'_>) -> Result<Counts> {
    let mut counts = Counts::default();
    for mut stream in column.streams {
        counts.merge(&stream.rest()?)?;
    }
    Ok(counts)
}
