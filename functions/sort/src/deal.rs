//! Sorting by dealing: maps deal records into many small columns, reducers sort one column after the other.
//!
//! Each record is compared with few others (those of its column), and a merge is concatenation. In memory at once are a
//! map's split, and a reducer's column: how large a reducer's whole input is does not matter.

use fanfold::Result;
use fanfold_shuffle::{
    Blocks, Column, Columns, Exchange,
    kernel::{
        deal::Dealt,
        record::{CHUNK_BYTES, RECORD_BYTES, key, payload_hash, records},
        sort::Sorter,
    },
    partition::Ranges,
    split::Split,
};

use crate::{
    output::{Part, PartWriter},
    read,
};

/// See the module.
pub struct Deal {
    /// The columns. Reducers and merges need none.
    pub ranges: Option<Ranges>,
    /// What the output's keys start with.
    pub output: String,
    /// Whether reducers compute checksums.
    pub checksum: bool,
}

impl Exchange for Deal {
    type Split = Split;
    type Reduced = Part;
    const WHOLE: bool = true;

    fn map(&self, split: Split, out: &mut Blocks) -> Result<()> {
        let ranges = self.ranges.as_ref().ok_or_else(|| fanfold::Error::guest("a map needs boundaries"))?;
        let bytes: u64 = split.iter().filter_map(|range| range.length).sum();
        let count = bytes / RECORD_BYTES as u64;
        let (mut dealt, mut chunks) = (Dealt::new(ranges.columns(), count as usize), Vec::new());
        read::chunks(split, out, |chunk| {
            dealt.extend(records(&chunk), |record| ranges.column(key(record), || payload_hash(record)));
            chunks.push(chunk);
        })?;
        out.took(count);
        let mut written = 0;
        dealt.each(&chunks, |column, piece| {
            written += (piece.len() / RECORD_BYTES) as u64;
            out.write(column, piece)
        })?;
        out.gave(written);
        Ok(())
    }

    fn merge(&self, column: Column<'_>, out: &mut Blocks) -> Result<()> {
        column.concatenate(RECORD_BYTES as u64, out)
    }

    fn reduce(&self, reducer: u32, columns: &mut Columns) -> Result<Part> {
        let mut part = PartWriter::new(&self.output, reducer, self.checksum)?;
        let (mut sorter, mut taken) = (Sorter::default(), 0);
        while let Some(column) = columns.next() {
            taken += column.bytes() / RECORD_BYTES as u64;
            let mut chunks = Vec::new();
            for mut stream in column.streams {
                while let Some(chunk) = stream.chunk(CHUNK_BYTES)? {
                    chunks.push(chunk);
                }
            }
            part.extend(sorter.sort(&chunks))?;
        }
        let part = part.finish()?;
        columns.took(taken);
        columns.gave(part.records);
        Ok(part)
    }
}
