//! Finding words in text that arrives in chunks, 64 bytes at a step.

/// Whether a byte belongs to a word.
pub fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Finds the words of a text that arrives in chunks.
///
/// A word that crosses chunks is put together here; all others are handed on as slices of their chunk.
#[derive(Default)]
pub struct Scanner {
    /// The word at the end of the chunks until now, of which more may follow.
    carry: Vec<u8>,
}

impl Scanner {
    /// The next chunk. `found` gets each word that has ended: the chunk, and where in it the word starts and ends.
    pub fn chunk(&mut self, chunk: &[u8], mut found: impl FnMut(&[u8], usize, usize)) {
        let mut from = 0;
        if !self.carry.is_empty() {
            from = chunk.iter().position(|byte| !in_word(*byte)).unwrap_or(chunk.len());
            self.carry.extend_from_slice(&chunk[..from]);
            if from == chunk.len() {
                return;
            }
            self.finish(&mut found);
        }
        if let Some(open) = words(chunk, from, &mut found) {
            self.carry.extend_from_slice(&chunk[open..]);
        }
    }

    /// Ends the text, and with it its last word.
    pub fn finish(&mut self, mut found: impl FnMut(&[u8], usize, usize)) {
        if !self.carry.is_empty() {
            found(&self.carry, 0, self.carry.len());
            self.carry.clear();
        }
    }

    /// Whether a word is open: the text so far ends in one.
    pub fn is_open(&self) -> bool {
        !self.carry.is_empty()
    }
}

/// Finds the words of `text[from..]` that end before its end; returns where one that does not starts.
fn words(text: &[u8], from: usize, found: &mut impl FnMut(&[u8], usize, usize)) -> Option<usize> {
    let (mut open, mut inside, mut base) = (None, 0, from);
    // Looks at the first `length` bytes of a block.
    let mut step = |block: &[u8; 64], length: usize| {
        let mask = mask(block);
        // A bit is set where a word starts, and where one has just ended.
        let mut edges = (mask ^ (mask << 1 | inside)) & (u64::MAX >> (64 - length));
        inside = mask >> 63;
        while edges != 0 {
            let at = base + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            match open.take() {
                Some(start) => found(text, start, at),
                None => open = Some(at),
            }
        }
        base += length;
    };
    let (blocks, rest) = text[from..].as_chunks();
    blocks.iter().for_each(|block| step(block, 64));
    if !rest.is_empty() {
        let mut padded = [0; 64];
        padded[..rest.len()].copy_from_slice(rest);
        step(&padded, rest.len());
    }
    open
}

/// Bit `n` says whether byte `n` belongs to a word.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
fn mask(block: &[u8; 64]) -> u64 {
    block.iter().rev().fold(0, |mask, byte| mask << 1 | u64::from(in_word(*byte)))
}

/// Bit `n` says whether byte `n` belongs to a word: sixteen bytes at a time.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
fn mask(block: &[u8; 64]) -> u64 {
    use core::arch::wasm32::{i8x16_bitmask, u8x16_eq, u8x16_le, u8x16_splat, u8x16_sub, u64x2, v128_or};
    let (parts, _) = block.as_chunks();
    parts.iter().rev().fold(0, |mask, part| {
        let bytes = u128::from_le_bytes(*part);
        let bytes = u64x2(bytes as u64, (bytes >> 64) as u64);
        let lower = v128_or(bytes, u8x16_splat(0x20));
        let letter = u8x16_le(u8x16_sub(lower, u8x16_splat(b'a')), u8x16_splat(25));
        let digit = u8x16_le(u8x16_sub(bytes, u8x16_splat(b'0')), u8x16_splat(9));
        let word = v128_or(v128_or(letter, digit), u8x16_eq(bytes, u8x16_splat(b'_')));
        mask << 16 | u64::from(i8x16_bitmask(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &[u8], chunk: usize) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        let mut scanner = Scanner::default();
        let mut found = |text: &[u8], from: usize, to: usize| words.push(text[from..to].to_vec());
        for chunk in text.chunks(chunk) {
            scanner.chunk(chunk, &mut found);
        }
        scanner.finish(&mut found);
        words
    }

    #[test]
    fn any_chunking_finds_the_words_that_splitting_finds() {
        // A small generator of words and gaps of all lengths around the step of 64.
        let mut text = Vec::new();
        let mut n = 12345u32;
        for _ in 0..3_000 {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = [1, 3, 7, 8, 9, 16, 17, 63, 64, 65, 130][(n >> 8) as usize % 11];
            let alphabet: &[u8] = if n >> 31 == 1 { b"aZ09_mQ" } else { b" \n.\xc3\x00/:@[`{" };
            text.extend(
                (0..length).map(|at| alphabet[(n as usize >> 4).wrapping_add(at * 7) % alphabet.len()]),
            );
        }
        let expected: Vec<_> =
            text.split(|b| !in_word(*b)).filter(|w| !w.is_empty()).map(<[u8]>::to_vec).collect();
        for chunk in [1, 5, 63, 64, 65, 1000, text.len()] {
            assert!(scanned(&text, chunk) == expected, "chunks of {chunk}");
        }
        assert!(scanned(b"", 1).is_empty());
        assert_eq!(scanned(&[b'x'; 64], 64), [vec![b'x'; 64]]);
        assert_eq!(scanned(&[b'x'; 200], 64), [vec![b'x'; 200]]);
    }
}
