//! Vectors as an Arrow file: one column `vector`, a list of as many 32-bit numbers in each row.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field};
use fanfold::{Result, objects};

/// Rows of a record batch.
const BATCH_ROWS: usize = 1024;

/// Writes an object.
///
/// # Errors
/// What storage says.
pub fn write(key: &str, dimension: u32, vectors: &[Vec<f32>]) -> Result<()> {
    let mut file = FileWriter::try_new(objects::create(key)?, &batch(dimension, &[])?.schema())?;
    for rows in vectors.chunks(BATCH_ROWS) {
        file.write(&batch(dimension, rows)?)?;
    }
    file.into_inner()?.finish()?;
    Ok(())
}

fn batch(dimension: u32, vectors: &[Vec<f32>]) -> Result<RecordBatch> {
    let numbers = Float32Array::from_iter_values(vectors.iter().flatten().copied());
    let field = Arc::new(Field::new("item", DataType::Float32, false));
    let lists = FixedSizeListArray::try_new(field, dimension as i32, Arc::new(numbers), None)?;
    Ok(RecordBatch::try_from_iter([("vector", Arc::new(lists) as ArrayRef)])?)
}
