//! Reading a range of an object as text whose words belong to the range that they start in.

use std::io::BufRead;

use fanfold::{ObjectRange, Result};

use crate::{
    counts::Counts,
    scan::{Scanner, in_word},
};

/// Bytes read at a time behind the end of a range, for the rest of its last word.
const TAIL_BYTES: u64 = 4 << 10;

/// Counts the words that start in `range`.
///
/// # Errors
/// Those of reading; `conflict` if the range is bound to another version of the object.
pub fn count(range: &ObjectRange, counts: &mut Counts) -> Result<()> {
    let start = range.offset;
    let end = start.saturating_add(range.length.unwrap_or(u64::MAX));
    let mut scanner = Scanner::default();
    // The byte before the range tells whether the range starts in the middle of a word.
    let before = start.min(1);
    let mut skipping = before == 1;
    let mut reader = part(range, start - before, end).open()?;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        let from = if skipping { chunk.iter().position(|b| !in_word(*b)).unwrap_or(chunk.len()) } else { 0 };
        skipping = skipping && from == chunk.len();
        scanner.chunk(&chunk[from..], |text, from, to| counts.add(text, from, to));
        let length = chunk.len();
        reader.consume(length);
    }
    finish_word(range, end, &mut scanner, counts)
}

/// Reads on behind the end for as long as the last word goes on.
fn finish_word(range: &ObjectRange, end: u64, scanner: &mut Scanner, counts: &mut Counts) -> Result<()> {
    let mut at = end;
    while scanner.is_open() && at < u64::MAX {
        let tail = part(range, at, at.saturating_add(TAIL_BYTES)).open()?.bytes()?;
        let rest = tail.iter().position(|byte| !in_word(*byte)).unwrap_or(tail.len());
        scanner.chunk(&tail[..rest], |_, _, _| {});
        if rest < TAIL_BYTES as usize {
            break;
        }
        at = at.saturating_add(TAIL_BYTES);
    }
    scanner.finish(|text, from, to| counts.add(text, from, to));
    Ok(())
}

fn part(range: &ObjectRange, from: u64, to: u64) -> ObjectRange {
    ObjectRange { key: range.key.clone(), etag: range.etag.clone(), offset: from, length: Some(to - from) }
}
