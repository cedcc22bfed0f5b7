//! A real cluster for a test: an S3 server, a Redis, gateways and executors, each a process of its own.

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};

use crate::{
    platform::{Platform, binary},
    redis::Redis,
    s3::S3Server,
};

/// What all processes of a cluster share. Processes are started with [`Cluster::gateway`] and [`Cluster::executor`].
pub struct Cluster {
    /// The record.
    pub s3: S3Server,
    /// Who is there.
    pub redis: Redis,
    dir: tempfile::TempDir,
    /// What processes find in their environment.
    environment: Vec<(&'static str, PathBuf)>,
}

impl Cluster {
    /// An S3 server and a Redis, both empty.
    pub fn start() -> Self {
        Self::with(Vec::new())
    }

    /// The same, for processes with something in their environment.
    pub fn with(environment: impl Into<Vec<(&'static str, PathBuf)>>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let s3 = S3Server::start(&dir.path().join("s3"), &[]);
        Self { s3, redis: Redis::start(), dir, environment: environment.into() }
    }

    /// Where the S3 server keeps its files.
    pub fn s3_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("s3")
    }

    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(binary());
        command.args([role, "--json", "--store", "s3://fanfold/test", "--redis", &self.redis.url()]);
        command.args(["--log", "warn"]).envs(self.s3.environment()).envs(self.environment.iter().cloned());
        command
    }

    /// Starts a gateway and waits until it is ready.
    pub fn gateway(&self, name: &str) -> Platform {
        self.try_gateway(name).unwrap_or_else(|status| panic!("the gateway ended with {status}"))
    }

    /// The same; where the process ends before it is ready, its status.
    ///
    /// # Errors
    /// The exit status.
    pub fn try_gateway(&self, name: &str) -> Result<Platform, ExitStatus> {
        let mut command = self.command("gateway");
        command.args(["--name", name, "--listen", "127.0.0.1:0", "--peer", "127.0.0.1:0"]);
        Platform::spawn(command, Path::new("/"))
    }

    /// Starts an executor and waits until it is ready; it joins gateways within a second or so.
    pub fn executor(&self, name: &str, args: &[&str]) -> Platform {
        let mut command = self.command("executor");
        command.args(["--name", name, "--slots", "1", "--memory", "1GiB"]).args(args);
        spawn(command)
    }

    /// Starts an executor with another environment than the cluster's.
    pub fn stranger(&self, environment: &[(&str, PathBuf)]) -> Stranger {
        let mut command = self.command("executor");
        self.environment.iter().for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.args(["--slots", "1", "--memory", "1GiB"]).envs(environment.iter().cloned());
        let mut process =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the fanfold binary starts");
        let log = BufReader::new(process.stderr.take().expect("piped")).lines();
        Stranger { process, log }
    }
}

/// A process that does not get as far as to be ready, and its log. Dropping it kills it.
pub struct Stranger {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Stranger {
    /// Waits for a line of the log with all of `parts`; the test's own limit of time ends it where there is none.
    pub fn says(&mut self, parts: &[&str]) {
        let mut log = self.log.by_ref().map(|line| line.expect("readable"));
        let said = log.find(|line| parts.iter().all(|part| line.contains(part)));
        assert!(said.is_some(), "it ended and did not say {parts:?}");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(command: Command) -> Platform {
    Platform::spawn(command, Path::new("/"))
        .unwrap_or_else(|status| panic!("the process ended with {status}"))
}

/// Waits until a gateway has `count` executors.
pub async fn joined(gateway: &Platform, count: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let metrics = gateway.get("/metrics").await.text();
        let here = metrics.lines().filter(|line| line.starts_with("fanfold_executor_cpu_millis{")).count();
        if here == count {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{here} executors after 20 s, wanted {count}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
