//! A server for S3, SQS and SNS that others wrote (moto), as a process of its own, on a free port.

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

    /// Makes a queue, which gives a message again a second after it was received and not deleted; its URL.
    pub async fn queue(&self, name: &str) -> String {
        let again = [("Attribute.1.Name", "VisibilityTimeout"), ("Attribute.1.Value", "1")];
        self.ask("sqs", "/", &[&[("Action", "CreateQueue"), ("QueueName", name)], &again[..]].concat()).await;
        format!("{}/{ACCOUNT}/{name}", self.url)
    }

    /// Puts a message into a queue.
    pub async fn send(&self, queue: &str, body: &str) {
        let path = queue.strip_prefix(&self.url).expect("a queue of this server");
        self.ask("sqs", path, &[("Action", "SendMessage"), ("MessageBody", body)]).await;
    }

    /// How many messages a queue has, those included that were received and not deleted.
    pub async fn messages(&self, queue: &str) -> u64 {
        let path = queue.strip_prefix(&self.url).expect("a queue of this server");
        let attributes = [("Action", "GetQueueAttributes"), ("AttributeName.1", "All")];
        let answer = self.ask("sqs", path, &attributes).await;
        let of = |name: &str| -> u64 {
            let (_, rest) = answer.split_once(&format!("<Name>{name}</Name><Value>")).expect("an attribute");
            rest.split('<').next().and_then(|count| count.parse().ok()).expect("a number")
        };
        of("ApproximateNumberOfMessages") + of("ApproximateNumberOfMessagesNotVisible")
    }

    /// Makes a topic that posts to a URL.
    pub async fn topic(&self, name: &str, url: &str) {
        self.ask("sns", "/", &[("Action", "CreateTopic"), ("Name", name)]).await;
        let topic = format!("arn:aws:sns:us-east-1:{ACCOUNT}:{name}");
        let subscribe =
            [("Action", "Subscribe"), ("TopicArn", &topic), ("Protocol", "http"), ("Endpoint", url)];
        self.ask("sns", "/", &subscribe).await;
    }

    /// Makes a bucket that tells a queue and a topic of new objects.
    pub async fn bucket(&self, name: &str, queue: &str, topic: &str) {
        self.put(&format!("/{name}"), "").await;
        let of = |kind: &str, service: &str, to: &str| {
            format!(
                "<{kind}Configuration><Id>{to}</Id><{kind}>arn:aws:{service}:us-east-1:{ACCOUNT}:{to}</{kind}>\
                 <Event>s3:ObjectCreated:*</Event></{kind}Configuration>"
            )
        };
        let (queue, topic) = (of("Queue", "sqs", queue), of("Topic", "sns", topic));
        let body = format!("<NotificationConfiguration>{queue}{topic}</NotificationConfiguration>");
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
