//! A real `redis-server` for a test, on a free port, with nothing on disk.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

/// A running server. Dropping it kills the process.
pub struct Redis {
    port: u16,
    process: Child,
}

impl Redis {
    /// Starts one.
    pub fn start() -> Self {
        // Nobody else takes a port that was just free: the system hands them out in turn.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.expect("a free port").port();
        let mut process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::piped())
            .spawn()
            .expect(
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
        Self { port, process }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Forgets everything.
    pub fn flush(&self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("redis listens");
        stream.write_all(b"FLUSHALL\r\n").expect("writable");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).expect("readable");
        assert_eq!(&answer, b"+OK\r\n");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // One that is gone already needs no killing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
