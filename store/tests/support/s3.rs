//! A real S3 server for the suites: the `s3-server` binary of the `tests` crate, one process per test; or, to try the
//! suites on any other, the one that `FANFOLD_TEST_S3` names (its keys from the usual `AWS_*` variables).

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use fanfold_store::{Bucket, Credentials, S3Options, Store, StoreUrl, bootstrap};
use tempfile::TempDir;

/// Where the stores of one test are. Dropping it stops the server.
pub struct Server {
    pub options: S3Options,
    bucket: String,
    running: Option<(Child, TempDir)>,
}

impl Server {
    /// A server without faults.
    pub async fn start() -> Self {
        Self::with(&[]).await
    }

    /// A server with arguments of its own, such as `--fault 503:0.1`.
    pub async fn with(args: &[&str]) -> Self {
        if let Ok(endpoint) = std::env::var("FANFOLD_TEST_S3") {
            let server = Self {
                options: S3Options { endpoint: Some(endpoint), ..S3Options::default() },
                bucket: format!("fanfold-{}", uuid::Uuid::now_v7()),
                running: None,
            };
            bootstrap(&server.place(""), &server.options).await.unwrap();
            return server;
        }
        let dir = tempfile::tempdir().unwrap();
        let binary = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("s3-server");
        assert!(binary.exists(), "no s3-server binary: run the tests with `cargo xtask test`");
        let mut process = Command::new(binary)
            .args(["--bucket", "fanfold", "--dir"])
            .arg(dir.path())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        let credentials = Credentials {
            access_key_id: text("access_key_id"),
            secret_access_key: text("secret_access_key"),
        };
        let options = S3Options {
            endpoint: Some(text("endpoint")),
            credentials: Some(credentials),
            retry_for: Duration::from_secs(5),
            ..S3Options::default()
        };
        Self { options, bucket: "fanfold".to_owned(), running: Some((process, dir)) }
    }

    /// The bucket, or what is below a prefix of it.
    pub fn place(&self, prefix: &str) -> Bucket {
        Bucket { name: self.bucket.clone(), prefix: prefix.to_owned() }
    }

    /// A store in it; each handle is like another process.
    pub async fn open(&self, prefix: &str) -> Store {
        Store::open(&StoreUrl::S3(self.place(prefix)), &self.options).await.unwrap()
    }

    /// Parts of uploads that were neither completed nor aborted; `None` of a server that is not ours.
    pub fn unfinished_parts(&self) -> Option<usize> {
        let (_, dir) = self.running.as_ref()?;
        let files = std::fs::read_dir(dir.path().join(&self.bucket)).unwrap();
        Some(
            files
                .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "part"))
                .count(),
        )
    }

    /// How often faults have happened, as the server tells it.
    pub fn faults_happened(&self) -> u64 {
        let address = self.options.endpoint.as_deref().unwrap().trim_start_matches("http://");
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(b"GET /-/faults HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let json = answer.split("\r\n\r\n").nth(1).unwrap();
        let counts: std::collections::BTreeMap<String, u64> = serde_json::from_str(json).unwrap();
        counts.values().sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((process, _dir)) = &mut self.running {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
