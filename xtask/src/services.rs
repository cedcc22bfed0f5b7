//! `cargo xtask services`: an S3 server and a Redis on this machine, to try a cluster with, and what to export to use them.
//!
//! Both run until `cargo xtask services stop`. The S3 server is the one the tests use; it keeps its objects in the target
//! directory. Everything but the exports goes to stderr, so that a shell can `eval` the output.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{build, packages, shell};

/// The store that the cluster shall use.
const STORE: &str = "s3://fanfold/cluster";

/// Starts both, or stops them.
pub fn run(args: &[String]) -> Result<()> {
    match args {
        [] => start(),
        [word] if word == "stop" => stop(),
        _ => bail!("usage: eval \"$(cargo xtask services)\", and `cargo xtask services stop`"),
    }
}

fn start() -> Result<()> {
    let dir = dir();
    if pids(&dir).into_iter().any(alive) {
        print!("{}", std::fs::read_to_string(dir.join("exports")).context("what runs is not known")?);
        return Ok(());
    }
    packages::ensure_redis()?;
    let built = build::all()?;
    std::fs::create_dir_all(&dir)?;
    let redis = start_redis(&dir)?;
    let s3 = start_s3(&dir)?;
    let text = |name: &str| s3[name].as_str().unwrap_or_default().to_owned();
    let bin = built.binary.parent().unwrap_or(Path::new(".")).display().to_string();
    let exports = [
        ("AWS_ENDPOINT_URL", text("endpoint")),
        ("AWS_ACCESS_KEY_ID", text("access_key_id")),
        ("AWS_SECRET_ACCESS_KEY", text("secret_access_key")),
        ("AWS_REGION", String::from("us-east-1")),
        ("FANFOLD_STORE", STORE.to_owned()),
        ("FANFOLD_REDIS", redis),
    ];
    let mut bootstrap = Command::new(&built.binary);
    bootstrap.args(["infra", "bootstrap"]).envs(exports.iter().cloned()).stdout(std::io::stderr());
    shell::run(&mut bootstrap)?;
    let mut lines: String =
        exports.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
    lines.push_str(&format!("export PATH='{bin}':\"$PATH\"\n"));
    std::fs::write(dir.join("exports"), &lines)?;
    print!("{lines}");
    Ok(())
}

/// Its URL.
fn start_redis(dir: &Path) -> Result<String> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let pid = dir.join("redis.pid");
    let mut redis = Command::new("redis-server");
    redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--daemonize", "yes", "--pidfile"]);
    shell::run(redis.arg(&pid).arg("--dir").arg(dir).stdout(Stdio::null()))?;
    Ok(format!("redis://127.0.0.1:{port}"))
}

/// What it says of itself.
fn start_s3(dir: &Path) -> Result<Value> {
    let mut s3 = Command::new(shell::target_dir().join("release/s3-server"));
    s3.arg("--dir").arg(dir.join("s3")).args(["--until", "killed"]);
    let mut process = s3.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("it was piped")?).read_line(&mut line)?;
    let told = serde_json::from_str(&line).context("the S3 server did not start")?;
    std::fs::write(dir.join("s3.pid"), process.id().to_string())?;
    Ok(told)
}

fn stop() -> Result<()> {
    let dir = dir();
    for pid in pids(&dir).into_iter().filter(|pid| alive(*pid)) {
        shell::run(Command::new("kill").arg(pid.to_string()))?;
    }
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

fn dir() -> PathBuf {
    shell::target_dir().join("services")
}

fn pids(dir: &Path) -> Vec<u32> {
    let read = |name| std::fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok();
    ["redis.pid", "s3.pid"].into_iter().filter_map(read).collect()
}

fn alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
