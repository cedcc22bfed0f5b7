//! The two columns of a batch, as slices of 64-bit numbers.

use arrow_array::{
    Array, ArrayRef, RecordBatch,
    cast::AsArray,
    types::{
        ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
        UInt16Type, UInt32Type,
    },
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Schema};
use fanfold::{Error, Result};
use fanfold_shuffle::kernel::aggregate::Number;
use serde::{Deserialize, Serialize};

/// What values are aggregated as.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `i64`: every integer type but `UInt64`.
    Int,
    /// `f64`: `Float32` and `Float64`.
    Float,
}

/// A number that columns are turned into.
pub trait Value: Number + Default {
    /// Which.
    const KIND: Kind;
    /// The column's numbers; shared with it if they are of this type already. What stands in the place of a null is
    /// arbitrary.
    fn of(array: &ArrayRef) -> Option<ScalarBuffer<Self>>
    where
        Self: arrow_buffer::ArrowNativeType;
    /// A sum in the type of the values, unless it does not fit.
    fn sum(sum: Self::Sum) -> Option<Self>;
    /// A sum, rounded.
    fn rounded(sum: Self::Sum) -> f64;
    /// As a cell of the result.
    fn cell(self) -> crate::result::Cell;
}

impl Value for i64 {
    const KIND: Kind = Kind::Int;

    fn of(array: &ArrayRef) -> Option<ScalarBuffer<i64>> {
        Some(match array.data_type() {
            DataType::Int64 => array.as_primitive::<Int64Type>().values().clone(),
            DataType::Int32 => widened::<Int32Type, _>(array),
            DataType::Int16 => widened::<Int16Type, _>(array),
            DataType::Int8 => widened::<Int8Type, _>(array),
            DataType::UInt32 => widened::<UInt32Type, _>(array),
            DataType::UInt16 => widened::<UInt16Type, _>(array),
            DataType::UInt8 => widened::<UInt8Type, _>(array),
            _ => return None,
        })
    }

    fn sum(sum: i128) -> Option<i64> {
        i64::try_from(sum).ok()
    }

    fn rounded(sum: i128) -> f64 {
        sum as f64
    }

    fn cell(self) -> crate::result::Cell {
        crate::result::Cell::Int(self)
    }
}

impl Value for f64 {
    const KIND: Kind = Kind::Float;

    fn of(array: &ArrayRef) -> Option<ScalarBuffer<f64>> {
        Some(match array.data_type() {
            DataType::Float64 => array.as_primitive::<Float64Type>().values().clone(),
            DataType::Float32 => widened::<Float32Type, _>(array),
            _ => return None,
        })
    }

    fn sum(sum: f64) -> Option<f64> {
        Some(sum)
    }

    fn rounded(sum: f64) -> f64 {
        sum
    }

    fn cell(self) -> crate::result::Cell {
        crate::result::Cell::Float(self)
    }
}

fn widened<T: ArrowPrimitiveType, N: From<T::Native> + arrow_buffer::ArrowNativeType>(
    array: &ArrayRef,
) -> ScalarBuffer<N> {
    array.as_primitive::<T>().values().iter().map(|n| N::from(*n)).collect()
}

/// What the values of a column are aggregated as, given the schema of its object; and that its keys can be keys.
///
/// # Errors
/// `invalid` for a column that is not there or of a type that does not fit.
pub fn kind(schema: &Schema, key: &str, value: &str) -> Result<Kind> {
    let type_of = |name: &str| {
        let field = schema.fields().iter().find(|field| field.name() == name);
        field.map(|field| field.data_type().clone()).ok_or_else(|| {
            let names = schema.fields().iter().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>();
            Error::invalid(format!("there is no column `{name}`; there are: {}", names.join(", ")))
        })
    };
    let is_int = |kind: &DataType| kind.is_integer() && *kind != DataType::UInt64;
    let key_type = type_of(key)?;
    if !is_int(&key_type) {
        let wanted = "a key is a signed integer, or an unsigned one of at most 32 bits";
        return Err(Error::invalid(format!("column `{key}` is {key_type}: {wanted}")));
    }
    match type_of(value)? {
        DataType::Float64 | DataType::Float32 => Ok(Kind::Float),
        other if is_int(&other) => Ok(Kind::Int),
        other => {
            let wanted = "a value is a floating-point number of 32 or 64 bits, or an integer as keys are";
            Err(Error::invalid(format!("column `{value}` is {other}: {wanted}")))
        }
    }
}

/// The rows of one batch.
pub struct Rows<N: arrow_buffer::ArrowNativeType> {
    /// No nulls among them.
    pub keys: ScalarBuffer<i64>,
    /// As many as keys.
    pub values: ScalarBuffer<N>,
    /// Which values there are; all of them without it.
    pub valid: Option<NullBuffer>,
}

impl<N: Value + arrow_buffer::ArrowNativeType> Rows<N> {
    /// Takes the two columns out of a batch.
    ///
    /// # Errors
    /// `invalid` for columns that are not there, of another type than those of the job's first object, or null keys.
    pub fn of(batch: &RecordBatch, key: &str, value: &str) -> Result<Self> {
        if kind(batch.schema_ref(), key, value)? != N::KIND {
            let message = format!("column `{value}` is not of the same kind as in the first object");
            return Err(Error::invalid(message));
        }
        let column = |name| {
            batch.column_by_name(name).ok_or_else(|| Error::invalid(format!("there is no column `{name}`")))
        };
        let (key_array, value_array) = (column(key)?, column(value)?);
        if key_array.null_count() > 0 {
            let nulls = key_array.null_count();
            return Err(Error::invalid(format!(
                "{nulls} keys of column `{key}` are null: leave those rows out"
            )));
        }
        let numbers = || Some((i64::of(key_array)?, N::of(value_array)?));
        let (keys, values) = numbers().ok_or_else(|| Error::invalid("the columns are no numbers"))?;
        let valid = value_array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        Ok(Self { keys, values, valid })
    }
}
