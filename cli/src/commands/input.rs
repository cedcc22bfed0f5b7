//! What a command sends: an argument, a file, or stdin.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::AsFd as _,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use fanfold_client::Upload;
use tokio_util::io::ReaderStream;

use crate::{failure::Failure, output::note};

/// Bytes read from stdin at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Where a request's body comes from.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct Input {
    /// The request body itself
    #[arg(short, long)]
    data: Option<String>,
    /// A file with the request body; - is stdin, which is also read when it is a pipe or a file
    #[arg(short, long)]
    file: Option<PathBuf>,
}

impl Input {
    /// The body, if there is one.
    pub async fn body(&self) -> Result<Option<Upload>, Failure> {
        match (&self.data, &self.file) {
            (Some(data), _) => Ok(Some(data.clone().into())),
            (None, Some(path)) if path == Path::new("-") => Ok(Some(stdin().await?.into())),
            (None, Some(path)) => Ok(Some(Upload::file(path))),
            (None, None) if stdin_is_data() => Ok(Some(stdin().await?.into())),
            (None, None) => Ok(None),
        }
    }
}

/// Whether stdin is a pipe or a file. A terminal, a socket or `/dev/null` is not meant as a body.
fn stdin_is_data() -> bool {
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return false };
    File::from(stdin).metadata().is_ok_and(|meta| meta.file_type().is_fifo() || meta.is_file())
}

/// All of stdin. Says that it waits where nothing comes for a while: the pipe may have been left open by accident.
pub async fn stdin() -> Result<Bytes, Failure> {
    let read = tokio::task::spawn_blocking(|| {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| Bytes::from(bytes))
    });
    tokio::pin!(read);
    let read = match tokio::time::timeout(Duration::from_secs(2), &mut read).await {
        Ok(read) => read,
        Err(_) => {
            note("reading stdin until it ends (--data '' sends nothing)");
            read.await
        }
    };
    match read {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(Failure::file(Path::new("stdin"), &error)),
        Err(error) => Err(Failure::new(format!("cannot read stdin: {error}"), "give the data with --file")),
    }
}

/// Stdin as it comes, for what may be large.
pub fn stdin_stream() -> Upload {
    Upload::stream(ReaderStream::with_capacity(tokio::io::stdin(), CHUNK_BYTES), None)
}
