//! Dealing records into columns: one pass over the input, which need not be kept.
//!
//! Each column is a chain of small pages in one growing buffer, so that writing to hundreds of columns in turn touches one
//! cache line or two of each, and no column is ever moved because it grew.

use fanfold::Result;

use super::record::{RECORD_BYTES, Record, copy};

/// Records of a page: so many that the unused rests of the last pages are small, and so few that a page is.
const PAGE_RECORDS: usize = 40;
const PAGE_BYTES: usize = PAGE_RECORDS * RECORD_BYTES;
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

    /// Appends a record to a column.
    ///
    /// # Panics
    /// If there is no such column.
    #[inline]
    pub fn push(&mut self, column: u32, record: &Record) {
        let chain = &mut self.columns[column as usize];
        if chain.at == chain.end {
            let page = self.next.len() as u32;
            self.next.push(NONE);
            match chain.last {
                NONE => chain.first = page,
                last => self.next[last as usize] = page,
            }
            chain.last = page;
            chain.at = self.pages.len();
            self.pages.resize(chain.at + PAGE_BYTES, 0);
            chain.end = self.pages.len();
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
        // Column 2 stays empty, and one column has whole pages only.
        let column = |n: usize| if n < 2 * PAGE_RECORDS { 4 } else { [0, 1, 3][n % 3] };
        let mut dealt = Dealt::new(5, 100);
        let mut expected = vec![Vec::<u8>::new(); 5];
        for (n, record) in records(&bytes).iter().enumerate() {
            dealt.push(column(n), record);
            expected[column(n) as usize].extend(record);
        }
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
