//! A real cluster for a test: an S3 server, a Redis, gateways and executors, each a process of its own.

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use fanfold_store::{Credentials, S3Options, Store};

use crate::{
    platform::{Platform, binary},
    redis::Redis,
    s3::S3Server,
};

/// How long a test waits for what takes a second or so.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What all processes of a cluster share. Processes are started with [`Cluster::gateway`] and [`Cluster::executor`].
pub struct Cluster {
    /// The record.
    pub s3: S3Server,
    /// Who is there.
    pub redis: Redis,
    _dir: tempfile::TempDir,
    /// What every process finds in its environment.
    environment: Vec<(&'static str, PathBuf)>,
}

/// How a process differs from the others, or how it reaches them.
#[derive(Clone, Copy, Default)]
pub struct Start<'a> {
    /// Further arguments.
    pub args: &'a [&'a str],
    /// Further environment, such as a failpoint or another `AWS_ENDPOINT_URL`.
    pub env: &'a [(&'a str, &'a str)],
    /// Another address of Redis, as `host:port`.
    pub redis: Option<&'a str>,
    /// The address of a gateway's peer port, as `host:port`; then Redis is not asked.
    pub gateway: Option<&'a str>,
}

impl Cluster {
    /// An S3 server and a Redis, both empty.
    pub fn start() -> Self {
        Self::over(|_| Redis::start(), Vec::new())
    }

    /// The same, for processes with something in their environment.
    pub fn with(environment: impl Into<Vec<(&'static str, PathBuf)>>) -> Self {
        Self::over(|_| Redis::start(), environment.into())
    }

    /// The same; Redis writes every change to a log, which the test can cut.
    pub fn start_logged() -> Self {
        Self::over(|dir| Redis::start_logged(&dir.join("redis")), Vec::new())
    }

    fn over(redis: impl Fn(&Path) -> Redis, environment: Vec<(&'static str, PathBuf)>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let s3 = S3Server::start(&dir.path().join("s3"), &[]);
        Self { s3, redis: redis(dir.path()), _dir: dir, environment }
    }

    /// The command of a process, for tests that want to run it in their own way.
    pub fn command(&self, role: &str, name: &str, start: Start<'_>) -> Command {
        let mut command = Command::new(binary());
        command.args([role, "--json", "--store", "s3://fanfold/test", "--log", "warn", "--name", name]);
        match start.gateway {
            Some(gateway) => command.args(["--gateway", gateway]),
            None => {
                let other = start.redis.map(|address| format!("redis://{address}"));
                command.args(["--redis", &other.unwrap_or_else(|| self.redis.url())])
            }
        };
        match role {
            "gateway" => command.args(["--listen", "127.0.0.1:0", "--peer", "127.0.0.1:0"]),
            _ if start.args.contains(&"--slots") => command.args(["--memory", "1GiB"]),
            _ => command.args(["--slots", "1", "--memory", "1GiB"]),
        };
        command.args(start.args).env_remove("FANFOLD_TOKEN").env_remove("FANFOLD_REDIS");
        command
            .envs(self.s3.environment())
            .envs(self.environment.iter().cloned())
            .envs(start.env.iter().copied());
        command
    }

    /// Starts a gateway and waits until it is ready.
    pub fn gateway(&self, name: &str) -> Platform {
        self.gateway_with(name, Start::default())
    }

    /// The same with something special.
    pub fn gateway_with(&self, name: &str, start: Start<'_>) -> Platform {
        spawn(self.command("gateway", name, start))
    }

    /// The same; where the process ends before it is ready, its status.
    ///
    /// # Errors
    /// The exit status.
    pub fn try_gateway(&self, name: &str) -> Result<Platform, ExitStatus> {
        Platform::spawn(self.command("gateway", name, Start::default()), Path::new("/"))
    }

    /// Starts an executor and waits until it is ready; it joins gateways within a second or so.
    pub fn executor(&self, name: &str, args: &[&str]) -> Platform {
        self.executor_with(name, Start { args, ..Start::default() })
    }

    /// The same with something special.
    pub fn executor_with(&self, name: &str, start: Start<'_>) -> Platform {
        spawn(self.command("executor", name, start))
    }

    /// The store of all its processes, as another one of them sees it.
    pub async fn store(&self) -> Store {
        let [endpoint, _, access_key_id, secret_access_key] =
            self.s3.environment().map(|(_, value)| value.to_owned());
        let credentials = Some(Credentials { access_key_id, secret_access_key });
        let options = S3Options { endpoint: Some(endpoint), credentials, ..S3Options::default() };
        let url = "s3://fanfold/test".parse().expect("a URL");
        Store::open(&url, &options).await.expect("the store of the cluster")
    }

    /// Starts an executor with another environment than the cluster's.
    pub fn stranger(&self, environment: &[(&str, PathBuf)]) -> Stranger {
        let mut command = self.command("executor", "stranger", Start::default());
        for (name, _) in &self.environment {
            command.env_remove(name);
        }
        command.envs(environment.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the fanfold binary starts");
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
    let mut here = 0;
    let counted = until(PATIENCE, async || {
        let metrics = gateway.get("/metrics").await.text();
        here = metrics.lines().filter(|line| line.starts_with("fanfold_executor_cpu_millis{")).count();
        here == count
    });
    assert!(counted.await, "{here} executors after {PATIENCE:?}, wanted {count}");
}

/// Asks again and again until it is so; `false`: it was not in time.
pub async fn until(patience: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !holds().await {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}
