//! Sorts the 100-byte records of all objects under a prefix by their first 10 bytes: `{"input": "in/", "output": "out/"}`.
//!
//! Output object *n*, `OUTPUT` + `part-` + *n*, has the records of reducer *n*; taken together in this order they are
//! sorted. The output depends on nothing but the input and the request's numbers of reducers and columns: not on the
//! strategy, nor on which task ran when. Records with equal keys are in the order of all their bytes, unless the key is so
//! frequent that it was dealt over several columns (by a hash of the record); then they are so within each column.

pub mod deal;
mod input;
mod output;
mod read;
pub mod runs;

use std::ops::Range;

use fanfold::{Call, Error, Future, Inputs, Outputs, Partition, Result};
use fanfold_shuffle::{
    Exchange, Output, Report as Stages, Tally, Tasks,
    kernel::record::RECORD_BYTES,
    partition::Ranges,
    split::{self, Pin, Split},
    strategy::auto::{Facts, Plan, Spill, Strategy},
};
use serde::{Deserialize, Serialize};

use deal::Deal;
use input::Inventory;
pub use output::Part;
use runs::Runs;

/// Input of one map task when the request does not say: large enough that its blocks are, small enough for a small
/// instance; and at most this share of the memory for partitions, so that some of them can be on their way at once.
const SPLIT_BYTES: u64 = 32 << 20;
const SPLIT_SHARE: u64 = 16;
/// But of a large input no more splits than this, because each is one more place that a reducer reads from at the same time,
const SPLITS: u64 = 200;
/// as long as they have no more: a map's memory is a split's and 8 bytes for each record.
const SPLIT_BYTES_MAX: u64 = 64 << 20;
/// A task's memory. The driver has what the manifest says, which is less: it is held until the job ends.
const TASK_BYTES: u64 = 128 << 20;
/// Memory for partitions when the request does not say.
const MEMORY_BYTES: u64 = 1 << 30;
/// Tasks that compute at once when the request does not say.
const SLOTS: u32 = 2;

/// What to sort, and how.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Objects whose keys start with this.
    pub input: String,
    /// What the output's keys start with. There must be nothing yet.
    pub output: String,
    /// Output objects.
    pub reducers: Option<u32>,
    /// `auto`, `simple`, `merge`, `push` or `push_star`.
    #[serde(default)]
    pub strategy: Wanted,
    /// `deal` or `runs`.
    #[serde(default)]
    pub method: Method,
    /// Bytes of input per map task.
    pub split_bytes: Option<u64>,
    /// Columns over all reducers.
    pub columns: Option<u32>,
    /// Bytes that all executors together have for partitions: what `auto` compares sizes with.
    pub memory_bytes: Option<u64>,
    /// Where the rest of them is: `disk` (of the executors) or `store`.
    #[serde(default)]
    pub spill: Spill,
    /// Tasks that compute at once.
    pub slots: Option<u32>,
    /// Maps per merge.
    pub factor: Option<u32>,
    /// Whether reducers compute the checksum of their records, as `valsort` does: about half a second of work per GB.
    #[serde(default)]
    pub checksum: bool,
}

impl Request {
    fn slots(&self) -> u32 {
        self.slots.unwrap_or(SLOTS).max(1)
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or(MEMORY_BYTES)
    }
}

/// A strategy, or the choice of one.
#[derive(Serialize, Deserialize, Clone, Copy, Default, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// Chosen from sizes.
    #[default]
    Auto,
    /// See [`Strategy::Simple`].
    Simple,
    /// See [`Strategy::Merge`].
    Merge,
    /// See [`Strategy::Push`].
    Push,
    /// See [`Strategy::PushStar`].
    PushStar,
}

/// What maps and reducers do.
#[derive(Serialize, Deserialize, Clone, Copy, Default, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// See [`deal`].
    #[default]
    Deal,
    /// See [`runs`].
    Runs,
}

/// What was done.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// Objects of input.
    pub objects: usize,
    /// Bytes of input and of output.
    pub bytes: u64,
    /// Records of input and of output.
    pub records: u64,
    /// Columns over all reducers.
    pub columns: u32,
    /// How it was submitted, and what the stages counted.
    pub stages: Stages,
    /// Why in this way.
    pub reason: String,
    /// The sum of the records' CRC-32s, in hexadecimal, if it was asked for.
    pub checksum: Option<String>,
}

/// The driver.
///
/// # Errors
/// `invalid`, `not-found` or `conflict` for what cannot be sorted; what a task failed with.
#[fanfold::function(tasks(survey, map, merge, reduce))]
pub fn sort(request: Request) -> Result<Report> {
    let (inventory, bounds) = survey::call(&request).memory(TASK_BYTES).submit()?;
    let Inventory { objects, bytes, layout } = inventory.get()?;
    let count = objects.len();
    let split_bytes = split_bytes(&request, bytes)?;
    let splits = split::plan(objects.into_iter().map(Into::into), split_bytes, Pin::All);
    let facts = Facts {
        bytes,
        maps: splits.len() as u32,
        reducers: layout.reducers(),
        memory_bytes: request.memory_bytes(),
        spill: request.spill,
        slots: request.slots(),
    };
    let plan = plan(&request, &facts);
    fanfold::info!(
        "{count} objects, {bytes} bytes: {} maps, {} reducers of {} columns; {} because {}",
        splits.len(),
        layout.reducers(),
        layout.columns(),
        plan.strategy,
        plan.reason
    );
    let job = Job { request, bounds };
    let shuffled = plan.run(&job, splits, layout)?;
    let sum = |parts: &[Part]| parts.iter().map(|part| part.checksum.map(u128::from)).sum::<Option<u128>>();
    Ok(Report {
        objects: count,
        bytes,
        records: shuffled.report.reduced.records_out,
        columns: layout.columns(),
        checksum: sum(&shuffled.reduced).filter(|_| job.request.checksum).map(|sum| format!("{sum:x}")),
        stages: shuffled.report,
        reason: plan.reason,
    })
}

fn split_bytes(request: &Request, input: u64) -> Result<u64> {
    let record = RECORD_BYTES as u64;
    let share = (request.memory_bytes() / SPLIT_SHARE).clamp(record, SPLIT_BYTES);
    let long = (input / SPLITS).min(SPLIT_BYTES_MAX);
    let bytes = request.split_bytes.unwrap_or(share.max(long));
    // Splits end where records do.
    match bytes / record * record {
        0 => Err(Error::invalid(format!("splits of {bytes} bytes: a record has {record}"))),
        whole => Ok(whole),
    }
}

fn plan(request: &Request, facts: &Facts) -> Plan {
    let plan = match request.strategy {
        Wanted::Auto => Plan::auto(facts),
        Wanted::Simple => Plan::of(Strategy::Simple, facts),
        Wanted::Merge => Plan::of(Strategy::Merge, facts),
        Wanted::Push => Plan::of(Strategy::Push, facts),
        Wanted::PushStar => Plan::of(Strategy::PushStar, facts),
    };
    let factor = request.factor.unwrap_or(plan.factor);
    Plan { factor, ..plan }
}

/// The calls of this sort's tasks.
struct Job {
    request: Request,
    bounds: Future<Vec<u8>>,
}

impl Tasks for Job {
    type Split = Split;
    type Reduced = Part;

    fn map(&self, _: u32, split: Split, _: u32) -> Call<Output> {
        map::call(self.request.method, split, &self.bounds).memory(TASK_BYTES)
    }

    fn merge(&self, columns: Range<u32>, inputs: Vec<Partition>) -> Call<Output> {
        merge::call(self.request.method, columns, inputs).memory(TASK_BYTES)
    }

    fn reduce(
        &self,
        reducer: u32,
        columns: Range<u32>,
        inputs: Vec<Partition>,
    ) -> Call<Outputs<(Part, Tally)>> {
        reduce::call(&self.request, reducer, columns, inputs).memory(TASK_BYTES)
    }
}

#[fanfold::task]
fn survey(request: Request) -> Result<Outputs<(Inventory, Vec<u8>)>> {
    input::survey(&request)
}

#[fanfold::task]
fn map(method: Method, split: Split, bounds: Vec<u8>) -> Result<Output> {
    let ranges = Ranges::from_bytes(&bounds)?;
    let columns = ranges.columns();
    let (ranges, output, checksum) = (Some(ranges), String::new(), false);
    match method {
        Method::Deal => fanfold_shuffle::map(&Deal { ranges, output, checksum }, split, columns),
        Method::Runs => fanfold_shuffle::map(&Runs { ranges, output, checksum }, split, columns),
    }
}

#[fanfold::task]
fn merge(method: Method, columns: Range<u32>, inputs: Inputs<Partition>) -> Result<Output> {
    let (ranges, output, checksum) = (None, String::new(), false);
    match method {
        Method::Deal => fanfold_shuffle::merge(&Deal { ranges, output, checksum }, columns, &inputs),
        Method::Runs => fanfold_shuffle::merge(&Runs { ranges, output, checksum }, columns, &inputs),
    }
}

#[fanfold::task]
fn reduce(
    request: Request,
    reducer: u32,
    columns: Range<u32>,
    inputs: Inputs<Partition>,
) -> Result<Outputs<(Part, Tally)>> {
    let Request { method, output, checksum, .. } = request;
    match method {
        Method::Deal => run(&Deal { ranges: None, output, checksum }, reducer, columns, &inputs),
        Method::Runs => run(&Runs { ranges: None, output, checksum }, reducer, columns, &inputs),
    }
}

fn run<X: Exchange<Reduced = Part>>(
    exchange: &X,
    reducer: u32,
    columns: Range<u32>,
    inputs: &Inputs<Partition>,
) -> Result<Outputs<(Part, Tally)>> {
    fanfold_shuffle::reduce(exchange, reducer, columns, inputs)
}
