//! The tensors of a safetensors object: where they are, and what they are. Nothing but the header is read to know that, and nothing
//! in the header is believed: a tensor lies within the object, has as many bytes as its shape says, and shares none with another.

use std::{collections::BTreeMap, ops::Range};

use fanfold::{Error, Reader, Result};
use half::f16;
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use serde::{Deserialize, de::IgnoredAny};

/// Bytes of the header's length before it.
const LENGTH_BYTES: u64 = 8;
/// Bytes of a header: a hundred thousand tensors.
const HEADER_BYTES_MAX: u64 = 16 << 20;
/// What the names of all tensors may start with: encoders that were saved with a head for some task.
const PREFIX: &str = "bert.";

/// An open safetensors object.
pub struct Weights {
    reader: Reader,
    tensors: BTreeMap<String, Tensor>,
}

/// Where a tensor is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// What its numbers are.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its bytes of the object.
    pub bytes: Range<u64>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    _metadata: Option<IgnoredAny>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

impl Weights {
    /// Reads the header.
    ///
    /// # Errors
    /// `invalid` for what is no whole safetensors file, naming the tensor that is wrong where it is one.
    pub fn open(reader: Reader) -> Result<Self> {
        let size = reader.size();
        let length = reader.range(0..LENGTH_BYTES)?;
        let length = <[u8; 8]>::try_from(length).map(u64::from_le_bytes);
        let begin = match length {
            Ok(length) if length <= HEADER_BYTES_MAX && LENGTH_BYTES + length <= size => {
                LENGTH_BYTES + length
            }
            _ => return Err(broken(format!("its {size} bytes do not begin with a whole header"))),
        };
        let header = reader.range(LENGTH_BYTES..begin)?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|e| broken(format!("its header: {e}")))?;
        let tensors = check(header.tensors, begin, size)?;
        Ok(Self { reader, tensors })
    }

    /// The tensor of this name, which must have this shape and numbers of a kind that is known here.
    ///
    /// # Errors
    /// `invalid`, naming it.
    pub fn tensor(&self, name: &str, shape: &[u32]) -> Result<&Tensor> {
        let tensor = self.tensors.get(name).or_else(|| self.tensors.get(&format!("{PREFIX}{name}")));
        let tensor = tensor.ok_or_else(|| Error::invalid(format!("the tensor `{name}` is missing")))?;
        if tensor.shape.iter().map(|side| *side as u64).ne(shape.iter().map(|side| u64::from(*side))) {
            return Err(Error::invalid(format!(
                "the tensor `{name}` has the shape {:?}: with this config.json it would be {shape:?}",
                tensor.shape
            )));
        }
        if !matches!(tensor.dtype, Dtype::F32 | Dtype::F16) {
            return Err(Error::invalid(format!(
                "the tensor `{name}` is {}: F32 and F16 will do",
                tensor.dtype
            )));
        }
        Ok(tensor)
    }

    /// What the tensors' ranges are of.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The numbers of a tensor, row by row.
    ///
    /// # Errors
    /// As [`Weights::tensor`] and [`Reader::range`].
    pub fn numbers(&self, name: &str, shape: &[u32]) -> Result<Vec<f32>> {
        let tensor = self.tensor(name, shape)?;
        let bytes = self.reader.range(tensor.bytes.clone())?;
        Ok(match tensor.dtype {
            Dtype::F16 => bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).to_f32()).collect(),
            _ => bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect(),
        })
    }
}

fn broken(why: String) -> Error {
    Error::invalid(format!("not a whole safetensors file: {why}"))
}

/// That each tensor is where it can be, in an object of `size` bytes whose data begin at `begin`.
fn check(infos: BTreeMap<String, TensorInfo>, begin: u64, size: u64) -> Result<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for (name, info) in &infos {
        let (from, to) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
        if to > size - begin {
            return Err(broken(format!(
                "the tensor `{name}` ends at byte {to} of data that have {}",
                size - begin
            )));
        }
        let bits = info
            .shape
            .iter()
            .try_fold(info.dtype.bitsize() as u64, |product, side| product.checked_mul(*side as u64));
        if from > to || bits != Some(8 * (to - from)) {
            let (dtype, shape) = (info.dtype, &info.shape);
            return Err(broken(format!(
                "the tensor `{name}` of {dtype} and the shape {shape:?} has the bytes {from} to {to}"
            )));
        }
        let bytes = begin + from..begin + to;
        tensors.insert(name.clone(), Tensor { dtype: info.dtype, shape: info.shape.clone(), bytes });
    }
    // That they follow each other without a gap, as the format has it, the library finds out.
    let mut infos: Vec<_> = infos.into_iter().collect();
    infos.sort_by_key(|(_, info)| info.data_offsets);
    let metadata =
        Metadata::new(None, infos).map_err(|e| broken(format!("its tensors overlap or leave gaps: {e}")))?;
    if metadata.data_len() as u64 != size - begin {
        return Err(broken(format!("the tensors have {} bytes of {}", metadata.data_len(), size - begin)));
    }
    Ok(tensors)
}
