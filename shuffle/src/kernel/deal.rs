//! Dealing records into columns: they stay where they were read, and are copied once, when their column's turn comes.
//!
//! What is dealt is 4 bytes for each record: its place. Reading records from all over a split, many at once, is faster than
//! writing them to hundreds of columns in turn: nothing waits for a read, and no page is touched that was not there before.

use fanfold::Result;

use super::{
    TURN, in_turns,
    record::{CHUNK_BYTES, RECORD_BYTES, Record, copy, records},
};

/// Records that are copied before they are passed on: they are still next to the processor then.
const PIECE_RECORDS: usize = 320;
/// Bits of a place that count records within a chunk: as many as a chunk has.
const INDEX_BITS: u32 = 14;
const _: () = assert!(CHUNK_BYTES / RECORD_BYTES <= 1 << INDEX_BITS);

/// The columns of records, which are elsewhere.
#[derive(Debug)]
pub struct Dealt {
    /// Of each record, in the order in which they came.
    columns: Vec<u32>,
    /// Records of each column.
    counts: Vec<u32>,
}

impl Dealt {
    /// Nothing yet, with room for `records`.
    pub fn new(columns: u32, records: usize) -> Self {
        Self { columns: Vec::with_capacity(records), counts: vec![0; columns as usize] }
    }

    /// Takes note of records, each of which goes to the column that `column` says.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn extend(&mut self, records: &[Record], column: impl Fn(&Record) -> u32) {
        let (turns, rest) = records.as_chunks();
        for turn in turns {
            self.columns.extend(columns_of(turn, &column));
        }
        self.columns.extend(rest.iter().map(column));
        let counts = &mut self.counts[..];
        in_turns(&self.columns[self.columns.len() - records.len()..], |column| counts[*column as usize] += 1);
    }

    /// Calls `visit` with each column's number and bytes, a piece at a time, in the order in which they came. `chunks` are
    /// the records that were noted, in the same order, of at most [`CHUNK_BYTES`] each.
    ///
    /// # Errors
    /// The first of `visit`.
    ///
    /// # Panics
    /// If there are other records.
    pub fn each(&self, chunks: &[Vec<u8>], mut visit: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        let chunks: Vec<&[Record]> = chunks.iter().map(|chunk| records(chunk)).collect();
        let places = self.places(&chunks);
        let mut piece = vec![[0; RECORD_BYTES]; PIECE_RECORDS];
        let mut left = &places[..];
        for (number, count) in (0..).zip(&self.counts) {
            let (now, later) = left.split_at(*count as usize);
            for places in now.chunks(PIECE_RECORDS) {
                let piece = &mut piece[..places.len()];
                gather(places, &chunks, piece);
                visit(number, piece.as_flattened())?;
            }
            left = later;
        }
        Ok(())
    }

    /// Where the records are, column after column.
    fn places(&self, chunks: &[&[Record]]) -> Vec<u32> {
        let mut sum = 0;
        let starts = self.counts.iter().map(|count| {
            sum += count;
            sum - count
        });
        let mut next: Vec<u32> = starts.collect();
        let mut places = vec![0; self.columns.len()];
        let mut left = &self.columns[..];
        for (number, chunk) in (0..).zip(chunks) {
            let (columns, later) = left.split_at(chunk.len());
            deal(columns, number << INDEX_BITS, &mut next, &mut places);
            left = later;
        }
        places
    }
}

/// Writes the places from `first` on, each to where its column goes on.
#[inline(never)]
fn deal(columns: &[u32], first: u32, next: &mut [u32], places: &mut [u32]) {
    let mut place = first;
    in_turns(columns, |column| {
        let next = &mut next[*column as usize];
        places[*next as usize] = place;
        *next += 1;
        place += 1;
    });
}

/// Copies records to `to`, one for each place.
fn gather(places: &[u32], chunks: &[&[Record]], to: &mut [Record]) {
    let ((turns, rest), (turns_to, rest_to)) = (places.as_chunks(), to.as_chunks_mut());
    turns.iter().zip(turns_to).for_each(|(turn, to)| gather_turn(turn, chunks, to));
    rest.iter().zip(rest_to).for_each(|(place, to)| copy(to, record(*place, chunks)));
}

/// A function of its own, because only places that are counted from an argument become constants of WebAssembly's loads and stores.
#[inline(never)]
fn gather_turn(places: &[u32; TURN], chunks: &[&[Record]], to: &mut [Record; TURN]) {
    places.iter().zip(to).for_each(|(place, to)| copy(to, record(*place, chunks)));
}

#[inline(always)]
fn record<'a>(place: u32, chunks: &[&'a [Record]]) -> &'a Record {
    &chunks[(place >> INDEX_BITS) as usize][(place & ((1 << INDEX_BITS) - 1)) as usize]
}

#[inline(never)]
fn columns_of(records: &[Record; TURN], column: &impl Fn(&Record) -> u32) -> [u32; TURN] {
    records.each_ref().map(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::record::tests::{Shape, make};

    #[test]
    fn every_record_is_in_its_column_in_the_order_it_came() {
        let bytes = make(Shape::Random, 25_000, 3);
        // One column has several whole pieces, and column 2 stays empty; chunks of several sizes, one of them empty.
        let (first, others) = bytes.split_at(2 * PIECE_RECORDS * RECORD_BYTES);
        let column = |record: &Record| [0, 1, 3][usize::from(record[9]) % 3];
        let mut expected = vec![Vec::<u8>::new(); 5];
        expected[4].extend(first);
        records(others).iter().for_each(|record| expected[column(record) as usize].extend(record));
        let mut chunks = vec![first.to_vec(), Vec::new()];
        chunks.extend(others.chunks(CHUNK_BYTES).map(<[u8]>::to_vec));
        let mut dealt = Dealt::new(5, 100);
        dealt.extend(records(&chunks[0]), |_| 4);
        chunks[1..].iter().for_each(|chunk| dealt.extend(records(chunk), column));
        let mut found = vec![Vec::<u8>::new(); 5];
        dealt
            .each(&chunks, |column, bytes| {
                found[column as usize].extend(bytes);
                Ok(())
            })
            .unwrap();
        assert!(found == expected);
    }
}
