//! Making data to group: objects of Arrow IPC with an `i64` column `key` and an `f64` column `value`.
//!
//! Keys are uniform over `0..distinct`. Values are multiples of 1/8 below 1000, so sums of billions of them are exact,
//! and equal in whatever order they are added.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use fanfold::{Error, Result, objects};
use fanfold_shuffle::kernel::aggregate::hash;
use serde::{Deserialize, Serialize};

/// Rows of one batch: half of what is read at a time.
const BATCH_ROWS: u64 = 1 << 15;
/// Rows of one object: what a function may write at once is 64 MiB.
const OBJECT_ROWS_MAX: u64 = 4_000_000;
/// Different values.
const VALUES: u64 = 8_000;

/// What to make.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// What the objects' keys start with.
    pub prefix: String,
    /// Rows in all.
    pub rows: u64,
    /// Keys are below this.
    pub distinct: u64,
    /// Objects, of rows as equal as can be.
    pub objects: u64,
    /// Other seeds, other data; the same seed, the same data.
    #[serde(default)]
    pub seed: u64,
}

/// What was made.
#[derive(Serialize, Deserialize, Debug)]
pub struct Made {
    /// Rows in all.
    pub rows: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes of all objects.
    pub bytes: u64,
}

impl Data {
    /// # Errors
    /// `invalid` for numbers that cannot be.
    pub fn check(&self) -> Result<()> {
        if self.distinct == 0 || self.distinct > i64::MAX as u64 {
            return Err(Error::invalid(format!("{} different keys: ask for at least one", self.distinct)));
        }
        if self.objects == 0 || self.rows.div_ceil(self.objects) > OBJECT_ROWS_MAX {
            let (rows, least) = (self.rows, self.rows.div_ceil(OBJECT_ROWS_MAX).max(1));
            return Err(Error::invalid(format!(
                "{} objects for {rows} rows: ask for {least} at least",
                self.objects
            )));
        }
        Ok(())
    }

    /// Row number `n` of all.
    pub fn row(&self, n: u64) -> (i64, f64) {
        let random = hash((n ^ hash(self.seed as i64)) as i64);
        let key = ((u128::from(random) * u128::from(self.distinct)) >> 64) as i64;
        (key, (hash(random as i64) % VALUES) as f64 / 8.0)
    }

    /// Writes object number `object`; returns its size in bytes.
    pub(crate) fn write(&self, object: u64) -> Result<u64> {
        let first =
            |object: u64| (u128::from(self.rows) * u128::from(object) / u128::from(self.objects)) as u64;
        let rows = first(object)..first(object + 1);
        let schema = self.batch(0..0)?.schema();
        let mut writer = FileWriter::try_new(Vec::new(), &schema)?;
        let mut at = rows.start;
        while at < rows.end {
            let end = rows.end.min(at + BATCH_ROWS);
            writer.write(&self.batch(at..end)?)?;
            at = end;
        }
        let bytes = writer.into_inner()?;
        Ok(objects::put(&format!("{}{object:05}.arrow", self.prefix), &bytes)?.bytes)
    }

    fn batch(&self, rows: std::ops::Range<u64>) -> Result<RecordBatch> {
        let (keys, values): (Vec<i64>, Vec<f64>) = rows.map(|n| self.row(n)).unzip();
        let keys: ArrayRef = Arc::new(Int64Array::from(keys));
        Ok(RecordBatch::try_from_iter([("key", keys), ("value", Arc::new(Float64Array::from(values)) as _)])?)
    }
}
