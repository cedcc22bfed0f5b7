//! Record batches in partitions, as Arrow IPC.
//!
//! Each block is a whole IPC stream, schema included: whoever is given some blocks of a partition can read them without
//! the others. Batches are decoded in place where alignment allows; their columns then share one buffer.
//!
//! ```
//! use std::sync::Arc;
//! use arrow_array::{Int64Array, RecordBatch};
//! use fanfold::{Partition, Result, Writer, arrow};
//!
//! /// The numbers up to `n`, even ones in block 0, odd ones in block 1.
//! #[fanfold::task]
//! fn numbers(n: i64) -> Result<Partition> {
//!     let mut writer = Writer::new()?;
//!     for start in 0..2 {
//!         let column: Int64Array = (start..n).step_by(2).collect();
//!         arrow::write_block(&mut writer, &[RecordBatch::try_from_iter([("n", Arc::new(column) as _)])?])?;
//!     }
//!     writer.finish()
//! }
//!
//! # fn main() -> Result<()> {
//! let odd = numbers::submit(5)?.as_partition().block(1)?;
//! let batches = arrow::batches(odd.open()?).collect::<Result<Vec<_>>>()?;
//! assert_eq!(batches[0].column(0).as_ref(), &Int64Array::from(vec![1, 3]));
//! # Ok(())
//! # }
//! ```

use std::{collections::VecDeque, ops::Range};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::{reader::StreamDecoder, writer::StreamWriter};

use crate::{Error, Reader, Result, Writer};

/// Writes batches of one schema as the next block, and returns its number. No batches at all make an empty block.
///
/// # Errors
/// `guest` if a batch has another schema than the first; those of [`Writer`].
pub fn write_block(writer: &mut Writer, batches: &[RecordBatch]) -> Result<u32> {
    if let Some(first) = batches.first() {
        let mut stream = StreamWriter::try_new(&mut *writer, &first.schema())?;
        for batch in batches {
            if batch.schema() != first.schema() {
                return Err(Error::guest("the batches of one block have different schemas"));
            }
            stream.write(batch)?;
        }
        stream.finish()?;
    }
    writer.end_block()
}

/// The batches of a value that [`write_block`] wrote, block after block; one block is in memory at a time.
///
/// Each item is a batch, or the error that ends the reading: `invalid` for a block that is no IPC stream, and those of
/// [`Reader`].
pub fn batches(reader: Reader) -> Batches {
    let blocks = reader.blocks().into();
    Batches { reader, blocks, current: Buffer::from(Vec::<u8>::new()), decoder: StreamDecoder::new() }
}

/// See [`batches`].
#[derive(Debug)]
pub struct Batches {
    reader: Reader,
    /// Those still to be read.
    blocks: VecDeque<Range<u64>>,
    /// What is left of the block that is being decoded.
    current: Buffer,
    decoder: StreamDecoder,
}

impl Batches {
    fn advance(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            while !self.current.is_empty() {
                let decoded = self.decoder.decode(&mut self.current).map_err(malformed)?;
                if decoded.is_some() {
                    return Ok(decoded);
                }
            }
            // The end of a block: it must be the end of its stream as well.
            std::mem::take(&mut self.decoder).finish().map_err(malformed)?;
            match self.blocks.pop_front() {
                Some(block) => self.current = Buffer::from(self.reader.range(block)?),
                None => return Ok(None),
            }
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if let Some(Err(_)) = next {
            self.blocks.clear();
            self.current = Buffer::from(Vec::<u8>::new());
            self.decoder = StreamDecoder::new();
        }
        next
    }
}

fn malformed(error: arrow_schema::ArrowError) -> Error {
    Error::invalid(format!("a block is no Arrow IPC stream: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, StringArray};

    use super::*;
    use crate::raw::{Payload, Value};

    fn batch(values: &[i32]) -> RecordBatch {
        let texts: StringArray = values.iter().map(|n| Some(format!("text {n}"))).collect();
        let numbers: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        RecordBatch::try_from_iter([("n", numbers), ("t", Arc::new(texts) as ArrayRef)]).unwrap()
    }

    #[test]
    fn blocks_are_independent_and_empty_ones_are_skipped() {
        let mut writer = Writer::new().unwrap();
        let (first, second) = ([batch(&[1, 2]), batch(&[3])], [batch(&[])]);
        write_block(&mut writer, &first).unwrap();
        write_block(&mut writer, &[]).unwrap();
        write_block(&mut writer, &second).unwrap();
        let partition = writer.finish().unwrap();
        let read = |p: &crate::Partition| batches(p.open().unwrap()).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(read(&partition), [first.as_slice(), &second].concat());
        assert_eq!(read(&partition.block(2).unwrap()), second);
        assert!(read(&partition.block(1).unwrap()).is_empty());
        let other =
            RecordBatch::try_from_iter([("x", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
        assert!(write_block(&mut Writer::new().unwrap(), &[batch(&[1]), other]).is_err());
    }

    #[test]
    fn nonsense_and_cut_streams_are_errors_once() {
        let mut writer = Writer::new().unwrap();
        write_block(&mut writer, &[batch(&[1, 2, 3])]).unwrap();
        let whole = writer.finish().unwrap().open().unwrap().bytes().unwrap();
        for bytes in [b"no stream at all".to_vec(), whole[..whole.len() / 2].to_vec()] {
            let value = Value::Inline(Payload { bytes, refs: Vec::new() });
            let items: Vec<_> = batches(Reader::open(value).unwrap()).collect();
            assert_eq!(items.len(), 1);
            assert!(items[0].as_ref().is_err_and(|e| e.kind == crate::ErrorKind::Invalid));
        }
    }
}
