//! Calling functions: at once with the reply in hand, or accepted now and run later.

use bytes::Bytes;
use fanfold_protocol::{Digest, JobId, rest::AcceptedView};
use futures::TryStreamExt as _;
use reqwest::{
    Method, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use crate::{
    ByteStream, Client, Error, Invocation, Upload,
    request::{Body, Repeat, Request, accept_reply, new_key},
};

/// Names the version that ran.
const VERSION: HeaderName = HeaderName::from_static("fanfold-version");
/// `cold` or `warm`.
const START: HeaderName = HeaderName::from_static("fanfold-start");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A call of a function, being put together. Made by [`Client::call`].
#[derive(Debug)]
#[must_use = "a call does nothing until it is sent"]
pub struct Call {
    client: Client,
    /// `name`, `name:alias` or `name:version`.
    function: String,
    path: Option<String>,
    query: Vec<(&'static str, String)>,
    method: Method,
    headers: HeaderMap,
    key: Option<HeaderValue>,
    body: Option<Upload>,
    /// The first thing that was wrong with an argument; told when the call is sent.
    refused: Option<Error>,
}

/// A function's reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status, headers, version and timing.
    pub head: Head,
    /// The body.
    pub body: Bytes,
}

/// A function's reply whose body is still arriving.
pub struct Streamed {
    /// Status, headers, version and timing.
    pub head: Head,
    /// The body.
    pub body: ByteStream,
}

/// What comes before a reply's body.
#[derive(Clone, Debug)]
pub struct Head {
    /// For an HTTP function, whatever it chose, failures included. Otherwise 200.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The version that ran.
    pub version: Option<Digest>,
    /// The call's id, under which its logs can be read for a while.
    pub invocation: Option<JobId>,
    /// How long the steps before the reply took, as the gateway measured them.
    pub timing: Timing,
}

/// Steps of a call in microseconds; `None` where the gateway did not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// Whether the compiled code had to be loaded first.
    pub cold: Option<bool>,
    /// Waiting for admission.
    pub queue_us: Option<u64>,
    /// Loading or compiling the code.
    pub compile_us: Option<u64>,
    /// Making the instance.
    pub instantiate_us: Option<u64>,
    /// From the first instruction to the reply's head.
    pub run_us: Option<u64>,
}

impl Client {
    /// Calls `function` (`name`, `name:alias` or `name:version`) with `body` and waits for its reply. Sent again
    /// only where it is certain that the function did not run; [`Call::idempotency_key`] lifts that.
    ///
    /// # Errors
    /// `guest` and `limit` where the function failed, `overloaded` where its queue is full.
    pub async fn invoke(&self, function: &str, body: impl Into<Upload>) -> Result<Reply, Error> {
        self.call(function).body(body).send().await
    }

    /// Has `function` called with `body` later. When this returns, the invocation is recorded and will run, whatever
    /// happens to this process or to the gateway.
    ///
    /// # Errors
    /// `not-found` for an unknown function; `overloaded`, and then nothing was recorded.
    pub async fn invoke_async(&self, function: &str, body: impl Into<Upload>) -> Result<Invocation, Error> {
        self.call(function).body(body).submit().await
    }

    /// Puts a call of `function` (`name`, `name:alias` or `name:version`) together.
    pub fn call(&self, function: &str) -> Call {
        Call {
            client: self.clone(),
            function: function.to_owned(),
            path: None,
            query: Vec::new(),
            method: Method::POST,
            headers: HeaderMap::new(),
            key: None,
            body: None,
            refused: None,
        }
    }
}

impl Call {
    /// The request body.
    pub fn body(mut self, body: impl Into<Upload>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The method; `POST` unless said otherwise. For HTTP functions.
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Path and query below the function's own route, such as `/users?page=2`. For HTTP functions.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.trim_start_matches('/').to_owned());
        self
    }

    /// Which entry of a task function; its main one unless said otherwise.
    pub fn entry(mut self, entry: &str) -> Self {
        self.query.push(("entry", entry.to_owned()));
        self
    }

    /// One more command-line argument. For programs.
    pub fn arg(mut self, arg: &str) -> Self {
        self.query.push(("arg", arg.to_owned()));
        self
    }

    /// A request header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => {
                self.headers.append(name, value);
            }
            _ => self.refuse(format!("`{name}: {value}` is not a header")),
        }
        self
    }

    /// The media type of the body.
    pub fn content_type(mut self, media_type: &str) -> Self {
        self.headers.remove(CONTENT_TYPE);
        self.header("content-type", media_type)
    }

    /// Names this call, so that however often it is sent, it is run once and answered alike for 24 hours.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        match HeaderValue::try_from(key) {
            Ok(value) => self.key = Some(value),
            Err(_) => self.refuse(format!("`{}` is not an idempotency key", key.escape_debug())),
        }
        self
    }

    /// Runs the function and reads its reply whole.
    ///
    /// # Errors
    /// As for [`Client::invoke`].
    pub async fn send(self) -> Result<Reply, Error> {
        let Streamed { head, body } = self.stream().await?;
        let mut chunks: Vec<Bytes> = body.try_collect().await?;
        let body = if chunks.len() == 1 { chunks.swap_remove(0) } else { chunks.concat().into() };
        Ok(Reply { head, body })
    }

    /// Runs the function and hands its reply out as it comes.
    ///
    /// # Errors
    /// As for [`Client::invoke`].
    pub async fn stream(self) -> Result<Streamed, Error> {
        let (client, request) = self.request("function")?;
        let reply = client.perform(&request, accept_reply).await?;
        let version = text(&reply.headers, &VERSION).and_then(|v| v.parse().ok());
        let invocation = crate::request::invocation(&reply.headers);
        let timing = Timing::parse(&reply.headers);
        let head = Head { status: reply.status, headers: reply.headers, version, invocation, timing };
        Ok(Streamed { head, body: reply.body })
    }

    /// Has the function called later. Carries a generated idempotency key if none was given, so sending it again
    /// after a broken connection cannot make two invocations.
    ///
    /// # Errors
    /// As for [`Client::invoke_async`].
    pub async fn submit(mut self) -> Result<Invocation, Error> {
        self.key.get_or_insert_with(new_key);
        let (client, request) = self.request("async-function")?;
        let accepted: AcceptedView = client.json(&request).await?;
        Ok(client.invocation(accepted.id))
    }

    fn refuse(&mut self, why: String) {
        self.refused.get_or_insert(Error::Request(why));
    }

    fn request(self, route: &str) -> Result<(Client, Request), Error> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let mut url = self.client.at([route, &self.function]);
        if let Some(path) = &self.path {
            url = Url::parse(&format!("{url}/{path}"))
                .map_err(|e| Error::Request(format!("`{path}` is not a path: {e}")))?;
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let request = Request {
            headers: self.headers,
            body: self.body.map_or(Body::Empty, Body::Upload),
            repeat: if self.method.is_safe() { Repeat::Harmless } else { Repeat::IfNothingHappened },
            timeout: None,
            ..Request::new(self.method, url)
        };
        Ok((
            self.client,
            match self.key {
                Some(key) => request.keyed(key),
                None => request,
            },
        ))
    }
}

impl Timing {
    /// Reads `fanfold-start` and `server-timing` (whose durations are milliseconds).
    fn parse(headers: &HeaderMap) -> Self {
        let cold = text(headers, &START).map(|start| start == "cold");
        let mut timing = Self { cold, ..Self::default() };
        for entry in text(headers, &SERVER_TIMING).unwrap_or_default().split(',') {
            let (name, rest) = entry.trim().split_once(';').unwrap_or_default();
            let duration = rest.split(';').find_map(|part| part.trim().strip_prefix("dur="));
            let us = duration.and_then(|ms| ms.parse::<f64>().ok()).map(|ms| (ms * 1000.0).round() as u64);
            match name {
                "queue" => timing.queue_us = us,
                "compile" => timing.compile_us = us,
                "instantiate" => timing.instantiate_us = us,
                "run" => timing.run_us = us,
                _ => {}
            }
        }
        timing
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed").field("head", &self.head).finish_non_exhaustive()
    }
}
