//! A real S3 server for a test: the `s3-server` binary of this crate as a process of its own, on a free port.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::Value;

use crate::platform::Http;

/// A running server. Dropping it kills the process; what it stored stays in its directory.
pub struct S3Server {
    endpoint: String,
    access_key_id: String,
    secret_access_key: String,
    process: Child,
    http: Http,
}

fn binary() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("s3-server")));
    beside.filter(|path| path.exists()).expect("no s3-server binary: run the tests with `cargo xtask test`")
}

impl S3Server {
    /// Starts a server over `dir` with the bucket `fanfold`. `args` are further arguments, such as `--fault 503:0.05`.
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        let mut process = Command::new(binary())
            .args(["--bucket", "fanfold", "--dir"])
            .arg(dir)
            .args(args)
            // It ends when this end of its stdin does, even if the test is killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the s3-server binary starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let ready: Value = serde_json::from_str(&line).expect("it says where it is");
        let text = |name: &str| ready[name].as_str().expect("a string").to_owned();
        let [endpoint, access_key_id, secret_access_key] =
            ["endpoint", "access_key_id", "secret_access_key"].map(text);
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { endpoint, access_key_id, secret_access_key, process, http }
    }

    /// Its URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Its process id, for signals.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The environment of a process that shall use it.
    pub fn environment(&self) -> [(&'static str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", &self.access_key_id),
            ("AWS_SECRET_ACCESS_KEY", &self.secret_access_key),
        ]
    }

    /// Replaces its faults; see the binary for how they are written. None: it is sound again. Answers how often each
    /// kind has happened.
    pub async fn set_faults(&self, faults: &[&str]) -> Value {
        self.control("PUT", "faults", &faults.join("\n")).await
    }

    /// The keys of all objects whose keys contain `part`.
    pub async fn keys(&self, part: &str) -> Vec<String> {
        let keys = self.control("GET", "keys/fanfold", "").await;
        let keys: Vec<String> = serde_json::from_value(keys).expect("a list of keys");
        keys.into_iter().filter(|key| key.contains(part)).collect()
    }

    /// Loses objects, and tells nobody.
    pub async fn lose(&self, keys: &[String]) {
        self.control("DELETE", "keys/fanfold", &keys.join("\n")).await;
    }

    async fn control(&self, method: &str, what: &str, body: &str) -> Value {
        let request = http::Request::builder().method(method).uri(format!("{}/-/{what}", self.endpoint));
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
        let answer = self.http.request(request).await.expect("the server answers");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        assert!(head.status.is_success(), "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
