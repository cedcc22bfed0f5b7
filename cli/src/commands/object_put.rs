//! `fanfold object put`: one file, stdin, or a whole directory with many uploads in flight.

use std::{
    fs::Metadata,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use fanfold_client::{Client, Upload};
use futures::{StreamExt as _, TryStreamExt as _};
use indicatif::ProgressBar;
use serde_json::json;

use crate::{
    commands::{
        input,
        object::{IN_FLIGHT, Source, key_of},
    },
    failure::Failure,
    output::Output,
    progress, units,
};

/// `object put`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fanfold object put photo.jpg inbox/
  fanfold object put --recursive ./docs texts/
  tar c . | fanfold object put - backup.tar")]
pub struct Args {
    /// The file; a directory with --recursive; - for stdin
    path: PathBuf,
    /// The key, or with a / at its end what to put before the file's name
    key: Option<String>,
    /// Put every file below a directory in; keys keep the paths relative to it
    #[arg(short, long)]
    recursive: bool,
}

/// Runs it.
pub async fn run(client: &Client, args: &Args, out: Output) -> Result<(), Failure> {
    if args.path == Path::new("-") {
        return put_stdin(client, args.key.as_deref(), out).await;
    }
    let sources = match args.recursive {
        true => below(&args.path, args.key.as_deref().unwrap_or_default()).await?,
        false => vec![single(&args.path, args.key.as_deref()).await?],
    };
    let (started, total) = (Instant::now(), sources.iter().map(|s| s.bytes).sum());
    let bar = progress::bytes("putting", Some(total));
    let ended = put_all(client, &sources, &bar).await;
    bar.finish_and_clear();
    ended?;
    let time = started.elapsed();
    let told = json!({ "objects": sources.len(), "bytes": total, "seconds": time.as_secs_f64() });
    out.print(&told, |_| match sources.as_slice() {
        [source] => format!("{} ({})", source.key, units::bytes(total)),
        sources => format!(
            "{} objects, {} in {} ({})",
            sources.len(),
            units::bytes(total),
            units::duration(time),
            units::rate(total, time)
        ),
    })
}

async fn put_stdin(client: &Client, key: Option<&str>, out: Output) -> Result<(), Failure> {
    let wanted = || Failure::usage("stdin has no name to use as a key", "give a key");
    let key = key.filter(|key| !key.is_empty() && !key.ends_with('/')).ok_or_else(wanted)?;
    let bar = progress::bytes(key, None);
    let (shown, sent) = (bar.clone(), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&sent);
    let body = input::stdin_stream().on_progress(move |bytes| {
        counter.store(bytes, Ordering::Relaxed);
        shown.set_position(bytes);
    });
    let ended = client.put_object(key, body).await;
    bar.finish_and_clear();
    ended?;
    let bytes = sent.load(Ordering::Relaxed);
    out.print(&json!({ "objects": 1, "bytes": bytes }), |_| format!("{key} ({})", units::bytes(bytes)))
}

/// A file.
pub async fn single(path: &Path, key: Option<&str>) -> Result<Source, Failure> {
    let meta = tokio::fs::metadata(path).await.map_err(|e| Failure::file(path, &e))?;
    if meta.is_dir() {
        return Err(Failure::usage(format!("{} is a directory", path.display()), "add --recursive"));
    }
    Ok(Source {
        path: path.to_owned(),
        key: key_of(path, key)?,
        bytes: meta.len(),
        modified: modified(&meta),
    })
}

/// Every file below `dir`, by key. Links to directories are not followed.
pub async fn below(dir: &Path, prefix: &str) -> Result<Vec<Source>, Failure> {
    let meta = tokio::fs::metadata(dir).await.map_err(|e| Failure::file(dir, &e))?;
    if !meta.is_dir() {
        return Err(Failure::usage(format!("{} is not a directory", dir.display()), "leave out --recursive"));
    }
    let (dir, prefix) = (dir.to_owned(), prefix.to_owned());
    let walk = tokio::task::spawn_blocking(move || {
        let mut sources = Vec::new();
        walk(&dir, &prefix, &mut sources)?;
        sources.sort_unstable_by(|a: &Source, b| a.key.cmp(&b.key));
        Ok(sources)
    });
    walk.await.map_err(|e| Failure::new(format!("cannot list the directory: {e}"), "report this bug"))?
}

fn modified(meta: &Metadata) -> SystemTime {
    meta.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn walk(dir: &Path, prefix: &str, sources: &mut Vec<Source>) -> Result<(), Failure> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| Failure::file(&path, &e)
    };
    for entry in std::fs::read_dir(dir).map_err(fail(dir))? {
        let entry = entry.map_err(fail(dir))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(fail(&entry.path()))?);
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| {
            Failure::usage(format!("{} is not a UTF-8 name", path.display()), "rename it: keys are UTF-8")
        })?;
        let key = format!("{prefix}{name}");
        if kind.is_dir() {
            walk(&path, &format!("{key}/"), sources)?;
            continue;
        }
        let meta = std::fs::metadata(&path).map_err(fail(&path))?;
        // Sockets, pipes and devices hold no data; a link to a directory could lead in circles.
        if meta.is_file() {
            sources.push(Source { path, key, bytes: meta.len(), modified: modified(&meta) });
        }
    }
    Ok(())
}

async fn put_all(client: &Client, sources: &[Source], bar: &ProgressBar) -> Result<(), Failure> {
    let put = |source: &Source| {
        let (client, source, bar) = (client.clone(), source.clone(), bar.clone());
        async move { put(&client, &source, &bar).await }
    };
    let puts = futures::stream::iter(sources).map(put).buffer_unordered(IN_FLIGHT);
    puts.try_for_each(|()| async { Ok(()) }).await
}

async fn put(client: &Client, source: &Source, bar: &ProgressBar) -> Result<(), Failure> {
    let shown = Arc::new(AtomicU64::new(0));
    let upload = Upload::file(&source.path);
    // A hidden bar needs no news, and without them a small file is sent from memory as it is.
    let upload = if bar.is_hidden() { upload } else { counted(upload, Arc::clone(&shown), bar.clone()) };
    let written = client.put_object(&source.key, upload).await;
    written.map(drop).map_err(|e| Failure::from(e).during(&source.key))
}

/// Adds to a bar that several uploads share. A repeated upload starts from 0 again, so the difference may be negative.
fn counted(upload: Upload, shown: Arc<AtomicU64>, bar: ProgressBar) -> Upload {
    upload.on_progress(move |sent| {
        let before = shown.swap(sent, Ordering::Relaxed);
        match sent.checked_sub(before) {
            Some(more) => bar.inc(more),
            None => bar.set_position(bar.position().saturating_sub(before - sent)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_keep_relative_paths() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for file in ["z.txt", "a/y.txt", "a/b/x.txt"] {
            std::fs::write(dir.path().join(file), "12345").unwrap();
        }
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        let sources = below(dir.path(), "in/").await.unwrap();
        let keys: Vec<_> = sources.iter().map(|s| (s.key.as_str(), s.bytes)).collect();
        assert_eq!(keys, [("in/a/b/x.txt", 5), ("in/a/y.txt", 5), ("in/z.txt", 5)]);

        let file = dir.path().join("z.txt");
        assert_eq!(single(&file, None).await.unwrap().key, "z.txt");
        assert_eq!(single(&file, Some("in/")).await.unwrap().key, "in/z.txt");
        assert_eq!(single(&file, Some("other")).await.unwrap().key, "other");
        assert!(single(dir.path(), None).await.is_err());
    }
}
