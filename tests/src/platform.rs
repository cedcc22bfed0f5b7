//! A real platform for a test: the `fanfold` binary as a process of its own, on a free port, stopped by its own pid.
//!
//! Tests talk to it with raw HTTP, so that they see what any client would see.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use crate::signal::{self, Stopped};

/// The HTTP client of the tests.
pub type Http = Client<HttpConnector, Full<Bytes>>;

/// A running `fanfold up`. Dropping it kills the process.
pub struct Platform {
    url: String,
    ready: Value,
    dir: PathBuf,
    process: Child,
    http: Http,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("no JSON ({e}): {} {}", self.status, self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts the status; shows the body where it is another one.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts that this is the problem `kind`/`code` and that its detail contains `part`.
    pub fn expect_problem(self, status: u16, kind: &str, code: &str, part: &str) -> Self {
        let answer = self.expect(status);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        let problem = answer.json();
        assert_eq!(
            (problem["kind"].as_str(), problem["code"].as_str()),
            (Some(kind), Some(code)),
            "{problem}"
        );
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(part)), "{problem}");
        answer
    }
}

/// The `fanfold` binary under test.
pub fn binary() -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("fanfold"));
    let found = std::env::var_os("FANFOLD_BIN").map(PathBuf::from).or_else(beside);
    found.filter(|path| path.exists()).expect("no fanfold binary: run the tests with `cargo xtask test`")
}

/// The folder of this crate. What the runner says now, not what cargo said when this was built: clones share a target
/// directory.
pub fn crate_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// The component of one of our functions (`functions/<name>`).
pub fn component(name: &str) -> PathBuf {
    let built =
        || Some(std::env::current_exe().ok()?.ancestors().nth(3)?.join("functions/wasm32-wasip2/release"));
    let folder = std::env::var_os("FANFOLD_COMPONENTS").map(PathBuf::from).or_else(built);
    let path = folder.expect("no components").join(format!("{}.wasm", name.replace('-', "_")));
    assert!(path.exists(), "{} is missing: run the tests with `cargo xtask test`", path.display());
    path
}

impl Platform {
    /// Starts a platform on `dir` and waits until it says that it is ready.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    /// The same with further arguments for `fanfold up`.
    pub fn start_with(dir: &Path, args: &[&str]) -> Self {
        Self::try_start(dir, args).unwrap_or_else(|status| panic!("`fanfold up` ended with {status}"))
    }

    /// The same; where the process ends before it is ready, its status.
    ///
    /// # Errors
    /// The exit status.
    pub fn try_start(dir: &Path, args: &[&str]) -> Result<Self, ExitStatus> {
        let mut command = Command::new(binary());
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(dir).args(args);
        Self::spawn(command, dir)
    }

    /// Starts a process that says where it serves REST, as JSON, in its first line; where it ends before that, its status.
    ///
    /// # Errors
    /// The exit status.
    pub fn spawn(mut command: Command, dir: &Path) -> Result<Self, ExitStatus> {
        let mut process = command
            .env_remove("FANFOLD_TOKEN")
            .env_remove("FANFOLD_REDIS")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the fanfold binary starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            return Err(process.wait().expect("a child of ours"));
        };
        let url = ready["url"].as_str().unwrap_or_default().to_owned();
        let http = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { url, ready, dir: dir.to_path_buf(), process, http })
    }

    /// What it said when it was ready.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Its address, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether the process still runs.
    pub fn alive(&mut self) -> bool {
        self.process.try_wait().expect("a child of ours").is_none()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        self.process.kill().expect("killable");
        self.process.wait().expect("a child of ours");
    }

    /// Waits until the process ends by itself, for as long as the runner lets a test run.
    pub fn wait(mut self) -> ExitStatus {
        self.process.wait().expect("a child of ours")
    }

    /// The process does not move until the answer is dropped.
    pub fn stopped(&self) -> Stopped {
        Stopped::new(self.pid())
    }

    /// `SIGTERM`, and waits for the end it chooses.
    pub fn terminate(mut self) -> ExitStatus {
        signal::send(self.pid(), "TERM");
        self.process.wait().expect("a child of ours")
    }

    /// The `fanfold` command against this platform.
    pub fn cli(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).env("FANFOLD_URL", &self.url).env_remove("FANFOLD_TOKEN");
        command
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_send(method, path, headers, body).await.unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    /// The same; an error where there was no whole answer.
    ///
    /// # Errors
    /// What the HTTP client says.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let mut request = http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.http.request(request.body(Full::new(body.into()))?).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], Bytes::new()).await
    }

    /// `POST`.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send("POST", path, &[], body).await
    }

    /// Deploys a component under a manifest.
    pub async fn deploy_bytes(&self, name: &str, manifest: &str, component: &[u8]) -> Answer {
        let boundary = "fanfold-test-boundary";
        let mut body = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"manifest\"\r\n\r\n{manifest}\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"component\"; filename=\"c.wasm\"\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(component);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let kind = format!("multipart/form-data; boundary={boundary}");
        let path = format!("/v1/functions/{name}");
        self.send("PUT", &path, &[("content-type", &kind)], body).await
    }

    /// Deploys one of our functions under its own manifest.
    pub async fn deploy(&self, name: &str) -> Answer {
        let folder = crate_folder().join("../functions").join(name);
        self.deploy_as(name, &std::fs::read_to_string(folder.join("fanfold.toml")).expect("a manifest")).await
    }

    /// Deploys one of our functions under another manifest.
    pub async fn deploy_as(&self, name: &str, manifest: &str) -> Answer {
        let bytes = std::fs::read(component(name)).expect("a component");
        self.deploy_bytes(name, manifest, &bytes).await.expect(201)
    }

    /// Invokes asynchronously; returns the id.
    pub async fn invoke_async(&self, function: &str, body: impl Into<Bytes>) -> String {
        let accepted = self.post(&format!("/async-function/{function}"), body).await.expect(202);
        accepted.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Waits until an invocation has ended; returns its view.
    pub async fn ended(&self, id: &str) -> Value {
        for _ in 0..20 {
            let view = self.get(&format!("/v1/invocations/{id}?wait=30s")).await.expect(200).json();
            if matches!(view["state"].as_str(), Some("succeeded" | "failed" | "cancelled")) {
                return view;
            }
        }
        panic!("invocation {id} did not end in ten minutes");
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
