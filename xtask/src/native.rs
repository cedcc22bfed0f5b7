//! The independent native word count that the demo's job is checked against: one hash map a thread, nothing shared with
//! the platform's code.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result};

/// Counts by word.
pub type Counts = HashMap<Box<[u8]>, u64>;

/// Every file with the extension `rs` below the folders, sorted.
pub fn sources(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = folders.to_vec();
    while let Some(folder) = open.pop() {
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))?
        {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() && entry.path().extension().is_some_and(|e| e == "rs") {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Counts the words of files. A word is a maximal run of ASCII letters, digits and `_`; case matters.
pub fn count(files: &[PathBuf]) -> Result<Counts> {
    let threads = thread::available_parallelism()?.get();
    let share = files.len().div_ceil(threads).max(1);
    let parts: Vec<Result<Counts>> = thread::scope(|scope| {
        let running: Vec<_> = files.chunks(share).map(|part| scope.spawn(|| count_share(part))).collect();
        running
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|_| anyhow::bail!("a counter died")))
            .collect()
    });
    let mut total = Counts::new();
    for part in parts {
        for (word, n) in part? {
            *total.entry(word).or_default() += n;
        }
    }
    Ok(total)
}

fn count_share(files: &[PathBuf]) -> Result<Counts> {
    let mut counts = Counts::new();
    for file in files {
        count_file(file, &mut counts)?;
    }
    Ok(counts)
}

fn count_file(file: &Path, counts: &mut Counts) -> Result<()> {
    let text = std::fs::read(file).with_context(|| format!("could not read {}", file.display()))?;
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    for word in text.split(|byte| !inside(byte)).filter(|word| !word.is_empty()) {
        match counts.get_mut(word) {
            Some(n) => *n += 1,
            None => {
                counts.insert(word.into(), 1);
            }
        }
    }
    Ok(())
}
