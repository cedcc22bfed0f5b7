//! Damage: a full disk, flipped bits. Detected, named, and repaired or refused; never served.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use fanfold_tests::platform::Platform;

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Flips one bit in the middle of each file under `dir` whose path contains `part`; returns how many.
fn flip(dir: &Path, part: &str) -> usize {
    let wanted = |path: &PathBuf| path.to_string_lossy().contains(part);
    let damaged: Vec<_> = files(dir).into_iter().filter(wanted).collect();
    for path in &damaged {
        let mut bytes = std::fs::read(path).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        // Files may be read-only: replace rather than open.
        std::fs::remove_file(path).expect("removable");
        std::fs::write(path, bytes).expect("writable");
    }
    damaged.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_compiled_code_is_made_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await;
    assert!(platform.terminate().success());
    assert!(flip(dir.path(), "compiled") > 0, "no compiled code in {:?}", files(dir.path()));
    let mut platform = Platform::start(dir.path());
    let answer = platform.post("/function/echo", "still right").await.expect(200);
    assert_eq!(answer.text(), "still right");
    assert!(platform.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await;
    platform.ended(&platform.invoke_async("echo", "x").await).await;
    platform.kill();
    assert!(flip(dir.path(), ".seg") > 0, "no segments in {:?}", files(dir.path()));
    let output = Command::new(fanfold_tests::platform::binary())
        .args(["up", "--json", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir.path())
        .output()
        .expect("startable");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(".seg"), "the damaged file is not named: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_result_is_never_served() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let platform = Platform::start(dir.path());
    platform.deploy("echo").await;
    let body = vec![b'r'; 2 << 20];
    let id = platform.invoke_async("echo", body.clone()).await;
    platform.ended(&id).await;
    assert!(platform.terminate().success());
    assert!(flip(dir.path(), "/part/") > 0, "no partitions in {:?}", files(dir.path()));
    let platform = Platform::start(dir.path());
    // Found either before the first byte (a problem) or while streaming (the connection breaks): not as a whole body.
    match platform.try_send("GET", &format!("/v1/invocations/{id}/output"), &[], "").await {
        Ok(answer) if answer.status == 200 => panic!("served {} damaged bytes", answer.body.len()),
        Ok(answer) => assert!(answer.text().contains("corrupt"), "{}", answer.text()),
        Err(_) => {}
    }
    platform.get("/healthz").await.expect(200);
}

/// A file system of a few megabytes, gone at the end. `None` where this user may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(megabytes: usize) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let size = format!("size={megabytes}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).status();
        mount.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_recovers() {
    let Some(disk) = SmallDisk::new(12) else {
        eprintln!("skipped: only root can mount a small file system");
        return;
    };
    let mut platform = Platform::start(&disk.0.path().join("platform"));
    platform.deploy("echo").await;
    let kept = platform.invoke_async("echo", "kept").await;
    platform.ended(&kept).await;
    let ballast = disk.0.path().join("ballast");
    // Fill what is left, to the last byte.
    let mut size = 12 << 20;
    while size > 0 {
        use std::io::Write;
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(&ballast).expect("openable");
        if file.write_all(&vec![0; size]).is_err() {
            size /= 2;
        }
    }
    let refused = platform.post("/async-function/echo", "no room").await;
    assert_eq!(refused.status, 507, "{}", refused.text());
    refused.expect_problem(507, "platform", "disk-full", "");
    platform.send("PUT", "/v1/objects/large", &[], vec![0; 1 << 20]).await.expect(507);
    // What needs no disk goes on.
    assert_eq!(platform.post("/function/echo", "alive").await.expect(200).text(), "alive");
    assert!(platform.alive());
    std::fs::remove_file(&ballast).expect("removable");
    let id = platform.invoke_async("echo", "room again").await;
    assert_eq!(platform.ended(&id).await["state"], "succeeded");
    assert_eq!(platform.get(&format!("/v1/invocations/{kept}/output")).await.expect(200).text(), "kept");
    platform.kill();
}
