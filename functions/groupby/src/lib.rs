//! Group-by over Arrow IPC data: count, sum, mean, min and max of one column by the integer keys of another.
//!
//! The input is every object under a prefix, each an Arrow IPC file or stream, uncompressed. (Parquet is not read: its
//! decoding would be most of this function.) Objects of any size: a file is cut between its batches, a stream is one
//! piece. The result is Arrow IPC files under another prefix, the largest groups in the report, or both.
//!
//! Maps aggregate their split first and send one entry per group: `fanfold_shuffle::kernel::aggregate` says why, and
//! what it costs. Sums of floating-point numbers are added in the order of the splits, whatever the timing.

mod columns;
mod exchange;
pub mod data;
pub mod input;
pub mod result;

use std::ops::Range;

use fanfold::{Call, Durability, Error, Inputs, Outputs, Partition, Result, objects};
use fanfold_shuffle::{
    Layout, Output, Tally, Tasks,
    kernel::aggregate::{Spread, Sum},
    split::{self, Pin, Split},
    strategy::simple,
};
use serde::{Deserialize, Serialize};

use columns::Kind;
use data::{Data, Made};
use exchange::{GroupBy, Reduced};
use result::Row;

/// Input read by one map task when the request does not say. What a map sends is the groups it has seen, so larger splits
/// exchange less: 100 M rows of a million keys cost 10.5 s of processor time in splits of 64 MiB, 6.3 s in splits of 128,
/// 5.5 s in splits of 256. Larger ones also leave more slots idle at the end.
const SPLIT_BYTES: u64 = 160 << 20;
/// Input per reducer when the request does not say: if no key repeats at all, its groups still fit into memory.
const COLUMN_BYTES: u64 = 64 << 20;
/// Reducers at most.
const REDUCERS_MAX: u32 = 1024;

/// A task's memory. The driver has what the manifest says, which is less: it is held until the job ends.
const TASK_BYTES: u64 = 256 << 20;

/// What to compute.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Objects whose keys start with this.
    pub input: String,
    /// The column of keys: integers.
    pub key: String,
    /// The column of values: numbers. Nulls are not counted, and their keys have groups all the same.
    pub value: String,
    /// What is wanted of the values, in this order.
    #[serde(default = "aggregates_default")]
    pub aggregates: Vec<Aggregate>,
    /// Where the result goes: nothing may be there. Without it, only the report is made.
    pub output: Option<String>,
    /// How many groups the report has: those with the largest first aggregate.
    #[serde(default = "top_default")]
    pub top: usize,
    /// Reduce tasks.
    pub reducers: Option<u32>,
    /// Bytes of input per map task.
    pub split_bytes: Option<u64>,
}

fn aggregates_default() -> Vec<Aggregate> {
    vec![Aggregate::Count, Aggregate::Sum]
}

fn top_default() -> usize {
    10
}

/// A function of a group's values.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Aggregate {
    /// How many there are.
    Count,
    /// Their sum, in the type of the values.
    Sum,
    /// Their mean.
    Mean,
    /// The smallest; NaN only if all are.
    Min,
    /// The largest; NaN only if all are.
    Max,
}

/// What was computed.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Values that are in the groups: rows whose value is not null.
    pub rows: u64,
    /// Different keys.
    pub groups: u64,
    /// Over all groups and their aggregates, in hexadecimal; independent of splits and reducers as far as sums are exact.
    pub checksum: String,
    /// Bytes of input.
    pub bytes: u64,
    /// Objects of input.
    pub objects: u64,
    /// Map tasks.
    pub maps: u32,
    /// Reduce tasks.
    pub reducers: u32,
    /// Bytes that maps sent to reducers.
    pub exchanged_bytes: u64,
    /// Objects of output.
    pub written: u32,
    /// The groups with the largest first aggregate.
    pub top: Vec<Row>,
}

/// What every task of a job has to know.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Spec {
    key: String,
    value: String,
    kind: Kind,
    aggregates: Vec<Aggregate>,
    output: Option<String>,
    top: usize,
}

impl Spec {
    /// The columns of the result beside the key.
    fn columns(&self) -> Vec<(String, Kind)> {
        let column = |aggregate: &Aggregate| match aggregate {
            Aggregate::Count => ("count".to_owned(), Kind::Int),
            Aggregate::Sum => ("sum".to_owned(), self.kind),
            Aggregate::Mean => ("mean".to_owned(), Kind::Float),
            Aggregate::Min => ("min".to_owned(), self.kind),
            Aggregate::Max => ("max".to_owned(), self.kind),
        };
        self.aggregates.iter().map(column).collect()
    }

    fn has_extremes(&self) -> bool {
        self.aggregates.iter().any(|aggregate| matches!(aggregate, Aggregate::Min | Aggregate::Max))
    }
}

/// The driver.
///
/// # Errors
/// `invalid` where the request does not fit the data; what a task failed with.
#[fanfold::function(tasks(prepare, map, merge, reduce, generate, generate_object))]
pub fn groupby(request: Request) -> Result<Report> {
    // A task, because its result is recorded: a driver that is run again finds its own output, and perhaps other input.
    let Prepared { spec, splits, objects, bytes } =
        prepare::call(request.clone()).memory(TASK_BYTES).submit()?.get()?;
    let reducers = request
        .reducers
        .unwrap_or_else(|| bytes.div_ceil(COLUMN_BYTES).clamp(1, u64::from(REDUCERS_MAX)) as u32);
    if !(1..=REDUCERS_MAX).contains(&reducers) {
        return Err(Error::invalid(format!("{reducers} reducers: ask for 1 to {REDUCERS_MAX}")));
    }
    fanfold::info!("{objects} objects, {bytes} bytes: {} maps, {reducers} reducers", splits.len());
    let top = spec.top;
    let shuffled = simple::run(&Job { spec }, splits, Layout::new(reducers)?)?;
    let sum = |of: fn(&Reduced) -> u64| shuffled.reduced.iter().map(of).fold(0, u64::wrapping_add);
    Ok(Report {
        rows: shuffled.report.reduced.records_out,
        groups: sum(|reduced| reduced.groups),
        checksum: format!("{:016x}", sum(|reduced| reduced.checksum)),
        bytes,
        objects,
        maps: shuffled.report.maps,
        reducers,
        exchanged_bytes: shuffled.report.mapped.bytes_out,
        written: shuffled.reduced.iter().map(|reduced| reduced.objects).sum(),
        top: result::top(shuffled.reduced.into_iter().flat_map(|reduced| reduced.top).collect(), top),
    })
}

/// A request that has been checked against the data.
#[derive(Serialize, Deserialize)]
pub struct Prepared {
    spec: Spec,
    splits: Vec<Split>,
    objects: u64,
    bytes: u64,
}

/// Checks a request, lists its input and cuts it.
#[fanfold::task]
fn prepare(request: Request) -> Result<Prepared> {
    let Request { input, key, value, aggregates, output, top, split_bytes, .. } = request;
    if aggregates.is_empty() {
        return Err(Error::invalid("no aggregates: ask for count, sum, mean, min or max"));
    }
    if let Some(output) = &output {
        if output.starts_with(&input) || input.starts_with(output.as_str()) {
            return Err(Error::invalid(format!(
                "output `{output}` and input `{input}`: one is inside the other"
            )));
        }
        if let Some(object) = objects::list(output).next().transpose()? {
            return Err(Error::invalid(format!("output `{output}` is not empty: there is `{}`", object.key)));
        }
    }
    let objects = objects::list(&input).collect::<Result<Vec<_>>>()?;
    let first = objects.iter().find(|object| object.bytes > 0);
    let first = first.ok_or_else(|| Error::invalid(format!("there is no data under `{input}`")))?;
    let kind = columns::kind(input::schema(&first.key)?.as_ref(), &key, &value)
        .map_err(|error| error.context(format_args!("object `{}`", first.key)))?;
    let (count, bytes) = (objects.len() as u64, objects.iter().map(|object| object.bytes).sum());
    let splits = split::plan(objects, split_bytes.unwrap_or(SPLIT_BYTES), Pin::All);
    Ok(Prepared { spec: Spec { key, value, kind, aggregates, output, top }, splits, objects: count, bytes })
}

/// How the library calls the tasks.
struct Job {
    spec: Spec,
}

impl Tasks for Job {
    type Split = Split;
    type Reduced = Reduced;

    fn map(&self, _: u32, split: Split, columns: u32) -> Call<Output> {
        // Made again from the input if it is lost: writing it to the store as well would be most of the job's writes.
        map::call(&self.spec, split, columns).durability(Durability::None).memory(TASK_BYTES)
    }

    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
        merge::call(&self.spec, columns, inputs).memory(TASK_BYTES)
    }

    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Reduced, Tally)>> {
        reduce::call(&self.spec, reducer, columns, inputs).memory(TASK_BYTES)
    }
}

/// Runs code with `$exchange` of the states that a specification needs.
macro_rules! with_states {
    ($spec:expr, $exchange:ident => $body:expr) => {
        match ($spec.kind, $spec.has_extremes()) {
            (Kind::Int, false) => {
                let $exchange = GroupBy::<Sum<i64>>::new($spec);
                $body
            }
            (Kind::Int, true) => {
                let $exchange = GroupBy::<Spread<i64>>::new($spec);
                $body
            }
            (Kind::Float, false) => {
                let $exchange = GroupBy::<Sum<f64>>::new($spec);
                $body
            }
            (Kind::Float, true) => {
                let $exchange = GroupBy::<Spread<f64>>::new($spec);
                $body
            }
        }
    };
}

/// Aggregates a split.
#[fanfold::task]
fn map(spec: Spec, split: Split, columns: u32) -> Result<Output> {
    with_states!(&spec, exchange => fanfold_shuffle::map(&exchange, split, columns))
}

/// Merges some columns of several maps.
#[fanfold::task]
fn merge(spec: Spec, columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    with_states!(&spec, exchange => fanfold_shuffle::merge(&exchange, columns, &inputs))
}

/// Makes the results of one reducer's columns.
#[fanfold::task]
fn reduce(
    spec: Spec,
    reducer: u32,
    columns: Range<u32>,
    inputs: Inputs<Partition>,
) -> Result<Outputs<(Reduced, Tally)>> {
    with_states!(&spec, exchange => fanfold_shuffle::reduce(&exchange, reducer, columns, &inputs))
}

/// Makes data to group, an object a task.
///
/// # Errors
/// `invalid` for numbers that cannot be; those of writing objects.
#[fanfold::task]
pub fn generate(data: Data) -> Result<Made> {
    data.check()?;
    let submit = |object| generate_object::call(&data, object).memory(TASK_BYTES).submit();
    let objects = (0..data.objects).map(submit).collect::<Result<Vec<_>>>()?;
    let bytes = fanfold::wait_all(&objects)?.iter().sum();
    Ok(Made { rows: data.rows, objects: data.objects, bytes })
}

/// Makes one object; returns its size in bytes.
#[fanfold::task]
fn generate_object(data: Data, object: u64) -> Result<u64> {
    data.write(object)
}
