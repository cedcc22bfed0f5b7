//! The bytes of segments, fences and checkpoints: one format.
//!
//! All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | mark |
//! | 2 | version |
//! | 2 | kind: 0 records, 1 fence, 2 checkpoint |
//! | 4 | number of records |
//! | 8 | epoch of the owner that wrote it |
//! | 8 | its own sequence number; a checkpoint's: that of the last segment it covers |
//! | 16 | id of the writer, unique to one opening |
//! | 8 | Unix milliseconds when it was written |
//! | 8 | bytes of the body |
//! | 4 | crc32c of the header before this |
//! | … | body: each record preceded by its length (4) |
//! | 4 | crc32c of all before this |

use bytes::Bytes;
use fanfold_protocol::{Error, record::Record};
use uuid::Uuid;

use crate::errors::corrupt;

const MARK: [u8; 8] = *b"fanlog\r\n";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 68;
/// Bytes of one record: the length before it has four bytes, and nothing sensible comes near.
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Records = 0,
    Fence = 1,
    Checkpoint = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) writer: Uuid,
    pub(crate) at_ms: u64,
}

/// Records in the form they have in a segment's body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) body: Vec<u8>,
    pub(crate) count: u32,
}

impl Encoded {
    /// # Errors
    /// `invalid` for a record over [`RECORD_BYTES_MAX`].
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, Error> {
        let mut encoded = Self::default();
        for record in records {
            let bytes = record.encode();
            if bytes.len() > RECORD_BYTES_MAX {
                return Err(Error::invalid(format!("a journal entry of {} bytes is too long", bytes.len())));
            }
            encoded.body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            encoded.body.extend_from_slice(&bytes);
            encoded.count += 1;
        }
        Ok(encoded)
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.body.extend_from_slice(&other.body);
        self.count += other.count;
    }
}

/// The bytes of a segment.
pub(crate) fn encode(header: &Header, records: &[&Encoded]) -> Bytes {
    let body: usize = records.iter().map(|records| records.body.len()).sum();
    let count: u32 = records.iter().map(|records| records.count).sum();
    let mut out = Vec::with_capacity(HEADER_BYTES + body + 4);
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(header.kind as u16).to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&header.epoch.to_le_bytes());
    out.extend_from_slice(&header.seq.to_le_bytes());
    out.extend_from_slice(header.writer.as_bytes());
    out.extend_from_slice(&header.at_ms.to_le_bytes());
    out.extend_from_slice(&(body as u64).to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    records.iter().for_each(|records| out.extend_from_slice(&records.body));
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.into()
}

/// A segment that was read and whose checksums are right.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: Header,
    pub(crate) bytes: u64,
    body: Bytes,
    count: u32,
}

/// Why bytes are no segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// The end is missing: so many bytes are there, so many should be.
    Cut { is: usize, should: u64 },
    /// Something was changed.
    Changed(&'static str),
    /// It is whole, and of a version not known here.
    Version(u16),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cut { is, should } => {
                write!(f, "it is cut short, {is} of at least {should} bytes are there")
            }
            Self::Changed(what) => f.write_str(what),
            Self::Version(version) => {
                write!(f, "it has version {version}, and this version reads only {VERSION}")
            }
        }
    }
}

impl Segment {
    pub(crate) fn parse(bytes: &Bytes) -> Result<Self, Damage> {
        if bytes.len() < HEADER_BYTES {
            return Err(Damage::Cut { is: bytes.len(), should: HEADER_BYTES as u64 + 4 });
        }
        let mut rest = &bytes[..HEADER_BYTES - 4];
        if take::<8>(&mut rest) != MARK {
            return Err(Damage::Changed("it does not begin like a segment"));
        }
        if bytes[HEADER_BYTES - 4..HEADER_BYTES] != crc32c::crc32c(&bytes[..HEADER_BYTES - 4]).to_le_bytes() {
            return Err(Damage::Changed("its header has another checksum"));
        }
        let (version, kind) = (u16::from_le_bytes(take(&mut rest)), u16::from_le_bytes(take(&mut rest)));
        let kind = match (version, kind) {
            (VERSION, 0) => Kind::Records,
            (VERSION, 1) => Kind::Fence,
            (VERSION, 2) => Kind::Checkpoint,
            _ => return Err(Damage::Version(version)),
        };
        let count = u32::from_le_bytes(take(&mut rest));
        let epoch = u64::from_le_bytes(take(&mut rest));
        let seq = u64::from_le_bytes(take(&mut rest));
        let writer = Uuid::from_bytes(take(&mut rest));
        let at_ms = u64::from_le_bytes(take(&mut rest));
        let should = (HEADER_BYTES as u64 + 4).saturating_add(u64::from_le_bytes(take(&mut rest)));
        if (bytes.len() as u64) < should {
            return Err(Damage::Cut { is: bytes.len(), should });
        }
        let end = bytes.len() - 4;
        if bytes.len() as u64 != should || bytes[end..] != crc32c::crc32c(&bytes[..end]).to_le_bytes() {
            return Err(Damage::Changed("its records have another checksum"));
        }
        let header = Header { kind, epoch, seq, writer, at_ms };
        Ok(Self { header, bytes: bytes.len() as u64, body: bytes.slice(HEADER_BYTES..end), count })
    }

    /// Adds its records to `records`.
    ///
    /// # Errors
    /// `corrupt`, for an entry that this version does not understand: it is never skipped.
    pub(crate) fn read(
        &self,
        path: &object_store::path::Path,
        records: &mut Vec<Record>,
    ) -> Result<(), Error> {
        let mut rest = &self.body[..];
        for _ in 0..self.count {
            let length = u32::from_le_bytes(take(&mut rest)) as usize;
            let Some((record, others)) = rest.split_at_checked(length) else {
                return Err(corrupt(path, "its records are longer than it"));
            };
            records.push(Record::decode(record).map_err(|e| e.context(format_args!("`{path}`")))?);
            rest = others;
        }
        if rest.is_empty() { Ok(()) } else { Err(corrupt(path, "it has more than its records")) }
    }
}

/// Takes `N` bytes from the front of `bytes`, zeros where there are fewer.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let Some((first, rest)) = bytes.split_first_chunk() else { return [0; N] };
    *bytes = rest;
    *first
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::JobId;
    use proptest::prelude::*;

    use super::*;

    fn sample() -> (Header, Vec<Record>, Bytes) {
        let header = Header { kind: Kind::Records, epoch: 3, seq: 9, writer: Uuid::from_u128(5), at_ms: 77 };
        let job = |n| Record::Forgotten { job: JobId(Uuid::from_u128(n)) };
        let records: Vec<_> = (0..5).map(job).collect();
        let bytes =
            encode(&header, &[&Encoded::of(&records[..2]).unwrap(), &Encoded::of(&records[2..]).unwrap()]);
        (header, records, bytes)
    }

    #[test]
    fn segments_survive() {
        let (header, records, bytes) = sample();
        let segment = Segment::parse(&bytes).unwrap();
        assert_eq!(segment.header, header);
        let mut read = Vec::new();
        segment.read(&"log/a/9.seg".into(), &mut read).unwrap();
        assert_eq!(read, records);
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_found(at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = sample().2.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(matches!(Segment::parse(&bytes.into()), Err(Damage::Changed(_))));
        }

        #[test]
        fn every_cut_is_told_from_a_change(at: prop::sample::Index) {
            let bytes = sample().2;
            let cut = bytes.slice(..at.index(bytes.len()));
            let damage = Segment::parse(&cut).unwrap_err();
            prop_assert!(matches!(damage, Damage::Cut { .. }), "{damage}");
        }
    }
}
