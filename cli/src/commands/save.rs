//! Where a command's bytes go: stdout, or a file that appears whole or not at all.

use std::path::{Path, PathBuf};

use fanfold_client::ByteStream;
use futures::TryStreamExt as _;
use indicatif::ProgressBar;
use tokio::io::AsyncWriteExt as _;

use crate::{failure::Failure, output::Output, progress};

/// `-o FILE`.
#[derive(Debug, clap::Args)]
pub struct Target {
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Target {
    /// Writes `body` there; answers how many bytes.
    pub async fn save(
        &self,
        what: &str,
        body: ByteStream,
        total: Option<u64>,
        out: Output,
    ) -> Result<u64, Failure> {
        match &self.output {
            Some(path) => {
                let bar = progress::bytes(what, total);
                let written = write_whole(path, body, &bar).await;
                bar.finish_and_clear();
                written
            }
            None => out.stream(body).await,
        }
    }

    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_deref()
    }
}

/// Writes beside the target first, so that a broken download leaves what was there.
async fn write_whole(path: &Path, body: ByteStream, bar: &ProgressBar) -> Result<u64, Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = match write(&beside, body, bar).await {
        Ok(written) => written,
        Err(failure) => {
            // Best effort: the failure that is reported is the one that matters.
            let _ = tokio::fs::remove_file(&beside).await;
            return Err(failure);
        }
    };
    tokio::fs::rename(&beside, path).await.map_err(|e| Failure::file(path, &e))?;
    Ok(written)
}

async fn write(path: &Path, mut body: ByteStream, bar: &ProgressBar) -> Result<u64, Failure> {
    let fail = |e: std::io::Error| Failure::file(path, &e);
    let mut file = tokio::fs::File::create(path).await.map_err(fail)?;
    let mut written = 0;
    while let Some(chunk) = body.try_next().await? {
        file.write_all(&chunk).await.map_err(fail)?;
        written += chunk.len() as u64;
        bar.set_position(written);
    }
    file.flush().await.map_err(fail)?;
    Ok(written)
}
