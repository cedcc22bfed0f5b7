//! A real `redis-server` for a test, on a free port: with nothing on disk, or with a log that a test can cut.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

/// A running server. Dropping it kills the process.
pub struct Redis {
    port: u16,
    /// Where its log is.
    dir: Option<PathBuf>,
    process: Child,
    /// It would end if nobody could read what it says.
    _out: BufReader<ChildStdout>,
}

impl Redis {
    /// Starts one that keeps nothing.
    pub fn start() -> Self {
        Self::launch(free_port(), None)
    }

    /// Starts one that writes every change to a log in `dir`.
    pub fn start_logged(dir: &Path) -> Self {
        fs::create_dir_all(dir).expect("a folder");
        Self::launch(free_port(), Some(dir.to_owned()))
    }

    fn launch(port: u16, dir: Option<PathBuf>) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        match &dir {
            Some(dir) => command.args(["--appendonly", "yes", "--appendfsync", "no", "--dir"]).arg(dir),
            None => command.args(["--appendonly", "no"]),
        };
        let mut process = command.stdout(Stdio::piped()).spawn().expect(
            "no redis-server: `apt-get install redis-server`, or run the tests with `cargo xtask test`",
        );
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("Ready to accept connections") {
            line.clear();
            assert!(
                out.read_line(&mut line).expect("readable") > 0,
                "redis-server ended before it was ready"
            );
        }
        Self { port, dir, process, _out: out }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its process id, for signals.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Forgets everything.
    pub fn flush(&self) {
        assert_eq!(self.command("FLUSHALL", 5), b"+OK\r\n");
    }

    /// How many keys it has.
    pub fn keys(&self) -> u64 {
        let answer = self.command("DBSIZE", 3);
        String::from_utf8_lossy(&answer)
            .trim_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .expect("a number")
    }

    /// Adds an entry of one field to a stream.
    pub fn add(&self, stream: &str, field: &str, value: &str) {
        assert!(self.line(&format!("XADD {stream} * {field} {value}")).starts_with('$'));
    }

    /// Entries of a stream that a group was given and has not acknowledged.
    pub fn pending(&self, stream: &str, group: &str) -> u64 {
        let mut stream = self.ask(&format!("XPENDING {stream} {group}"));
        let mut line = String::new();
        while !line.starts_with(':') {
            line.clear();
            assert!(stream.read_line(&mut line).expect("readable") > 0 && !line.starts_with('-'), "{line}");
        }
        line.trim().trim_start_matches(':').parse().expect("a number")
    }

    /// The first line of an answer.
    fn line(&self, command: &str) -> String {
        let mut line = String::new();
        self.ask(command).read_line(&mut line).expect("readable");
        line
    }

    fn ask(&self, command: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("redis listens");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("writable");
        BufReader::new(stream)
    }

    fn command(&self, command: &str, bytes: usize) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("redis listens");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("writable");
        let mut answer = vec![0; bytes];
        stream.read_exact(&mut answer).expect("readable");
        answer
    }

    /// How long its log is now.
    pub fn log_bytes(&self) -> u64 {
        self.log().metadata().expect("a file").len()
    }

    /// Kills it, cuts its log to what it was when it had `bytes`, and starts it again on the same port: what a crash of its
    /// machine, or a failover to a replica that was behind, leaves.
    pub fn lose_after(&mut self, bytes: u64) {
        self.process.kill().expect("killable");
        self.process.wait().expect("a child of ours");
        let log = self.log();
        log.set_len(bytes.min(log.metadata().expect("a file").len())).expect("a file that can be cut");
        drop(log);
        // Replacing it kills the process that this is about, which is gone.
        *self = Self::launch(self.port, self.dir.clone());
    }

    /// Kills it and leaves its port without anybody.
    pub fn kill(&mut self) {
        self.process.kill().expect("killable");
        self.process.wait().expect("a child of ours");
    }

    /// Starts it again on the same port after [`Redis::kill`].
    pub fn restart(&mut self) {
        *self = Self::launch(self.port, self.dir.clone());
    }

    /// The part of its log that grows.
    fn log(&self) -> File {
        let folder = self.dir.as_ref().expect("a server with a log").join("appendonlydir");
        let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
        let growing = files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max();
        OpenOptions::new().write(true).read(true).open(growing.expect("a log")).expect("a log")
    }
}

/// Nobody else takes a port that was just free: the system hands them out in turn.
fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    free.expect("a free port").port()
}

impl Drop for Redis {
    fn drop(&mut self) {
        // One that is gone already needs no killing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
