//! Rows of bytes in a partition.
//!
//! A partition that a stage makes has two blocks: the rows' bytes one after the other, and their lengths, four bytes each,
//! little-endian. So any run of rows can be read without those before it, and a row costs its bytes and four. A partition
//! without rows is empty.

use std::{io::Write, ops::Range};

use fanfold::{Error, Partition, Reader, Result, Writer};

/// A row: what it means is a matter of the steps.
pub type Row = Vec<u8>;

/// Bytes of a row's length.
pub(crate) const LENGTH_BYTES: u64 = 4;
/// Bytes read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

/// Writes rows as one output of a task.
pub(crate) struct RowWriter {
    writer: Writer,
    lengths: Vec<u8>,
}

impl RowWriter {
    pub fn for_output(output: u32) -> Result<Self> {
        Ok(Self { writer: Writer::for_output(output)?, lengths: Vec::new() })
    }

    pub fn rows(&self) -> u64 {
        self.lengths.len() as u64 / LENGTH_BYTES
    }

    pub fn push(&mut self, row: &[u8]) -> Result<()> {
        let length = u32::try_from(row.len())
            .map_err(|_| Error::guest(format!("a row of {} bytes: at most 4 GiB are possible", row.len())))?;
        self.writer.write_all(row)?;
        self.lengths.extend(length.to_le_bytes());
        Ok(())
    }

    pub fn finish(mut self) -> Result<Partition> {
        if !self.lengths.is_empty() {
            self.writer.end_block()?;
            self.writer.write_all(&self.lengths)?;
        }
        self.writer.finish()
    }
}

/// The bytes that rows take in a partition.
pub(crate) fn bytes_of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> u64 {
    rows.into_iter().map(|row| row.len() as u64 + LENGTH_BYTES).sum()
}

/// Reads rows of a partition that a stage made, in order; about a mebibyte of them is in memory at a time.
#[derive(Debug)]
pub struct Rows {
    reader: Reader,
    lengths: std::vec::IntoIter<u32>,
    /// Where the next row begins, and where all rows end.
    at: u64,
    end: u64,
    window: Vec<u8>,
    /// Where the window begins.
    from: u64,
}

impl Rows {
    /// All rows, or some of them: counted from 0, and cut at the end.
    ///
    /// # Errors
    /// `invalid` if it is no such partition; those of reading.
    pub fn open(partition: &Partition, rows: Option<Range<u64>>) -> Result<Self> {
        let reader = partition.open()?;
        let (end, lengths) = match reader.blocks().as_slice() {
            [] => (0, Vec::new()),
            [rows, lengths] => (rows.end, reader.range(lengths.clone())?),
            other => {
                return Err(Error::invalid(format!("a partition of {} blocks has no rows", other.len())));
            }
        };
        let mut lengths: Vec<u32> =
            lengths.as_chunks().0.iter().map(|length| u32::from_le_bytes(*length)).collect();
        if lengths.iter().map(|&length| u64::from(length)).sum::<u64>() != end {
            return Err(Error::invalid("the lengths of a partition's rows do not add up to its bytes"));
        }
        let rows = rows.unwrap_or(0..u64::MAX);
        let place = |row: u64| usize::try_from(row).unwrap_or(usize::MAX).min(lengths.len());
        let (first, last) = (place(rows.start), place(rows.end));
        let at = lengths[..first].iter().map(|&length| u64::from(length)).sum();
        lengths.truncate(last);
        lengths.drain(..first.min(last));
        Ok(Self { reader, lengths: lengths.into_iter(), at, end, window: Vec::new(), from: 0 })
    }

    fn row(&mut self, length: u32) -> Result<Row> {
        let (start, end) = (self.at, self.at + u64::from(length));
        if start < self.from || end > self.from + self.window.len() as u64 {
            self.window = self.reader.range(start..end.max(self.end.min(start + WINDOW_BYTES)))?;
            self.from = start;
        }
        self.at = end;
        let within = (start - self.from) as usize..(end - self.from) as usize;
        let row =
            self.window.get(within).ok_or_else(|| Error::invalid("a partition's rows end too early"))?;
        Ok(row.to_vec())
    }
}

impl Iterator for Rows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        let length = self.lengths.next()?;
        Some(self.row(length))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.lengths.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_run_of_rows_reads_as_it_was_written() {
        let rows: Vec<Row> = (0..200u32).map(|n| vec![n as u8; (n as usize * 997) % 30_011]).collect();
        let mut writer = RowWriter::for_output(0).unwrap();
        rows.iter().for_each(|row| writer.push(row).unwrap());
        assert_eq!(writer.rows(), 200);
        let partition = writer.finish().unwrap();
        for range in [0..200, 0..1, 50..120, 199..200, 7..7, 180..900, 300..400] {
            let read: Vec<Row> =
                Rows::open(&partition, Some(range.clone())).unwrap().map(Result::unwrap).collect();
            let (start, end) = ((range.start as usize).min(200), (range.end as usize).min(200));
            assert!(read == rows[start..end], "{range:?}");
        }
        let nothing = RowWriter::for_output(1).unwrap().finish().unwrap();
        assert_eq!(Rows::open(&nothing, None).unwrap().count(), 0);
    }

    #[test]
    fn other_partitions_are_refused() {
        let mut writer = Writer::for_output(0).unwrap();
        writer.write_all(b"anything").unwrap();
        assert!(Rows::open(&writer.finish().unwrap(), None).is_err());
    }
}
