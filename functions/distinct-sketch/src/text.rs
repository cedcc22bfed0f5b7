//! The words of a range of an object: those that start in it. A word is a maximal run of ASCII letters, digits and
//! underscores.

use std::io::BufRead;

use fanfold::{ObjectRange, Result};

/// Bytes read at a time behind the end of a range, for the rest of its last word.
const TAIL_BYTES: u64 = 4 << 10;

/// Visits every word that starts in `range`.
///
/// # Errors
/// Those of reading.
pub fn each_word(range: &ObjectRange, mut visit: impl FnMut(&[u8])) -> Result<()> {
    let end = range.length.map_or(u64::MAX, |length| range.offset.saturating_add(length));
    // The byte before the range tells whether it starts inside of a word, which then is not its own.
    let before = range.offset.min(1);
    let mut skipping = before == 1;
    let mut reader = part(range, range.offset - before, end).open()?;
    // A word that goes on in the next chunk.
    let mut open = Vec::new();
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        let mut from = 0;
        if skipping || !open.is_empty() {
            from = word_length(chunk);
            if !skipping {
                open.extend_from_slice(&chunk[..from]);
            }
            if from < chunk.len() {
                if !skipping {
                    visit(&open);
                    open.clear();
                }
                skipping = false;
            }
        }
        while let Some(gap) = chunk[from..].iter().position(|byte| in_word(*byte)) {
            let word = &chunk[from + gap..];
            let length = word_length(word);
            if length == word.len() {
                open = word.to_vec();
                break;
            }
            visit(&word[..length]);
            from += gap + length;
        }
        let length = chunk.len();
        reader.consume(length);
    }
    finish(range, end, open, visit)
}

/// Reads on behind the end for as long as the last word goes on.
fn finish(range: &ObjectRange, end: u64, mut open: Vec<u8>, mut visit: impl FnMut(&[u8])) -> Result<()> {
    if open.is_empty() {
        return Ok(());
    }
    let mut at = end;
    while at < u64::MAX {
        let tail = part(range, at, at.saturating_add(TAIL_BYTES)).open()?.bytes()?;
        let rest = word_length(&tail);
        open.extend_from_slice(&tail[..rest]);
        if rest < TAIL_BYTES as usize {
            break;
        }
        at = at.saturating_add(TAIL_BYTES);
    }
    visit(&open);
    Ok(())
}

fn part(range: &ObjectRange, from: u64, to: u64) -> ObjectRange {
    ObjectRange { offset: from, length: Some(to - from), ..range.clone() }
}

/// Bytes before the first that is in no word.
fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !in_word(*byte)).unwrap_or(bytes.len())
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
