//! `fanfold object watch`: puts the files of a directory in as they come, so that triggers of objects fire for them.
//!
//! What the operating system tells of is put at once. A look at the whole directory, now and then and where news were lost, finds the
//! rest. Nothing is kept between two runs: when it begins, a file counts as put whose object has its size and is no older.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fanfold_client::{Client, rest::ObjectView};
use futures::{StreamExt as _, TryStreamExt as _};
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode},
};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    commands::{
        object::{IN_FLIGHT, Source},
        object_put::{below, single},
    },
    failure::Failure,
    output::{Output, note},
    units,
};

/// Time between two looks at everything.
const LOOK: Duration = Duration::from_secs(60);
/// Time to the next look after something could not be put.
const AGAIN: Duration = Duration::from_secs(5);
/// A file that nobody told of is put when it was left alone for so long.
const SETTLED: Duration = Duration::from_secs(2);
/// News that may wait; more of them, and everything is looked at.
const NEWS_MAX: usize = 4096;

/// `object watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fanfold object watch ./photos inbox/")]
pub struct Args {
    /// The directory
    dir: PathBuf,
    /// What keys begin with; the rest is the path below the directory
    #[arg(default_value = "")]
    prefix: String,
}

/// What may have changed.
enum News {
    /// This file or directory.
    At(PathBuf),
    /// Anything.
    Anywhere,
}

/// What a file was like when it was put.
type Stamp = (u64, SystemTime);

/// The files of a directory and what of them is put.
struct Watch<'a> {
    client: &'a Client,
    dir: PathBuf,
    prefix: String,
    put: HashMap<String, Stamp>,
    out: Output,
}

/// Runs it; it ends only when it is stopped or the directory cannot be read.
pub async fn run(client: &Client, args: &Args, out: Output) -> Result<(), Failure> {
    let dir = std::fs::canonicalize(&args.dir).map_err(|e| Failure::file(&args.dir, &e))?;
    let (sender, mut news) = mpsc::channel(NEWS_MAX);
    // Before the first look, so that nothing falls between the two.
    let _watcher = listen(&dir, sender)?;
    let mut watch = Watch { client, dir, prefix: args.prefix.clone(), put: HashMap::new(), out };
    let files = watch.begin().await?;
    let told = json!({ "watching": watch.dir, "prefix": watch.prefix, "files": files });
    out.print(&told, |_| format!("watching {} ({})", watch.dir.display(), units::count(files, "file")))?;
    // Files that were left out because somebody may still write to them.
    let mut next = Instant::now() + SETTLED;
    loop {
        let mut some = Vec::new();
        let ended = tokio::select! {
            _ = news.recv_many(&mut some, NEWS_MAX) => watch.take(some).await?,
            () = tokio::time::sleep_until(next) => Some(watch.look_on().await?),
        };
        if let Some(pause) = ended {
            next = Instant::now() + pause;
        }
    }
}

/// Has the operating system tell of files that are written and moved there.
fn listen(dir: &Path, news: mpsc::Sender<News>) -> Result<RecommendedWatcher, Failure> {
    let fail = |e: notify::Error| {
        let fix = "check that it is a directory you may read, and the system's limit on watches (fs.inotify.max_user_watches)";
        Failure::new(format!("cannot watch {}: {e}", dir.display()), fix)
    };
    let tell = move |event: notify::Result<Event>| {
        let Ok(event) = event else {
            let _ = news.try_send(News::Anywhere); // A full queue leads to a look, too.
            return;
        };
        if event.need_rescan() {
            let _ = news.try_send(News::Anywhere);
        }
        if is_told(event.kind) {
            for path in event.paths {
                let _ = news.try_send(News::At(path));
            }
        }
    };
    let mut watcher = notify::recommended_watcher(tell).map_err(fail)?;
    watcher.watch(dir, RecursiveMode::Recursive).map_err(fail)?;
    Ok(watcher)
}

/// Whether a file is complete then, or a directory has come.
fn is_told(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Name(RenameMode::To))
            | EventKind::Create(CreateKind::Folder)
    )
}

impl Watch<'_> {
    /// Puts what the store does not have; how many files there are.
    async fn begin(&mut self) -> Result<u64, Failure> {
        let objects = self.client.objects(&self.prefix);
        let stored: HashMap<String, ObjectView> =
            objects.map_ok(|object| (object.key.clone(), object)).try_collect().await?;
        let files = self.files().await?;
        for file in &files {
            let same = |object: &&ObjectView| {
                object.bytes == file.bytes && object.modified_at_ms >= unix_ms(file.modified)
            };
            if stored.get(&file.key).filter(same).is_some() {
                self.put.insert(file.key.clone(), (file.bytes, file.modified));
            }
        }
        let count = files.len() as u64;
        self.put_new(files, SETTLED).await?;
        Ok(count)
    }

    /// Looks at everything; when to look again. Only where the directory is gone, it is of no use to go on.
    async fn look_on(&mut self) -> Result<Duration, Failure> {
        match self.look().await {
            Ok(again) => Ok(again.unwrap_or(LOOK)),
            Err(failure) if self.dir.is_dir() => {
                note(format_args!("{failure}; trying again"));
                Ok(AGAIN)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Looks at everything. Some: when to look again, because something is left to do.
    async fn look(&mut self) -> Result<Option<Duration>, Failure> {
        let files = self.files().await?;
        let there: std::collections::HashSet<&str> = files.iter().map(|file| file.key.as_str()).collect();
        self.put.retain(|key, _| there.contains(key.as_str()));
        self.put_new(files, SETTLED).await
    }

    /// Puts what the news tell of. Some: when to look at everything.
    async fn take(&mut self, news: Vec<News>) -> Result<Option<Duration>, Failure> {
        let mut soon = None;
        let mut files: Vec<Source> = Vec::new();
        if news.len() >= NEWS_MAX {
            soon = Some(Duration::ZERO);
        }
        for news in news {
            match news {
                News::Anywhere => soon = Some(Duration::ZERO),
                // What came into it before the system watches it, nobody tells of.
                News::At(path) if path.is_dir() => soon = soon.or(Some(SETTLED)),
                News::At(path) => {
                    // One that has gone meanwhile, or whose name is no text, is none of ours.
                    let Some(key) = self.key(&path) else { continue };
                    files.extend(single(&path, Some(&key)).await);
                }
            }
        }
        files.retain(|file| !self.is_hidden(&file.key));
        files.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        files.dedup_by(|a, b| a.key == b.key);
        let again = self.put_new(files, Duration::ZERO).await?;
        Ok(soon.or(again))
    }

    async fn files(&self) -> Result<Vec<Source>, Failure> {
        let mut files = below(&self.dir, &self.prefix).await?;
        files.retain(|file| !self.is_hidden(&file.key));
        Ok(files)
    }

    /// The key of a path; `None`: it has none, because it is no text.
    fn key(&self, path: &Path) -> Option<String> {
        let parts: Option<Vec<&str>> =
            path.strip_prefix(&self.dir).ok()?.components().map(|part| part.as_os_str().to_str()).collect();
        Some(format!("{}{}", self.prefix, parts?.join("/")))
    }

    /// Whether a part of its path begins with a dot: there programs write what they rename afterwards.
    fn is_hidden(&self, key: &str) -> bool {
        key[self.prefix.len().min(key.len())..].split('/').any(|part| part.starts_with('.'))
    }

    /// Puts the files that are not put as they are now, and were left alone for so long. Some: when to look again.
    async fn put_new(&mut self, files: Vec<Source>, settled: Duration) -> Result<Option<Duration>, Failure> {
        let now = SystemTime::now();
        let fresh = |file: &Source| {
            // One whose time is in the future is settled as soon as it is told of.
            now.duration_since(file.modified).unwrap_or_default() < settled
        };
        let mut again = None;
        let mut new = Vec::new();
        for file in files {
            match self.put.get(&file.key) == Some(&(file.bytes, file.modified)) {
                true => {}
                false if fresh(&file) => again = Some(SETTLED),
                false => new.push(file),
            }
        }
        let client = self.client;
        let puts = futures::stream::iter(new).map(async |file| {
            let written = client.put_object(&file.key, fanfold_client::Upload::file(&file.path)).await;
            (file, written)
        });
        let mut puts = std::pin::pin!(puts.buffer_unordered(IN_FLIGHT));
        while let Some((file, written)) = puts.next().await {
            match written {
                Ok(object) => {
                    self.put.insert(file.key, (file.bytes, file.modified));
                    let told = json!({ "key": object.key, "bytes": object.bytes });
                    self.out.print(&told, |_| format!("{} ({})", object.key, units::bytes(object.bytes)))?;
                }
                // It is gone.
                Err(_) if !file.path.exists() => {}
                Err(error) => {
                    note(format_args!("{}: {error}; trying again", file.key));
                    again = Some(AGAIN);
                }
            }
        }
        Ok(again)
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}
