//! One request and its answer: how it is built, whether it may be sent twice, and what an answer means.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use fanfold_protocol::{JobId, rest::Problem};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Client, Error, Upload};

/// Chunks of an answer as they arrive.
pub type ByteStream = BoxStream<'static, Result<Bytes, Error>>;

/// Bytes of a problem that are read: the server's own limit is far below.
const PROBLEM_BYTES_MAX: usize = 256 << 10;

/// When a request may be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    /// Doing it twice is doing it once: reads, whole replacements, and whatever carries an `Idempotency-Key`.
    Harmless,
    /// Only where it is certain that the first one did nothing.
    IfNothingHappened,
}

/// A request that can be sent more than once.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) repeat: Repeat,
    /// Until the answer is complete; `None`: as long as it takes.
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Empty,
    Upload(Upload),
    /// `manifest` and `component` of a deploy.
    Deploy {
        manifest: Bytes,
        component: Upload,
    },
}

/// Answers that are small and come at once are given up after this long.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Request {
    /// A request that is harmless to repeat and is answered at once.
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let (headers, body) = (HeaderMap::new(), Body::Empty);
        Self { method, url, headers, body, repeat: Repeat::Harmless, timeout: Some(TIMEOUT) }
    }

    pub(crate) fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    /// A `POST` with a fresh `Idempotency-Key`, which makes it harmless to repeat.
    pub(crate) fn post(url: Url) -> Self {
        Self::new(Method::POST, url).keyed(new_key())
    }

    pub(crate) fn keyed(mut self, key: HeaderValue) -> Self {
        self.headers.insert(IDEMPOTENCY_KEY, key);
        self.repeat = Repeat::Harmless;
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| Error::Request(format!("cannot be sent: {e}")))?;
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = Body::Upload(bytes.into());
        Ok(self)
    }

    pub(crate) fn upload(mut self, body: Upload) -> Self {
        self.body = Body::Upload(body);
        self.timeout = None;
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    pub(crate) fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    fn may_follow(&self, error: &Error) -> bool {
        let body_repeats = match &self.body {
            Body::Empty => true,
            Body::Upload(upload) | Body::Deploy { component: upload, .. } => upload.repeats(),
        };
        let harmless = self.repeat == Repeat::Harmless || error.has_no_side_effects();
        body_repeats && harmless && error.is_retryable()
    }

    async fn build(&self, client: &Client) -> Result<reqwest::RequestBuilder, Error> {
        let mut builder = client.http().request(self.method.clone(), self.url.clone());
        builder = builder.headers(self.headers.clone());
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        match &self.body {
            Body::Empty => Ok(builder),
            Body::Upload(upload) => {
                let (body, length) = upload.body().await?;
                let builder = builder.body(body);
                Ok(match length {
                    Some(length) => builder.header(CONTENT_LENGTH, length),
                    None => builder,
                })
            }
            Body::Deploy { manifest, component } => {
                let (body, length) = component.body().await?;
                let form = deploy_form(manifest.clone(), body, length);
                Ok(builder.multipart(form.map_err(|e| Error::Request(e.to_string()))?))
            }
        }
    }
}

fn deploy_form(
    manifest: Bytes,
    component: reqwest::Body,
    length: Option<u64>,
) -> reqwest::Result<reqwest::multipart::Form> {
    use reqwest::multipart::{Form, Part};
    let manifest = Part::stream(manifest).file_name("fanfold.toml").mime_str("application/toml")?;
    let component = match length {
        Some(length) => Part::stream_with_length(component, length),
        None => Part::stream(component),
    };
    let component = component.file_name("component.wasm").mime_str("application/wasm")?;
    Ok(Form::new().part("manifest", manifest).part("component", component))
}

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Names the invocation that an answer belongs to.
const INVOCATION: HeaderName = HeaderName::from_static("fanfold-invocation");

/// A key that nobody else uses: 128 random bits.
pub(crate) fn new_key() -> HeaderValue {
    let key = format!("{:032x}", rand::random::<u128>());
    HeaderValue::try_from(key).unwrap_or(HeaderValue::from_static("0"))
}

impl Client {
    /// Sends `request` until it is answered, and `read`s the answer. A problem is an error.
    pub(crate) async fn perform<T, F>(
        &self,
        request: &Request,
        read: impl Fn(Response) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut sent = 0;
        loop {
            let answer = async { read(self.once(request).await?).await };
            let error = match answer.await {
                Ok(answer) => {
                    self.retries().earn();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            sent += 1;
            if !request.may_follow(&error) {
                return Err(error);
            }
            match self.retries().pause(sent, error.retry_after()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    async fn once(&self, request: &Request) -> Result<Response, Error> {
        let response = request.build(self).await?.send().await;
        response.map_err(|error| Error::transport(&request.url, error))
    }

    /// Sends `request` and reads its JSON answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        self.perform(request, |response| async {
            let url = response.url().clone();
            let bytes = whole(accept(response).await?).await?;
            serde_json::from_slice(&bytes)
                .map_err(|e| Error::Unexpected { url: url.to_string(), what: e.to_string() })
        })
        .await
    }

    /// Sends `request` and reads its answer whole.
    pub(crate) async fn bytes(&self, request: &Request) -> Result<Bytes, Error> {
        self.perform(request, |response| async { whole(accept(response).await?).await }).await
    }

    /// Sends `request` and hands its answer out as it comes. Only the answer's head is covered by repetition.
    pub(crate) async fn stream(&self, request: &Request) -> Result<ByteStream, Error> {
        self.perform(request, |response| async { Ok(chunks(accept(response).await?)) }).await
    }
}

/// The rest of an answer, whole.
pub(crate) async fn whole(response: Response) -> Result<Bytes, Error> {
    let url = response.url().clone();
    response.bytes().await.map_err(|error| Error::transport(&url, error))
}

/// The rest of an answer, as it comes.
pub(crate) fn chunks(response: Response) -> ByteStream {
    let url = response.url().clone();
    response.bytes_stream().map_err(move |error| Error::transport(&url, error)).boxed()
}

/// A successful answer; anything else is an error.
async fn accept(response: Response) -> Result<Response, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let (url, status) = (response.url().to_string(), response.status());
    match problem(response).await? {
        Ok(refused) => Err(refused),
        Err(_) => Err(Error::Unexpected { url, what: format!("status {status} without a problem") }),
    }
}

/// An answer to a function call: any status is the function's own, unless the platform's problem comes with it.
pub(crate) async fn accept_reply(response: Response) -> Result<Reply, Error> {
    let (status, headers) = (response.status(), response.headers().clone());
    if !status.is_client_error() && !status.is_server_error() {
        return Ok(Reply { status, headers, body: chunks(response) });
    }
    match problem(response).await? {
        Ok(refused) => Err(refused),
        Err(body) => Ok(Reply { status, headers, body }),
    }
}

/// Head and body of a function's reply.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ByteStream,
}

/// The platform's problem in an answer, or the answer's body where it is something else.
async fn problem(response: Response) -> Result<Result<Error, ByteStream>, Error> {
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|t| t.as_bytes().starts_with(b"application/problem+json"));
    if !is_problem {
        return Ok(Err(chunks(response)));
    }
    let retry_after = retry_after(response.headers());
    let invocation = invocation(response.headers());
    let mut rest = chunks(response);
    let mut body = Vec::new();
    while body.len() < PROBLEM_BYTES_MAX {
        let Some(chunk) = rest.try_next().await? else { break };
        body.extend_from_slice(&chunk);
    }
    Ok(match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => Ok(Error::Refused { problem: Box::new(problem), retry_after, invocation }),
        // A function may answer with problems of its own; they have other members.
        Err(_) => Err(futures::stream::iter([Ok(body.into())]).chain(rest).boxed()),
    })
}

/// The id of the call that an answer belongs to.
pub(crate) fn invocation(headers: &HeaderMap) -> Option<JobId> {
    headers.get(INVOCATION)?.to_str().ok()?.parse().ok()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
