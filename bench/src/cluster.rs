//! A cluster under test: an S3 server, a Redis, a gateway and executors, each a process that ends with the benchmark.

use std::{
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    report,
    rest::Rest,
    server::{Server, binary},
};

/// A running cluster. Dropping it kills its processes.
pub struct Cluster {
    /// The gateway.
    pub gateway: Server,
    /// The executors; removing one kills it.
    pub executors: Vec<Server>,
    s3: Server,
    redis_url: String,
    redis: Redis,
    /// What executors are started with.
    executor: Vec<String>,
    /// Where they spill.
    _spill: tempfile::TempDir,
}

/// A Redis that keeps nothing on disk. Dropping it kills the process.
pub struct Redis {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
    /// It would end if nobody could read what it says.
    _out: BufReader<ChildStdout>,
}

impl Redis {
    /// Starts one on a free port, and waits until it is ready.
    pub fn start() -> Result<Self> {
        let address = free_address()?;
        let mut process = Command::new("redis-server")
            .args([
                "--port",
                &address.port().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .context("could not start redis-server")?;
        let mut out = BufReader::new(process.stdout.take().context("no output to read")?);
        let mut line = String::new();
        while !line.contains("Ready to accept connections") {
            line.clear();
            anyhow::ensure!(out.read_line(&mut line)? > 0, "redis-server ended before it was ready");
        }
        Ok(Self { address, process, _out: out })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Cluster {
    /// One gateway and `executors` executors of one slot each, their record below `dir`.
    pub fn start(dir: &Path, executors: usize) -> Result<Self> {
        Self::start_with(dir, executors, &["--memory", "1GiB"])
    }

    /// The same; what executors are given beside their slot.
    pub fn start_with(dir: &Path, executors: usize, args: &[&str]) -> Result<Self> {
        let spill = tempfile::tempdir()?;
        let mut executor = vec!["--spill".to_owned(), spill.path().display().to_string()];
        executor.extend(["--slots", "1"].iter().chain(args).map(|arg| (*arg).to_owned()));
        let redis = Redis::start()?;
        let redis_url = format!("redis://{}", redis.address);

        let beside = binary()?.with_file_name("s3-server");
        let mut s3 = Command::new(beside);
        s3.args(["--bucket", "fanfold", "--dir"]).arg(dir).stdin(Stdio::piped());
        let s3 =
            Server::start(s3.stdout(Stdio::piped()), |child| child.stdout.take().map(crate::server::boxed))?;
        let gateway = role(&s3, &redis_url, "gateway", &GATEWAY)?;
        let executors = (0..executors).map(|_| role(&s3, &redis_url, "executor", &executor));
        let executors = executors.collect::<Result<_>>()?;
        Ok(Self { gateway, executors, s3, redis_url, redis, executor, _spill: spill })
    }

    /// Of all its processes, the S3 server and Redis included.
    pub fn pids(&self) -> Vec<u32> {
        let servers = [&self.gateway, &self.s3].into_iter().chain(&self.executors);
        servers.map(Server::pid).chain([self.redis.process.id()]).collect()
    }

    /// Requests that the S3 server has seen, by method.
    pub async fn requests(&self) -> Result<serde_json::Value> {
        let mut s3 = Rest::connect(self.s3.address).await?;
        Ok(serde_json::from_slice(&s3.send("GET", "/-/requests", "", "").await?.body)?)
    }

    /// Another executor.
    pub fn add_executor(&mut self) -> Result<()> {
        self.executors.push(role(&self.s3, &self.redis_url, "executor", &self.executor)?);
        Ok(())
    }

    /// `kill -9` of the gateway, and at once another one under its name. The URL is another one.
    pub fn replace_gateway(&mut self) -> Result<()> {
        self.gateway.kill()?;
        self.gateway = role(&self.s3, &self.redis_url, "gateway", &GATEWAY)?;
        Ok(())
    }
}

/// What is measured: one process, or a cluster.
pub enum Platform {
    /// `fanfold up`.
    Up(Box<Server>),
    /// The same in processes of their own.
    Cluster(Box<Cluster>),
}

impl Platform {
    /// A cluster of so many executors, if a number is given. `args` say what functions and partitions may have: of the
    /// process, or of each executor.
    pub fn start(dir: &Path, executors: Option<usize>, args: &[&str]) -> Result<Self> {
        Ok(match executors {
            None => Self::Up(Box::new(Server::fanfold_with(dir, args)?)),
            Some(executors) => Self::Cluster(Box::new(Cluster::start_with(dir, executors, args)?)),
        })
    }

    /// Who takes requests.
    pub fn server(&self) -> &Server {
        match self {
            Self::Up(server) => server,
            Self::Cluster(cluster) => &cluster.gateway,
        }
    }

    /// Of all its processes.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Self::Up(server) => vec![server.pid()],
            Self::Cluster(cluster) => cluster.pids(),
        }
    }

    /// Those that run functions.
    pub fn workers(&self) -> Vec<u32> {
        match self {
            Self::Up(server) => vec![server.pid()],
            Self::Cluster(cluster) => cluster.executors.iter().map(Server::pid).collect(),
        }
    }

    /// Processor time of all its processes so far.
    pub fn cpu_us(&self) -> u64 {
        self.pids().into_iter().map(report::cpu_us).sum()
    }
}

const GATEWAY: [&str; 4] = ["--listen", "127.0.0.1:0", "--peer", "127.0.0.1:0"];

/// Starts a process of the cluster.
fn role(s3: &Server, redis_url: &str, role: &str, args: &[impl AsRef<std::ffi::OsStr>]) -> Result<Server> {
    let mut command = Command::new(binary()?);
    command.args([role, "--json", "--store", "s3://fanfold/bench", "--redis", redis_url, "--log", "error"]);
    command.args(args).stdout(Stdio::piped()).envs([
        ("AWS_ENDPOINT_URL", format!("http://{}", s3.address)),
        ("AWS_REGION", "us-east-1".to_owned()),
        // As with TLS, where nobody hashes what is sent.
        ("AWS_UNSIGNED_PAYLOAD", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "fanfold-tests".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "not-a-secret".to_owned()),
    ]);
    Server::start(&mut command, |child| child.stdout.take().map(crate::server::boxed))
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
