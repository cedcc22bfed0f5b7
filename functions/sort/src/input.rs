//! What is to be sorted: checked, listed and sampled once, by a task of its own.
//!
//! A task, because the driver may run again when outputs are there already: what was found the first time is what
//! holds.

use fanfold::{Error, ErrorKind, Outputs, Result, objects, objects::Object};
use fanfold_shuffle::{
    COLUMNS_MAX, Layout,
    kernel::record::{RECORD_BYTES, key, records},
    partition::{Key, Ranges, sample},
};
use serde::{Deserialize, Serialize};

use crate::Request;

/// Input per reducer when the request does not say: also the size of an output object.
const REDUCER_BYTES: u64 = 64 << 20;
/// Input per column: a column, the keys of its records and their copies are what a reducer works on at once, and that
/// should stay near the processor.
const COLUMN_BYTES: u64 = 2 << 20;
/// Columns of that size at most: with more, a map's blocks get smaller than is good to read.
const COLUMNS: u64 = 2048;
/// Input per column at most, however much there is: what a small instance has room for twice.
const COLUMN_BYTES_MAX: u64 = 16 << 20;
/// Reducers at most.
pub const REDUCERS_MAX: u32 = 25_000;
/// Sampled records per column: then a reducer of 16 columns differs from the mean by a few in a hundred.
const SAMPLES: u64 = 24;
/// Places to sample at.
const PLACES: u64 = 128;

/// What was found.
#[derive(Serialize, Deserialize)]
pub struct Inventory {
    /// The objects, in the order of their keys.
    pub objects: Vec<Listed>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The shape of the shuffle.
    pub layout: Layout,
}

/// An object as it was.
#[derive(Serialize, Deserialize)]
pub struct Listed {
    key: String,
    bytes: u64,
    etag: String,
}

impl From<Listed> for Object {
    fn from(Listed { key, bytes, etag }: Listed) -> Self {
        Self { key, bytes, etag }
    }
}

/// Checks the request against what is there; the boundaries of the columns are the second output.
///
/// # Errors
/// `invalid` or `conflict` for what cannot be sorted, with what to do about it.
pub fn survey(request: &Request) -> Result<Outputs<(Inventory, Vec<u8>)>> {
    check_prefixes(&request.input, &request.output)?;
    let input = objects::list(&request.input).collect::<Result<Vec<_>>>()?;
    if input.is_empty() {
        let message = format!("there are no objects under `{}`", request.input);
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    if let Some(object) = input.iter().find(|object| object.bytes % RECORD_BYTES as u64 != 0) {
        let rest = object.bytes % RECORD_BYTES as u64;
        return Err(Error::invalid(format!(
            "object `{}` has {} bytes: {rest} more than a whole number of {RECORD_BYTES}-byte records, so its last record is cut or its records have another size",
            object.key, object.bytes
        )));
    }
    let bytes = input.iter().map(|object| object.bytes).sum();
    let layout = layout(request, bytes)?;
    let bounds = boundaries(&input, layout.columns())?.to_bytes();
    let objects = input.into_iter().map(|Object { key, bytes, etag }| Listed { key, bytes, etag }).collect();
    Ok(Outputs((Inventory { objects, bytes, layout }, bounds)))
}

/// Output among the input would be sorted again by the next run, and old output would mix with the new.
fn check_prefixes(input: &str, output: &str) -> Result<()> {
    if output.is_empty() {
        return Err(Error::invalid("say where to write: `output` is empty"));
    }
    if output.starts_with(input) || input.starts_with(output) {
        return Err(Error::invalid(format!(
            "the output prefix `{output}` and the input prefix `{input}` overlap: write somewhere else"
        )));
    }
    match objects::list(output).next().transpose()? {
        None => Ok(()),
        Some(object) => Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "`{}` is there already: remove what is under `{output}`, or write somewhere else",
                object.key
            ),
        )),
    }
}

fn layout(request: &Request, bytes: u64) -> Result<Layout> {
    let by_size = bytes.div_ceil(REDUCER_BYTES).clamp(1, u64::from(REDUCERS_MAX)) as u32;
    let least = if bytes < REDUCER_BYTES { 1 } else { 2 * request.slots() };
    let reducers = request.reducers.unwrap_or(by_size.max(least));
    if !(1..=REDUCERS_MAX).contains(&reducers) {
        return Err(Error::invalid(format!("{reducers} reducers: ask for 1 to {REDUCERS_MAX}")));
    }
    let count = u64::from(reducers);
    // As many for each reducer: about the number that is best, as long as none is too large, if that many are allowed.
    let fine = bytes.div_ceil(COLUMN_BYTES).min(COLUMNS);
    let each = ((fine + count / 2) / count).max(bytes.div_ceil(COLUMN_BYTES_MAX * count)).max(1);
    let columns = (each * count).min(u64::from(COLUMNS_MAX)) as u32;
    Layout::with_columns(request.columns.unwrap_or(columns).max(reducers), reducers)
}

/// Boundaries that cut a sample of the input into columns of equal size.
fn boundaries(input: &[Object], columns: u32) -> Result<Ranges> {
    let mut keys: Vec<Key> = Vec::new();
    let wanted = SAMPLES * u64::from(columns);
    sample::records(input, RECORD_BYTES as u64, wanted, PLACES, |record| {
        keys.extend(records(record).iter().map(key));
    })?;
    Ranges::new(Ranges::quantiles(&mut keys, columns))
}
