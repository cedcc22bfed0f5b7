//! How fast this machine could sort at best: reading the input once, sorting it natively, writing it once, on all cores and
//! with nothing else to do.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use fanfold_shuffle::kernel::{
    record::{CHUNK_BYTES, Chunk},
    sort::Sorter,
};

/// Bytes that one thread sorts at a time: what a map of the sort reads.
const SPLIT_BYTES: usize = 32 << 20;

/// Seconds for `bytes` of records.
pub struct Bound {
    /// Reading them, from memory if the machine keeps files there.
    pub read: f64,
    /// Sorting them in splits, without reading or writing.
    pub sort: f64,
    /// Writing them as files.
    pub write: f64,
}

impl Bound {
    /// One after the other.
    pub fn seconds(&self) -> f64 {
        self.read + self.sort + self.write
    }

    /// Measures it with some of the files below `input`, and scales it to `bytes`. What it writes goes below `scratch`.
    ///
    /// # Errors
    /// Where files cannot be read or written.
    pub fn measure(input: &Path, scratch: &Path, bytes: u64, threads: usize) -> Result<Self> {
        let mut files = Vec::new();
        list(input, &mut files)?;
        files.sort();
        let shares: Vec<Vec<PathBuf>> =
            (0..threads).map(|n| files.iter().skip(n).step_by(threads).take(4).cloned().collect()).collect();
        let (mut read, mut sort, mut write) = (0.0, 0.0, 0.0);
        let mut seen = 0;
        // Once to warm up.
        for _ in 0..2 {
            let (seconds, data) = all(&shares, |_, files| read_all(files))?;
            read = seconds;
            seen = data.iter().flatten().map(Vec::len).sum::<usize>();
            sort = all(&data, |_, chunks| Ok(sort_all(chunks)))?.0;
            write = all(&data, |n, chunks| write_all(&scratch.join(format!("bound-{n}")), chunks))?.0;
        }
        anyhow::ensure!(seen > 0, "no input below {}", input.display());
        let scale = bytes as f64 / seen as f64;
        Ok(Self { read: read * scale, sort: sort * scale, write: write * scale })
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
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

fn read_all(files: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let mut chunks = Vec::new();
    for file in files {
        let mut file = File::open(file)?;
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
            if chunk.is_empty() {
                break;
            }
            chunks.push(chunk);
        }
    }
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

fn write_all(path: &Path, chunks: &[Vec<u8>]) -> Result<()> {
    let mut file = File::create(path)?;
    chunks.iter().try_for_each(|chunk| file.write_all(chunk))?;
    std::fs::remove_file(path)?;
    Ok(())
}
