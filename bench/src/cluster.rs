//! A cluster under test: an S3 server, a Redis, a gateway and executors, each a process that ends with the benchmark.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::server::{Server, binary};

/// A running cluster. Dropping it kills its processes.
pub struct Cluster {
    /// The gateway.
    pub gateway: Server,
    _executors: Vec<Server>,
    _s3: Server,
    _redis: Redis,
}

struct Redis {
    process: std::process::Child,
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
        let free = free_address()?;
        let redis = Command::new("redis-server")
            .args([
                "--port",
                &free.port().to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::null())
            .spawn()
            .context("could not start redis-server")?;
        let redis_url = format!("redis://{free}");
        let redis = Redis { process: redis };
        wait_for(free)?;

        let beside = binary()?.with_file_name("s3-server");
        let mut s3 = Command::new(beside);
        s3.args(["--bucket", "fanfold", "--dir"]).arg(dir).stdin(Stdio::piped());
        let s3 =
            Server::start(s3.stdout(Stdio::piped()), |child| child.stdout.take().map(crate::server::boxed))?;
        let role = |role: &str, args: &[&str]| -> Result<Server> {
            let mut command = Command::new(binary()?);
            command.args([
                role,
                "--json",
                "--store",
                "s3://fanfold/bench",
                "--redis",
                &redis_url,
                "--log",
                "error",
            ]);
            command.args(args).stdout(Stdio::piped()).envs([
                ("AWS_ENDPOINT_URL", format!("http://{}", s3.address)),
                ("AWS_REGION", "us-east-1".to_owned()),
                ("AWS_ACCESS_KEY_ID", "fanfold-tests".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "not-a-secret".to_owned()),
            ]);
            Server::start(&mut command, |child| child.stdout.take().map(crate::server::boxed))
        };
        let gateway = role("gateway", &["--listen", "127.0.0.1:0", "--peer", "127.0.0.1:0"])?;
        let executors = (0..executors).map(|_| role("executor", &["--slots", "1", "--memory", "1GiB"]));
        let executors = executors.collect::<Result<_>>()?;
        Ok(Self { gateway, _executors: executors, _s3: s3, _redis: redis })
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn wait_for(address: SocketAddr) -> Result<()> {
    for _ in 0..500 {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    anyhow::bail!("nothing listens on {address} after five seconds")
}
