//! `fanfold object watch` on a real directory: each file is put once, whatever the order of writing, renaming and dying.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Stdio},
};

use fanfold_tests::{
    cluster::{PATIENCE, until as until_holds},
    platform::Platform,
    triggers::{inputs, set},
};
use serde_json::json;

/// A watching process.
struct Watching(
    Child,
    #[allow(dead_code, reason = "closed, it would end the process")] BufReader<ChildStdout>,
);

impl Watching {
    /// Starts one; it has looked at the directory when this returns.
    fn start(platform: &Platform, dir: &Path) -> Self {
        let mut command = platform.cli(&["object", "watch", dir.to_str().expect("a path"), "in/", "--json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("\"watching\"") {
            line.clear();
            assert!(lines.read_line(&mut line).expect("readable") > 0, "it ended before it watched");
        }
        Self(child, lines)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It is a child of ours, so neither can fail.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often each object fired.
async fn fired(platform: &Platform) -> BTreeMap<String, u32> {
    let mut fired = BTreeMap::new();
    for event in
        inputs(platform, "files").await.iter().flat_map(|batch| batch.as_array().cloned().unwrap_or_default())
    {
        let key = event["data"]["key"].as_str().expect("a key").to_owned();
        *fired.entry(key).or_default() += 1;
    }
    fired
}

/// Waits until so many objects are there and all have fired.
async fn until_put(platform: &Platform, count: usize, last: &str) {
    let there = async || {
        let objects = platform.get("/v1/objects?prefix=in/&limit=1000").await.expect(200).json();
        let objects = objects["items"].as_array().cloned().unwrap_or_default();
        objects.len() == count && objects.iter().any(|object| object["key"] == last)
    };
    assert!(until_holds(PATIENCE, there).await, "{count} objects are put");
    // An object is there a moment before its event is recorded.
    let all = async || fired(platform).await.len() == count;
    assert!(until_holds(PATIENCE, all).await, "{count} objects fire");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_put_once_as_they_come() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await.expect(201);
    let batch = json!({ "max": 1000, "window": "300ms" });
    let files =
        json!({ "kind": "objects", "function": "echo", "prefix": "in/", "batch": batch, "listing": "0s" });
    set(&platform, "files", files).await;
    let photos = dir.path().join("photos");
    fs::create_dir_all(photos.join("old")).expect("a directory");
    fs::write(photos.join("old/a.txt"), "from before").expect("written");
    let watching = Watching::start(&platform, &photos);

    // Written in place, renamed into a directory that has just come, hidden, and many at once.
    fs::write(photos.join("b.txt"), "one").expect("written");
    fs::write(photos.join(".c.part"), "two").expect("written");
    fs::create_dir(photos.join("new")).expect("a directory");
    fs::rename(photos.join(".c.part"), photos.join("new/c.txt")).expect("renamed");
    fs::write(photos.join(".hidden"), "three").expect("written");
    for n in 0..100 {
        fs::write(photos.join(format!("new/{n}")), format!("file {n}")).expect("written");
    }
    until_put(&platform, 103, "in/old/a.txt").await;
    let once = fired(&platform).await;
    assert_eq!(once.len(), 103);
    assert!(once.values().all(|times| *times == 1), "{once:?}");

    // While nobody watches, one changes and another comes.
    drop(watching);
    fs::write(photos.join("b.txt"), "one, longer").expect("written");
    fs::write(photos.join("d.txt"), "four").expect("written");
    let _watching = Watching::start(&platform, &photos);
    until_put(&platform, 104, "in/d.txt").await;
    let again = async || fired(&platform).await.get("in/b.txt") == Some(&2);
    assert!(until_holds(PATIENCE, again).await, "what changed fires again");
    let fired = fired(&platform).await;
    let twice: Vec<_> = fired.iter().filter(|(_, times)| **times != 1).collect();
    assert_eq!(twice, [(&"in/b.txt".to_owned(), &2)]);
}
