//! The footer that follows a partition's data: an index as bytes.
//!
//! All numbers are little-endian. After the data:
//!
//! | bytes | what |
//! |---|---|
//! | 8 per block | its length |
//! | 4 per unit | its crc32c; a block of n bytes has ⌈n / [`UNIT_BYTES`]⌉ units, the last one shorter |
//! | 20 per ref | task id (16) and output (4) of a partition the data refers to |
//! | 44 | trailer: bytes of data (8), blocks (4), units (4), refs (4), crc32c of the data (4), version (2), zero (2), crc32c of what stands between data and trailer (4), crc32c of the trailer before this (4), mark (8) |
//!
//! The trailer has its own checksum, so a reader trusts its lengths before it reads what they measure.

use bytes::Bytes;
use fanfold_protocol::{PartitionId, TaskId};

use super::{Index, UNIT_BYTES};

/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 44;
const VERSION: u16 = 1;
const MARK: [u8; 8] = *b"fanpart\n";
const REF_BYTES: usize = 20;

/// What the last bytes of a partition's object turned out to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Footer {
    /// All of it.
    Complete(Index),
    /// Not all: the footer has so many bytes.
    Longer(u64),
}

/// The footer of `index`, to be written after the data.
pub fn encode(index: &Index) -> Bytes {
    let (blocks, units, refs) = (index.block_ends.len(), index.units.len(), index.refs.len());
    let mut out = Vec::with_capacity(blocks * 8 + units * 4 + refs * REF_BYTES + TRAILER_BYTES);
    let mut start = 0;
    for end in &index.block_ends {
        out.extend_from_slice(&(end - start).to_le_bytes());
        start = *end;
    }
    for unit in &index.units {
        out.extend_from_slice(&unit.crc32c.to_le_bytes());
    }
    for id in &index.refs {
        out.extend_from_slice(&id.task.0);
        out.extend_from_slice(&id.output.to_le_bytes());
    }
    let (body, trailer) = (crc32c::crc32c(&out), out.len());
    out.extend_from_slice(&index.bytes().to_le_bytes());
    for number in [blocks as u32, units as u32, refs as u32, index.crc32c] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&body.to_le_bytes());
    let crc = crc32c::crc32c(&out[trailer..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&MARK);
    out.into()
}

/// Reads the footer from the last bytes (`tail`) of an object of `object_bytes`.
///
/// # Errors
/// What is wrong with it.
pub fn parse(tail: &[u8], object_bytes: u64) -> Result<Footer, String> {
    let Some(split) = tail.len().checked_sub(TRAILER_BYTES) else {
        return Err(format!("it has {object_bytes} bytes, less than a footer"));
    };
    let trailer = Trailer::parse(&tail[split..])?;
    let body = trailer.body_bytes();
    if trailer.data_bytes.checked_add(body).and_then(|n| n.checked_add(TRAILER_BYTES as u64))
        != Some(object_bytes)
    {
        return Err(format!("it has {object_bytes} bytes and its footer says otherwise"));
    }
    let Some(start) = (split as u64).checked_sub(body) else {
        return Ok(Footer::Longer(body + TRAILER_BYTES as u64));
    };
    let body = &tail[start as usize..split];
    if crc32c::crc32c(body) != trailer.body_crc {
        return Err("its footer has another checksum".to_owned());
    }
    trailer.index(body).map(Footer::Complete)
}

struct Trailer {
    data_bytes: u64,
    blocks: usize,
    units: usize,
    refs: usize,
    data_crc: u32,
    body_crc: u32,
}

impl Trailer {
    /// `bytes`: exactly [`TRAILER_BYTES`].
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (bytes, mark) = bytes.split_at(TRAILER_BYTES - MARK.len());
        if mark != MARK {
            return Err("it does not end like a partition".to_owned());
        }
        let (bytes, crc) = bytes.split_at(bytes.len() - 4);
        if crc != crc32c::crc32c(bytes).to_le_bytes() {
            return Err("its trailer has another checksum".to_owned());
        }
        let mut rest = bytes;
        let trailer = Self {
            data_bytes: u64::from_le_bytes(take(&mut rest)),
            blocks: u32::from_le_bytes(take(&mut rest)) as usize,
            units: u32::from_le_bytes(take(&mut rest)) as usize,
            refs: u32::from_le_bytes(take(&mut rest)) as usize,
            data_crc: u32::from_le_bytes(take(&mut rest)),
            body_crc: u32::from_le_bytes([bytes[28], bytes[29], bytes[30], bytes[31]]),
        };
        match u16::from_le_bytes(take(&mut rest)) {
            VERSION => Ok(trailer),
            other => Err(format!("its footer has version {other}, which this version cannot read")),
        }
    }

    fn body_bytes(&self) -> u64 {
        (self.blocks * 8 + self.units * 4 + self.refs * REF_BYTES) as u64
    }

    /// The index that `body`, whose length and checksum were compared, describes.
    fn index(&self, body: &[u8]) -> Result<Index, String> {
        let (lengths, rest) = body.split_at(self.blocks * 8);
        let (crcs, refs) = rest.split_at(self.units * 4);
        let mut crcs = crcs.chunks_exact(4).map(|mut crc| u32::from_le_bytes(take(&mut crc)));
        let mut index = Index::default();
        index.block_ends.reserve_exact(self.blocks);
        index.units.reserve_exact(self.units);
        let wrong = || "its footer contradicts itself".to_owned();
        for mut length in lengths.chunks_exact(8) {
            let mut left = u64::from_le_bytes(take(&mut length));
            if left > self.data_bytes - index.units.last().map_or(0, |unit| unit.end) {
                return Err(wrong());
            }
            while left > 0 {
                let unit = left.min(UNIT_BYTES);
                index.push_unit(unit, crcs.next().ok_or_else(wrong)?);
                left -= unit;
            }
            index.block_ends.push(index.units.last().map_or(0, |unit| unit.end));
        }
        let refs = refs.chunks_exact(REF_BYTES).map(|mut id| PartitionId {
            task: TaskId(take(&mut id)),
            output: u32::from_le_bytes(take(&mut id)),
        });
        index.refs = refs.collect();
        let whole =
            index.bytes() == self.data_bytes && crcs.next().is_none() && index.crc32c == self.data_crc;
        if whole { Ok(index) } else { Err(wrong()) }
    }
}

/// Takes `N` bytes from the front of `bytes`, zeros where there are fewer: the callers have compared lengths.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let Some((first, rest)) = bytes.split_first_chunk() else { return [0; N] };
    *bytes = rest;
    *first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn blocks()(
            small in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20),
            large in prop::option::of(0..3 * UNIT_BYTES as usize),
            at: prop::sample::Index,
        ) -> Vec<Vec<u8>> {
            let mut blocks = small;
            if let Some(large) = large {
                let at = at.index(blocks.len() + 1);
                blocks.insert(at, (0..large).map(|n| ((n * 31) >> 3) as u8).collect());
            }
            blocks
        }
    }

    fn index(blocks: &[Vec<u8>], refs: u32) -> Index {
        let mut builder = Index::builder();
        for block in blocks {
            // In two pieces, as a guest's writes come.
            let (a, b) = block.split_at(block.len() / 3);
            builder.write(a);
            builder.write(b);
            builder.end_block();
        }
        (0..refs).for_each(|n| builder.add_ref(PartitionId { task: TaskId([n as u8; 16]), output: n }));
        builder.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_index_survives_and_is_right(blocks in blocks(), refs in 0u32..4) {
            let index = index(&blocks, refs);
            let data = blocks.concat();
            prop_assert_eq!(index.meta().crc32c, crc32c::crc32c(&data));
            prop_assert_eq!((index.bytes(), index.len()), (data.len() as u64, blocks.len()));
            let mut offset = 0;
            for (block, bytes) in index.blocks().zip(&blocks) {
                prop_assert_eq!((block.offset, block.length), (offset, bytes.len() as u64));
                prop_assert_eq!(block.crc32c, crc32c::crc32c(bytes));
                offset += block.length;
            }
            let footer = encode(&index);
            prop_assert_eq!(parse(&footer, offset + footer.len() as u64), Ok(Footer::Complete(index)));
        }

        #[test]
        fn a_flipped_bit_in_a_footer_is_found(blocks in blocks(), refs in 0u32..4, at: prop::sample::Index, bit in 0u8..8) {
            let index = index(&blocks, refs);
            let mut footer = encode(&index).to_vec();
            let object_bytes = index.bytes() + footer.len() as u64;
            let at = at.index(footer.len());
            footer[at] ^= 1 << bit;
            prop_assert!(parse(&footer, object_bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), object_bytes: u64) {
            prop_assert!(parse(&bytes, object_bytes).is_err());
        }
    }

    #[test]
    fn a_short_tail_says_how_much_is_needed() {
        let index = index(&vec![b"x".to_vec(); 100], 0);
        let footer = encode(&index);
        let object_bytes = index.bytes() + footer.len() as u64;
        assert_eq!(parse(&footer[50..], object_bytes), Ok(Footer::Longer(footer.len() as u64)));
    }
}
