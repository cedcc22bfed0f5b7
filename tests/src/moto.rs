//! A server for S3 and SNS that others wrote (moto), as a process of its own, on a free port.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use crate::platform::Http;

/// The account that everything in it belongs to.
const ACCOUNT: &str = "123456789012";

/// A running server. Dropping it kills the process.
pub struct Moto {
    url: String,
    process: Child,
    http: Http,
    /// It would end if nobody could read what it says.
    _log: BufReader<ChildStderr>,
}

impl Moto {
    /// Starts one; `None`, and a line that says so, where it is not installed.
    pub fn start() -> Option<Self> {
        let program = std::env::var_os("FANFOLD_MOTO").map(PathBuf::from).filter(|program| program.exists());
        let Some(program) = program else {
            eprintln!("skipped: moto is not installed; run the tests with `cargo xtask test`");
            return None;
        };
        let mut process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("moto starts");
        let mut log = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("Running on ") {
            line.clear();
            assert!(log.read_line(&mut line).expect("readable") > 0, "moto ended before it was ready");
        }
        let url = line.trim().rsplit(' ').next().expect("a URL").to_owned();
        let http = Client::builder(TokioExecutor::new()).build_http();
        Some(Self { url, process, http, _log: log })
    }

    /// Makes a topic that posts to a URL.
    pub async fn topic(&self, name: &str, url: &str) {
        self.ask("sns", "/", &[("Action", "CreateTopic"), ("Name", name)]).await;
        let topic = format!("arn:aws:sns:us-east-1:{ACCOUNT}:{name}");
        let subscribe =
            [("Action", "Subscribe"), ("TopicArn", &topic), ("Protocol", "http"), ("Endpoint", url)];
        self.ask("sns", "/", &subscribe).await;
    }

    /// Makes a bucket that tells a topic of new objects.
    pub async fn bucket(&self, name: &str, topic: &str) {
        self.put(&format!("/{name}"), "").await;
        let body = format!(
            "<NotificationConfiguration><TopicConfiguration><Id>told</Id>\
             <Topic>arn:aws:sns:us-east-1:{ACCOUNT}:{topic}</Topic><Event>s3:ObjectCreated:*</Event>\
             </TopicConfiguration></NotificationConfiguration>"
        );
        self.put(&format!("/{name}?notification"), &body).await;
    }

    /// Puts an object, or what else a path stands for.
    pub async fn put(&self, path: &str, body: &str) {
        self.request(Method::PUT, "s3", path, "application/xml", body.to_owned()).await;
    }

    async fn ask(&self, service: &str, path: &str, form: &[(&str, &str)]) -> String {
        let coded = |text: &str| {
            let code = |byte: u8| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            };
            text.bytes().map(code).collect::<String>()
        };
        let form: Vec<_> = form.iter().map(|(name, value)| format!("{name}={}", coded(value))).collect();
        self.request(Method::POST, service, path, "application/x-www-form-urlencoded", form.join("&")).await
    }

    /// It tells services apart by the signature's scope, and checks no signatures.
    async fn request(&self, method: Method, service: &str, path: &str, kind: &str, body: String) -> String {
        let scope = format!(
            "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x"
        );
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", scope)
            .header("content-type", kind)
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let answer = self.http.request(request).await.expect("moto answers");
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It is a child of ours, so neither can fail.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
