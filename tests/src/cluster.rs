//! A real cluster for a test: an S3 server, a Redis, gateways and executors, each a process of its own.

use std::{
    path::Path,
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

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
        Self::with(|_| Redis::start())
    }

    /// The same; Redis writes every change to a log, which the test can cut.
    pub fn start_logged() -> Self {
        Self::with(|dir| Redis::start_logged(&dir.join("redis")))
    }

    fn with(redis: impl Fn(&Path) -> Redis) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let s3 = S3Server::start(&dir.path().join("s3"), &[]);
        Self { s3, redis: redis(dir.path()), _dir: dir }
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
            _ => command.args(["--slots", "1", "--memory", "1GiB"]),
        };
        command.args(start.args).env_remove("FANFOLD_TOKEN").env_remove("FANFOLD_REDIS");
        command.envs(self.s3.environment()).envs(start.env.iter().copied());
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
