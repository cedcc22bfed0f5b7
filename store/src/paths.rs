//! Every object path of a store, built here and nowhere else.
//!
//! | path | written | key | value |
//! |---|---|---|---|
//! | `component/<xx>/<digest>.wasm` | once, healed when damaged | SHA-256 of the bytes | a component as uploaded |
//! | `compiled/<digest>/<engine>.cwasm` | replaced whole, unsynced | component, digest of the engine key | compiled code, signed by its maker |
//! | `version/<xx>/<digest>.json` | once | version digest | a sealed `FunctionVersion` as JSON |
//! | `job/<xx>/<job>/input` | once, before the job is accepted | job | its sealed input, if over 64 KiB |
//! | `job/<xx>/<job>/logs` | replaced whole, unsynced | job | sealed NDJSON of its attempts' logs |
//! | `job/<xx>/<job>/graph` | once, unsynced | job | its sealed task graph after its end, if it had more than one task |
//! | `job/<xx>/<job>/part/<task>.<output>.<epoch>.<attempt>` | once per attempt | [`StoredKey`] | data and footer of a partition |
//! | `job/<xx>/<entry>/part/<entry>.<output>.0.0` | once, copied | [`StoredKey::of_memo`] | the same of a memoised call, for all jobs |
//! | `objects/<key>` | replaced whole | what the user chose | what the user put |
//! | `epoch/<shard>/<n>` | created only, never removed | shard, epoch | the claiming writer's id |
//! | `log/<shard>/<seq>.seg` | created only, removed long after a checkpoint | shard, sequence number | a journal segment |
//! | `checkpoint/<shard>/<seq>` | created only, removed long after the next one | shard, last segment it covers | a compacted journal |
//! | `registry/<log>/<seq>` | created only, never removed | shared log, sequence number | an entry of it |
//! | `registry/<log>/checkpoint-<seq>` | created only, never removed | shared log, last entry it covers | its compacted state |
//! | `trigger/<trigger>/seen-<what>` | replaced whole, lost it is made again | trigger, digest of what it lists | sorted lines of what its last listing saw |
//! | `agreed/<name>` | created only | a question | the answer of whoever was asked first |
//! | `FORMAT` | created only | | the version of this layout |
//! | `secret/signing-key` | created only | | 32 random bytes |
//!
//! `<xx>` is two hexadecimal digits of a hash, so that no folder or key range grows hot; a job's partitions are spread
//! by their task ids, which are hashes. Everything of one job is under one prefix and can be removed with one listing.
//! Numbers have 20 digits, so that names sort as numbers do.

use fanfold_protocol::{Digest, Error, FunctionName, JobId, limit, value::StoredKey};
use object_store::path::Path;

/// Folders a store writes to; a directory may hold other things beside them.
pub(crate) const FOLDERS: [&str; 12] = [
    "component",
    "compiled",
    "version",
    "job",
    "objects",
    "epoch",
    "log",
    "checkpoint",
    "registry",
    "trigger",
    "agreed",
    "secret",
];

/// The store's layout version, created by whoever opens it first.
pub(crate) const FORMAT_FILE: &str = "FORMAT";
/// What [`FORMAT_FILE`] says.
pub(crate) const FORMAT: &str = "fanfold store 1\n";
/// Held locked by the process that owns a directory.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// Bytes of one part of a user's key, escapes counted: file systems allow 255 and uploads need a few.
pub const KEY_PART_BYTES_MAX: usize = 240;

/// How users' keys become paths. The two never mix within one store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// The store's keys are plain strings: memory and S3. A user's key is used as it is.
    Flat,
    /// The store is a tree of folders, where `a` cannot be both a file and a folder. Folders get a `+` at their end,
    /// and `+`, `%` and `#` (which the local store keeps for its temporary files) are percent-escaped.
    Tree,
}

fn path(text: String) -> Path {
    // Every part is made here of hexadecimal digits, numbers and checked names, so there is nothing to escape.
    Path::from(text)
}

pub(crate) fn component(digest: Digest) -> Path {
    path(format!("component/{:02x}/{digest}.wasm", digest.0[0]))
}

pub(crate) fn compiled(component: Digest, engine: &str) -> Path {
    path(format!("compiled/{component}/{}.cwasm", Digest::of(engine.as_bytes())))
}

pub(crate) fn version(version: Digest) -> Path {
    path(format!("version/{:02x}/{version}.json", version.0[0]))
}

pub(crate) fn job(job: JobId) -> Path {
    // A job id begins with its time: its hash spreads where the id itself would not.
    path(format!("job/{:02x}/{job}", crc32c::crc32c(job.0.as_bytes()) as u8))
}

pub(crate) fn input(job: JobId) -> Path {
    self::job(job).join("input")
}

/// Everything that is kept for a trigger.
pub(crate) fn trigger(name: &FunctionName) -> Path {
    path(format!("trigger/{name}"))
}

/// What the last listing saw of a trigger that lists what this digest stands for.
pub(crate) fn seen(name: &FunctionName, what: Digest) -> Path {
    trigger(name).join(format!("seen-{what}"))
}

pub(crate) fn logs(job: JobId) -> Path {
    self::job(job).join("logs")
}

pub(crate) fn graph(job: JobId) -> Path {
    self::job(job).join("graph")
}

pub(crate) fn partition(key: StoredKey) -> Path {
    let StoredKey { job, partition, epoch, attempt } = key;
    self::job(job).join("part").join(format!("{partition}.{epoch}.{attempt}"))
}

pub(crate) fn agreed(name: &str) -> Path {
    path(format!("agreed/{name}"))
}

/// The folder of all shards' epochs.
pub(crate) fn shards() -> Path {
    path("epoch".to_owned())
}

pub(crate) fn epochs(shard: &str) -> Path {
    path(format!("epoch/{shard}"))
}

pub(crate) fn epoch(shard: &str, n: u64) -> Path {
    path(format!("epoch/{shard}/{n:020}"))
}

pub(crate) fn segments(shard: &str) -> Path {
    path(format!("log/{shard}"))
}

pub(crate) fn segment(shard: &str, seq: u64) -> Path {
    path(format!("log/{shard}/{seq:020}.seg"))
}

pub(crate) fn checkpoints(shard: &str) -> Path {
    path(format!("checkpoint/{shard}"))
}

pub(crate) fn checkpoint(shard: &str, seq: u64) -> Path {
    path(format!("checkpoint/{shard}/{seq:020}"))
}

pub(crate) fn shared_log(log: &str) -> Path {
    path(format!("registry/{log}"))
}

pub(crate) fn shared_entry(log: &str, seq: u64) -> Path {
    path(format!("registry/{log}/{seq:020}"))
}

/// Sorts after all entries of its log: letters follow digits.
pub(crate) fn shared_checkpoint(log: &str, seq: u64) -> Path {
    path(format!("registry/{log}/{SHARED_CHECKPOINT}{seq:020}"))
}

/// What names of a shared log's checkpoints begin with.
pub(crate) const SHARED_CHECKPOINT: &str = "checkpoint-";

pub(crate) fn signing_key() -> Path {
    path("secret/signing-key".to_owned())
}

/// The number in the last part of an epoch's, segment's or checkpoint's path.
pub(crate) fn number(name: &str) -> Option<u64> {
    name.strip_suffix(".seg").unwrap_or(name).parse().ok()
}

/// The folder of all users' objects.
pub(crate) fn objects() -> Path {
    path("objects".to_owned())
}

/// Where a user's object is.
///
/// # Errors
/// `invalid` where the key could name something else than itself: see [`check_key`].
pub(crate) fn object(layout: Layout, key: &str) -> Result<Path, Error> {
    check_key(key)?;
    let parsed = match layout {
        Layout::Flat => Path::parse(format!("objects/{key}")),
        Layout::Tree => Path::parse(format!("objects/{}", tree_path(key))),
    };
    parsed.map_err(|e| Error::invalid(format!("`{}` cannot be an object's key: {e}", shown(key))))
}

/// A key, or a prefix that ends with `/`, as a path below `objects` in a tree.
pub(crate) fn tree_path(key: &str) -> String {
    let mut path = String::with_capacity(key.len() + 8);
    for character in key.chars() {
        match character {
            '/' => path.push_str("+/"),
            '%' => path.push_str("%25"),
            '+' => path.push_str("%2B"),
            '#' => path.push_str("%23"),
            other => path.push(other),
        }
    }
    path
}

/// A file or folder name of a tree as the part of a key it stands for, and whether it is a folder. `None`: a
/// temporary or foreign file.
pub(crate) fn tree_name(name: &str) -> Option<(String, bool)> {
    let (name, folder) = match name.strip_suffix('+') {
        Some(folder) => (folder, true),
        None => (name, false),
    };
    if name.contains(['#', '+']) {
        return None;
    }
    Some((name.replace("%2B", "+").replace("%23", "#").replace("%25", "%"), folder))
}

/// Refuses keys that are empty, absolute, too long, or have empty, `.`, `..` or overlong parts or control characters.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    let problem = if key.is_empty() {
        "it is empty"
    } else if key.len() > limit::OBJECT_KEY_BYTES_MAX {
        "it is longer than 1024 bytes"
    } else if key.starts_with('/') {
        "it begins with `/`"
    } else if key.chars().any(char::is_control) {
        "it has control characters"
    } else if !key.split('/').all(is_part) {
        "it has an empty, `.` or `..` part"
    } else if tree_path(key).split('/').any(|part| part.len() > KEY_PART_BYTES_MAX) {
        "a part between `/` is longer than 240 bytes (each `+`, `%` and `#` counts three)"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("`{}` cannot be an object's key: {problem}", shown(key))))
}

/// Whether some key can have this part. A listing by a prefix with another one is empty.
pub(crate) fn is_part(part: &str) -> bool {
    !matches!(part, "" | "." | "..")
}

fn shown(key: &str) -> String {
    key.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_in_a_tree_come_back(key in "([a-z+%#25B3 .-]{1,6}/){0,3}[a-z+%#25B3 -]{1,8}") {
            prop_assume!(check_key(&key).is_ok());
            let path = object(Layout::Tree, &key).unwrap();
            let parts = path.as_ref().strip_prefix("objects/").unwrap().split('/');
            let back: Vec<_> = parts.map(|part| tree_name(part).unwrap()).collect();
            let folders = back.iter().filter(|(_, folder)| *folder).count();
            prop_assert_eq!(folders, back.len() - 1, "all but the last are folders");
            let names: Vec<_> = back.into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(names.join("/"), key);
        }
    }

    #[test]
    fn keys_cannot_escape() {
        let long = "x".repeat(1025);
        let wide = "x".repeat(241);
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "../a",
            "a//b",
            "a/",
            "./a",
            "a/.",
            "a\0b",
            "a\nb",
            &long,
            &wide,
        ] {
            for layout in [Layout::Flat, Layout::Tree] {
                assert!(object(layout, bad).is_err(), "{bad:?}");
            }
        }
        for good in ["a", "a/b", "...", "a..b/c", "C++/x.h", "50%", "x#1", "日本/語", "a b", "%2e%2e/x"] {
            for layout in [Layout::Flat, Layout::Tree] {
                assert!(object(layout, good).unwrap().as_ref().starts_with("objects/"), "{good:?}");
            }
        }
    }
}
