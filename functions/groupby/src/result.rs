//! From totals to what people see: rows, their checksum, the top of them, Arrow files.

use std::{cmp::Ordering, sync::Arc};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use fanfold::{Error, Result, objects};
use fanfold_shuffle::kernel::aggregate::{Totals, hash};
use serde::{Deserialize, Serialize};

use crate::{
    Aggregate,
    columns::{Kind, Value},
};

/// Groups in one object: with every aggregate, half of what a function may write at once.
const OBJECT_GROUPS: usize = 600_000;
/// Rows of one batch of an object.
const BATCH_ROWS: usize = 1 << 15;

/// One aggregate of one group.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(untagged)]
pub enum Cell {
    /// A count, or of integers.
    Int(i64),
    /// A mean, or of floating-point numbers.
    Float(f64),
    /// Of no values.
    Null,
}

/// One group.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Row {
    /// Its key.
    pub key: i64,
    /// The aggregates, in the order in which they were asked for.
    pub cells: Vec<Cell>,
}

/// The cells of a group.
///
/// # Errors
/// `guest` for a sum of integers that does not fit into 64 bits.
pub fn row<N: Value>(key: i64, totals: &Totals<N>, aggregates: &[Aggregate]) -> Result<Row> {
    let cells = aggregates.iter().map(|aggregate| cell(*aggregate, totals)).collect::<Option<_>>();
    let overflow = || Error::guest(format!("the sum of key {key} does not fit into 64 bits"));
    Ok(Row { key, cells: cells.ok_or_else(overflow)? })
}

fn cell<N: Value>(aggregate: Aggregate, totals: &Totals<N>) -> Option<Cell> {
    let extremes = totals.extremes.filter(|_| totals.count > 0);
    Some(match aggregate {
        Aggregate::Count => Cell::Int(i64::try_from(totals.count).ok()?),
        _ if totals.count == 0 => Cell::Null,
        Aggregate::Sum => N::sum(totals.sum)?.cell(),
        Aggregate::Mean => Cell::Float(N::rounded(totals.sum) / totals.count as f64),
        Aggregate::Min => extremes.map_or(Cell::Null, |(min, _)| min.cell()),
        Aggregate::Max => extremes.map_or(Cell::Null, |(_, max)| max.cell()),
    })
}

impl Row {
    /// A hash of the key and every cell, bit for bit.
    pub fn hash(&self) -> u64 {
        self.cells.iter().fold(hash(self.key), |seed, cell| {
            let bits = match cell {
                Cell::Int(n) => *n as u64,
                Cell::Float(x) => x.to_bits(),
                Cell::Null => 0,
            };
            hash((seed ^ bits) as i64)
        })
    }

    /// Orders by the first aggregate, the largest first, then by key.
    pub fn rank(&self, other: &Self) -> Ordering {
        let first = |row: &Self| match row.cells.first() {
            Some(Cell::Int(n)) => (*n as f64, *n),
            Some(Cell::Float(x)) => (*x, 0),
            Some(Cell::Null) | None => (f64::NEG_INFINITY, 0),
        };
        let (mine, theirs) = (first(self), first(other));
        // The integer decides between two that round to the same.
        theirs.0.total_cmp(&mine.0).then(theirs.1.cmp(&mine.1)).then(self.key.cmp(&other.key))
    }
}

/// Keeps the first `count` rows by [`Row::rank`], in order.
pub fn top(mut rows: Vec<Row>, count: usize) -> Vec<Row> {
    if count < rows.len() && count > 0 {
        rows.select_nth_unstable_by(count - 1, Row::rank);
    }
    rows.truncate(count);
    rows.sort_by(Row::rank);
    rows
}

/// Writes rows as Arrow IPC files named `<prefix><number>-<part>.arrow`, and returns how many.
///
/// # Errors
/// Those of writing an object.
pub fn write(prefix: &str, number: u32, key: &str, columns: &[(String, Kind)], rows: &[Row]) -> Result<u32> {
    let mut objects = 0;
    for part in rows.chunks(OBJECT_GROUPS) {
        let mut bytes = Vec::new();
        let mut writer: Option<FileWriter<&mut Vec<u8>>> = None;
        let mut out = Some(&mut bytes);
        for rows in part.chunks(BATCH_ROWS) {
            let batch = batch(key, columns, rows)?;
            if let Some(out) = out.take() {
                writer = Some(FileWriter::try_new(out, batch.schema_ref())?);
            }
            writer.as_mut().map_or(Ok(()), |writer| writer.write(&batch))?;
        }
        if let Some(mut writer) = writer {
            writer.finish()?;
        }
        objects::put(&format!("{prefix}{number:05}-{objects:03}.arrow"), &bytes)?;
        objects += 1;
    }
    Ok(objects)
}

fn batch(key: &str, columns: &[(String, Kind)], rows: &[Row]) -> Result<RecordBatch> {
    let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>());
    let mut arrays = vec![(key.to_owned(), keys)];
    for (place, (name, kind)) in columns.iter().enumerate() {
        let cells = rows.iter().map(|row| row.cells.get(place).copied().unwrap_or(Cell::Null));
        let array: ArrayRef = match kind {
            Kind::Int => Arc::new(cells.map(Cell::int).collect::<Int64Array>()),
            Kind::Float => Arc::new(cells.map(Cell::float).collect::<Float64Array>()),
        };
        arrays.push((name.clone(), array));
    }
    // Nullable or not is a matter of the column, not of what this batch happens to have.
    Ok(RecordBatch::try_from_iter_with_nullable(
        arrays.into_iter().enumerate().map(|(n, (name, array))| (name, array, n > 0)),
    )?)
}

impl Cell {
    fn int(self) -> Option<i64> {
        if let Self::Int(n) = self { Some(n) } else { None }
    }

    fn float(self) -> Option<f64> {
        if let Self::Float(x) = self { Some(x) } else { None }
    }
}
