//! A real `redis-server` for a test, on a free port, with nothing on disk.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, ChildStdout, Command, Stdio},
};

/// A running server. Dropping it kills the process.
pub struct Redis {
    port: u16,
    args: Vec<String>,
    running: Option<(Child, BufReader<ChildStdout>)>,
}

impl Redis {
    /// Starts one with further arguments.
    pub fn start(args: &[&str]) -> Self {
        // Nobody else takes a port that was just free: the system hands them out in turn.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let mut redis = Self { port, args, running: None };
        redis.run();
        redis
    }

    /// Starts it where it was, empty.
    pub fn run(&mut self) {
        let mut process = Command::new("redis-server")
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(&self.args)
            .stdout(Stdio::piped())
            .spawn()
            .expect(
                "no redis-server: `apt-get install redis-server`, or run the tests with `cargo xtask test`",
            );
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("Ready to accept connections") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "redis-server ended before it was ready");
        }
        self.running = Some((process, out));
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some((mut process, _)) = self.running.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs one command on it.
    pub async fn command(&self, words: &[&str]) {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).exec_async(&mut connection).await.unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
