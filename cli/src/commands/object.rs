//! `fanfold object`: data in and out.

use std::{path::PathBuf, time::SystemTime};

use clap::Subcommand;
use fanfold_client::{Client, rest::ObjectView};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use crate::{
    commands::{object_put, object_watch, save::Target},
    failure::Failure,
    output::{Output, note},
    progress,
    table::{Table, left, right},
    units,
};

/// Requests in flight at once where there are many to make.
pub const IN_FLIGHT: usize = 16;

/// `object`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Put a file, a directory or stdin in
    Put(object_put::Args),
    /// Put the files of a directory in as they come, until it is stopped
    Watch(object_watch::Args),
    /// Read an object
    Get {
        /// The object
        key: String,
        #[command(flatten)]
        target: Target,
    },
    /// List objects
    Ls {
        /// Only keys that start with this
        #[arg(default_value = "")]
        prefix: String,
        /// At most this many
        #[arg(short = 'n', long)]
        limit: Option<usize>,
    },
    /// Remove objects
    Rm {
        /// The objects; with --recursive, prefixes
        #[arg(required = true)]
        keys: Vec<String>,
        /// Remove every object whose key starts with one of these
        #[arg(short, long)]
        recursive: bool,
    },
}

/// Runs one of them.
pub async fn run(client: &Client, command: Command, out: Output) -> Result<(), Failure> {
    match command {
        Command::Put(args) => object_put::run(client, &args, out).await,
        Command::Watch(args) => object_watch::run(client, &args, out).await,
        Command::Get { key, target } => get(client, &key, &target, out).await,
        Command::Ls { prefix, limit } => list(client, &prefix, limit.unwrap_or(usize::MAX), out).await,
        Command::Rm { keys, recursive } => remove(client, keys, recursive, out).await,
    }
}

async fn get(client: &Client, key: &str, target: &Target, out: Output) -> Result<(), Failure> {
    // Only a progress bar needs the size.
    let total = match target.path() {
        Some(_) => Some(client.head_object(key).await?.bytes),
        None => None,
    };
    let written = target.save(key, client.object(key).await?, total, out).await?;
    match target.path() {
        Some(path) => {
            let told = json!({ "key": key, "bytes": written, "file": path });
            out.print(&told, |_| format!("{} ({})", path.display(), units::bytes(written)))
        }
        None => Ok(()),
    }
}

async fn list(client: &Client, prefix: &str, limit: usize, out: Output) -> Result<(), Failure> {
    let objects: Vec<ObjectView> = client.objects(prefix).take(limit).try_collect().await?;
    if objects.is_empty() && !out.json {
        note("no objects");
        return Ok(());
    }
    out.print(&objects, |objects| {
        let mut table = Table::new([right("SIZE"), left("MODIFIED"), left("KEY")]);
        for object in objects {
            table.row([units::bytes(object.bytes), units::ago(object.modified_at_ms), object.key.clone()]);
        }
        table
    })
}

async fn remove(client: &Client, keys: Vec<String>, recursive: bool, out: Output) -> Result<(), Failure> {
    let keys = match recursive {
        true => below(client, &keys).await?,
        false => keys,
    };
    let bar = progress::spinner("removing");
    let remove = |key: &String| {
        let (client, key) = (client.clone(), key.clone());
        async move { client.delete_object(&key).await.map_err(|e| Failure::from(e).during(&key)) }
    };
    let removed = futures::stream::iter(&keys).map(remove).buffer_unordered(IN_FLIGHT);
    let ended = removed.try_for_each(|()| async { Ok(()) }).await;
    bar.finish_and_clear();
    ended?;
    out.print(&json!({ "removed": keys }), |_| match keys.as_slice() {
        [key] => format!("removed {key}"),
        keys => format!("removed {} objects", keys.len()),
    })
}

async fn below(client: &Client, prefixes: &[String]) -> Result<Vec<String>, Failure> {
    let mut keys = Vec::new();
    for prefix in prefixes {
        let found: Vec<ObjectView> = client.objects(prefix).try_collect().await?;
        keys.extend(found.into_iter().map(|object| object.key));
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// The key of a file: a prefix that ends in / gets the file's name appended.
pub fn key_of(file: &std::path::Path, key: Option<&str>) -> Result<String, Failure> {
    let name = || {
        let name = file.file_name().and_then(|name| name.to_str());
        name.ok_or_else(|| {
            Failure::usage(format!("{} has no name to use as a key", file.display()), "give a key")
        })
    };
    match key {
        Some(key) if !key.is_empty() && !key.ends_with('/') => Ok(key.to_owned()),
        Some(prefix) => Ok(format!("{prefix}{}", name()?)),
        None => Ok(name()?.to_owned()),
    }
}

/// A file and the key it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Its key.
    pub key: String,
    /// Its size when it was found.
    pub bytes: u64,
    /// When it was written last, as far as that is known.
    pub modified: SystemTime,
}
