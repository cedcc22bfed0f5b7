//! What stands behind a spilled partition's bytes in its file, for a process that finds it there: its footer, as in the object
//! store, and a label of [`LABEL_BYTES`] that says which partition it is.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | mark |
//! | 16, 16, 4, 8, 4 | job, task, output, epoch and attempt of its key, little-endian |
//! | 4 | 1 if it is to be uploaded, else 0 |
//! | 4 | crc32c of the label before this |
//!
//! A file that a process was writing when it was killed has no label, and is of no use.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use bytes::Bytes;
use fanfold_protocol::{JobId, PartitionId, TaskId, value::StoredKey};
use fanfold_store::{
    Index,
    partitions::{Footer, encode, parse},
};
use uuid::Uuid;

const LABEL_BYTES: usize = 64;
const MARK: [u8; 8] = *b"fanspill";
/// What is read of a file's end at first: mostly that is all.
const TAIL_BYTES: u64 = 32 << 10;

/// A partition as its file describes it.
#[derive(PartialEq, Eq, Debug)]
pub struct Labelled {
    /// Which.
    pub key: StoredKey,
    /// Its blocks.
    pub index: Index,
    /// Whether it is to be uploaded.
    pub lazy: bool,
}

/// What is written behind the partition's bytes.
pub fn label(key: StoredKey, index: &Index, lazy: bool) -> [Bytes; 2] {
    let mut out = Vec::with_capacity(LABEL_BYTES);
    out.extend_from_slice(&MARK);
    out.extend_from_slice(key.job.0.as_bytes());
    out.extend_from_slice(&key.partition.task.0);
    out.extend_from_slice(&key.partition.output.to_le_bytes());
    out.extend_from_slice(&key.epoch.to_le_bytes());
    out.extend_from_slice(&key.attempt.to_le_bytes());
    out.extend_from_slice(&u32::from(lazy).to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    [encode(index), out.into()]
}

/// What a file says of itself; `None`: it is no whole partition.
///
/// # Errors
/// Of the file system.
pub fn read(file: &Path) -> io::Result<Option<Labelled>> {
    let file = File::open(file)?;
    let length = file.metadata()?.len();
    let Some(before) = length.checked_sub(LABEL_BYTES as u64) else { return Ok(None) };
    let mut tail = read_end(&file, length, TAIL_BYTES)?;
    let Some((key, lazy)) = parse_label(&tail[tail.len() - LABEL_BYTES..]) else { return Ok(None) };
    loop {
        match parse(&tail[..tail.len() - LABEL_BYTES], before) {
            Ok(Footer::Complete(index)) => return Ok(Some(Labelled { key, index, lazy })),
            Ok(Footer::Longer(bytes)) if bytes <= before => {
                tail = read_end(&file, length, bytes + LABEL_BYTES as u64)?;
            }
            _ => return Ok(None),
        }
    }
}

/// The last `bytes` of a file of `length`, all of it where that is shorter.
fn read_end(file: &File, length: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let bytes = bytes.min(length);
    let mut end = vec![0; bytes as usize];
    file.read_exact_at(&mut end, length - bytes)?;
    Ok(end)
}

/// `bytes`: exactly [`LABEL_BYTES`].
fn parse_label(bytes: &[u8]) -> Option<(StoredKey, bool)> {
    let (bytes, crc) = bytes.split_last_chunk()?;
    if crc32c::crc32c(bytes) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (mark, rest) = bytes.split_first_chunk()?;
    let (job, rest) = rest.split_first_chunk()?;
    let (task, rest) = rest.split_first_chunk()?;
    let (output, rest) = rest.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (attempt, rest) = rest.split_first_chunk()?;
    let (lazy, _) = rest.split_first_chunk()?;
    let key = StoredKey {
        job: JobId(Uuid::from_bytes(*job)),
        partition: PartitionId { task: TaskId(*task), output: u32::from_le_bytes(*output) },
        epoch: u64::from_le_bytes(*epoch),
        attempt: u32::from_le_bytes(*attempt),
    };
    (*mark == MARK).then_some((key, u32::from_le_bytes(*lazy) == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StoredKey {
        StoredKey {
            job: JobId(Uuid::from_u128(77)),
            partition: PartitionId { task: TaskId([3; 16]), output: 9 },
            epoch: 1 << 40,
            attempt: 2,
        }
    }

    /// A partition of `blocks` blocks of one byte: 13 bytes of footer each.
    fn file(blocks: usize) -> (Vec<u8>, Index) {
        let mut builder = Index::builder();
        for _ in 0..blocks {
            builder.write(b"x");
            builder.end_block();
        }
        let index = builder.finish();
        let mut file = vec![b'x'; blocks];
        label(key(), &index, true).iter().for_each(|part| file.extend_from_slice(part));
        (file, index)
    }

    #[test]
    fn a_file_says_what_it_is_unless_it_is_not_whole() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("1");
        for blocks in [0, 1, 100, 10_000] {
            let (whole, index) = file(blocks);
            std::fs::write(&at, &whole).unwrap();
            assert_eq!(
                read(&at).unwrap(),
                Some(Labelled { key: key(), index, lazy: true }),
                "{blocks} blocks"
            );
            for cut in [1, LABEL_BYTES, whole.len()] {
                std::fs::write(&at, &whole[..whole.len() - cut]).unwrap();
                assert_eq!(read(&at).unwrap(), None, "{blocks} blocks, {cut} bytes cut");
            }
            // In the label's key, and in the footer.
            for flipped in [whole.len() - LABEL_BYTES + 20, whole.len() - LABEL_BYTES - 20] {
                let mut damaged = whole.clone();
                damaged[flipped] ^= 1;
                std::fs::write(&at, &damaged).unwrap();
                assert_eq!(read(&at).unwrap(), None, "{blocks} blocks, damaged at {flipped}");
            }
        }
    }
}
