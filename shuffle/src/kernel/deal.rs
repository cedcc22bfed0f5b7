//! Dealing records into columns: one pass over the input, which need not be kept.
//!
//! Each column is a chain of small pages in one growing buffer, so that writing to hundreds of columns in turn touches one
//! cache line or two of each, and no column is ever moved because it grew.

use fanfold::Result;

use super::record::{RECORD_BYTES, Record, copy};

/// Records of a page: so many that the unused rests of the last pages are small, and so few that a page is.
const PAGE_RECORDS: usize = 40;
const PAGE_BYTES: usize = PAGE_RECORDS * RECORD_BYTES;
/// Records that are dealt in one turn of a loop: between turns compilers keep little in registers.
const TURN: usize = 8;
/// No page.
const NONE: u32 = u32::MAX;

/// Records by column.
#[derive(Debug)]
pub struct Dealt {
    columns: Vec<Chain>,
    pages: Vec<u8>,
    /// For each page, the next one of its column.
    next: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
    /// Where in `pages` the next record goes, and where the last page ends.
    at: usize,
    end: usize,
}

impl Dealt {
    /// Nothing yet, with room for `bytes` bytes of records.
    pub fn new(columns: u32, bytes: usize) -> Self {
        let empty = Chain { first: NONE, last: NONE, at: 0, end: 0 };
        let pages = Vec::with_capacity(bytes + columns as usize * PAGE_BYTES / 2);
        Self { columns: vec![empty; columns as usize], pages, next: Vec::new() }
    }

    /// Appends records, each to the column that `column` says.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn extend(&mut self, records: &[Record], column: impl Fn(&Record) -> u32) {
        let (turns, rest) = records.as_chunks();
        for turn in turns {
            let columns = columns_of(turn, &column);
            self.push_turn(&columns, turn);
        }
        for record in rest {
            self.push(column(record), record);
        }
    }

    /// A function of its own, because compilers for WebAssembly run out of registers in large ones.
    #[inline(never)]
    fn push_turn(&mut self, columns: &[u32; TURN], records: &[Record; TURN]) {
        for (column, record) in columns.iter().zip(records) {
            self.push(*column, record);
        }
    }

    #[inline(always)]
    fn push(&mut self, column: u32, record: &Record) {
        let chain = &mut self.columns[column as usize];
        if chain.at == chain.end {
            chain.begin_page(&mut self.pages, &mut self.next);
        }
        if let Some(place) = self.pages[chain.at..].first_chunk_mut() {
            copy(place, record);
        }
        chain.at += RECORD_BYTES;
    }

    /// Calls `visit` with each column's number and bytes, a page at a time, in the order in which they came.
    ///
    /// # Errors
    /// The first of `visit`.
    pub fn each(&self, mut visit: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        for (number, chain) in (0..).zip(&self.columns) {
            let mut page = chain.first;
            while page != NONE {
                let start = page as usize * PAGE_BYTES;
                let end = if page == chain.last { chain.at } else { start + PAGE_BYTES };
                visit(number, &self.pages[start..end])?;
                page = self.next[page as usize];
            }
        }
        Ok(())
    }
}

impl Chain {
    #[cold]
    #[inline(never)]
    fn begin_page(&mut self, pages: &mut Vec<u8>, next: &mut Vec<u32>) {
        let page = next.len() as u32;
        next.push(NONE);
        match self.last {
            NONE => self.first = page,
            last => next[last as usize] = page,
        }
        self.last = page;
        self.at = pages.len();
        pages.resize(self.at + PAGE_BYTES, 0);
        self.end = pages.len();
    }
}

#[inline(never)]
fn columns_of(records: &[Record; TURN], column: &impl Fn(&Record) -> u32) -> [u32; TURN] {
    records.each_ref().map(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::record::{
        records,
        tests::{Shape, make},
    };

    #[test]
    fn every_record_is_in_its_column_in_the_order_it_came() {
        let bytes = make(Shape::Random, 5_000, 3);
        let records = records(&bytes);
        // One column has whole pages only, and column 2 stays empty.
        let (first, others) = records.split_at(2 * PAGE_RECORDS);
        let column = |record: &Record| [0, 1, 3][usize::from(record[9]) % 3];
        let mut expected = vec![Vec::<u8>::new(); 5];
        first.iter().for_each(|record| expected[4].extend(record));
        others.iter().for_each(|record| expected[column(record) as usize].extend(record));
        let mut dealt = Dealt::new(5, 100);
        dealt.extend(first, |_| 4);
        // In pieces that are no whole numbers of turns.
        others.chunks(1_001).for_each(|piece| dealt.extend(piece, column));
        let mut found = vec![Vec::<u8>::new(); 5];
        dealt
            .each(|column, bytes| {
                found[column as usize].extend(bytes);
                Ok(())
            })
            .unwrap();
        assert!(found == expected);
    }
}
