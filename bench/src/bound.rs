//! How fast this machine could sort at best: reading the input, sorting it natively, writing it, on all cores and with nothing
//! else to do. What does not fit into memory is written and read once more in between.
//!
//! Files are read past the page cache, as a job's input is not there, and written past it or through it, whichever is faster. The
//! output counts as written when it is on the disk, as an object is; what is written in between need not be.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use fanfold_shuffle::kernel::{
    record::{CHUNK_BYTES, Chunk},
    sort::Sorter,
};
use fanfold_store::{FileWriter, read_large_at};

/// Bytes that one thread sorts at a time: what a map of the sort reads.
const SPLIT_BYTES: usize = 32 << 20;
/// Bytes of one read.
const READ_BYTES: u64 = 4 * CHUNK_BYTES as u64;
/// Bytes that are measured, at most: the rest goes as fast.
const SAMPLE_BYTES: u64 = 1 << 30;

/// Seconds for `bytes` of records.
pub struct Bound {
    /// Reading them, from memory if the machine keeps files there.
    pub read: f64,
    /// Sorting them in splits, without reading or writing.
    pub sort: f64,
    /// Writing them as files, which the system may still have in memory then.
    pub write: f64,
    /// Writing them as files that are on the disk.
    pub write_synced: f64,
    /// How often they are read and written.
    pub passes: u32,
}

impl Bound {
    /// One after the other.
    pub fn seconds(&self) -> f64 {
        self.read * f64::from(self.passes)
            + self.write * f64::from(self.passes - 1)
            + self.write_synced
            + self.sort
    }

    /// Measures it with files below `input`, and scales it to `bytes`, of which memory holds `fit`. What it writes goes below
    /// `scratch`.
    ///
    /// # Errors
    /// Where files cannot be read or written.
    pub fn measure(input: &Path, scratch: &Path, bytes: u64, fit: u64, threads: usize) -> Result<Self> {
        let mut files = Vec::new();
        list(input, &mut files)?;
        files.sort();
        let sample = (files.len() as u64 * SAMPLE_BYTES.min(bytes)).div_ceil(bytes) as usize;
        files.truncate(sample.max(threads));
        let shares: Vec<Vec<PathBuf>> =
            (0..threads).map(|n| files.iter().skip(n).step_by(threads).cloned().collect()).collect();
        let read = all(&shares, |_, files| {
            read(files, |bytes| {
                std::hint::black_box(bytes);
            })
        })?
        .0;
        let data = all(&shares, |_, files| read_all(files))?.1;
        let seen = data.iter().flatten().map(Vec::len).sum::<usize>();
        anyhow::ensure!(seen > 0, "no input below {}", input.display());
        // Once to warm up.
        let sort = [(); 2].map(|()| all(&data, |_, chunks| Ok(sort_all(chunks))).map(|(seconds, _)| seconds));
        let [_, sort] = sort;
        let file = |n: usize| scratch.join(format!("bound-{n}"));
        let scale = bytes as f64 / seen as f64;
        let write = |sync| -> Result<f64> {
            let past = all(&data, |n, chunks| write_past(&file(n), chunks, sync))?.0;
            let through = all(&data, |n, chunks| write_through(&file(n), chunks, sync))?.0;
            Ok(past.min(through) * scale)
        };
        let (write, write_synced) = (write(false)?, write(true)?);
        let passes = if bytes > fit { 2 } else { 1 };
        Ok(Self { read: read * scale, sort: sort? * scale, write, write_synced, passes })
    }
}

/// Adds all files below a folder.
///
/// # Errors
/// Where it cannot be read.
pub fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

/// Does something with every share at once, a thread each; how long it took.
fn all<S: Sync, T: Send>(shares: &[S], act: impl Fn(usize, &S) -> Result<T> + Sync) -> Result<(f64, Vec<T>)> {
    let begin = Instant::now();
    let done = std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> =
            shares.iter().enumerate().map(|(n, share)| scope.spawn(move || act(n, share))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect::<Result<Vec<T>>>()
    })?;
    Ok((begin.elapsed().as_secs_f64(), done))
}

/// Calls `take` with the bytes of files, whole records at a time.
fn read(files: &[PathBuf], mut take: impl FnMut(&[u8])) -> Result<()> {
    for path in files {
        let (file, mut at) = (File::open(path)?, 0);
        loop {
            let read = read_large_at(&file, at..at + READ_BYTES)?;
            if read.is_empty() {
                break;
            }
            at += read.len() as u64;
            take(&read);
        }
    }
    Ok(())
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let mut chunks = Vec::new();
    read(files, |bytes| chunks.extend(bytes.chunks(CHUNK_BYTES).map(<[u8]>::to_vec)))?;
    Ok(chunks)
}

fn sort_all(chunks: &[Vec<u8>]) -> u64 {
    let (mut sorter, mut out, mut sum) = (Sorter::default(), Chunk::default(), 0u64);
    for split in chunks.chunks(SPLIT_BYTES / CHUNK_BYTES) {
        let mut sorted = sorter.sort(split);
        loop {
            out.fill(&mut sorted);
            sum += out.bytes().iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>();
            if !out.is_full() {
                break;
            }
            out.clear();
        }
        out.clear();
    }
    // Used, so that the work is done.
    std::hint::black_box(sum)
}

fn write_past(path: &Path, chunks: &[Vec<u8>], sync: bool) -> Result<()> {
    let mut file = FileWriter::create(path, 0o600)?;
    file.write(chunks.iter().map(AsRef::as_ref))?;
    end(path, &file.finish()?, sync)
}

fn write_through(path: &Path, chunks: &[Vec<u8>], sync: bool) -> Result<()> {
    let mut file = File::create(path)?;
    chunks.iter().try_for_each(|chunk| file.write_all(chunk))?;
    end(path, &file, sync)
}

fn end(path: &Path, file: &File, sync: bool) -> Result<()> {
    if sync {
        file.sync_all()?;
    }
    Ok(std::fs::remove_file(path)?)
}
