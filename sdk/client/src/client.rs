//! The client itself: where the gateway is, who asks, and the connections.

use std::{sync::Arc, time::Duration};

use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};

use crate::{Error, RetryPolicy, request::Request, retry::Retries};

/// The address of a gateway that `fanfold up` starts when it is not told another one.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// A handle on a gateway. Clones share connections and the retry budget.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    base: Url,
    retries: Retries,
}

impl Client {
    /// A client of the gateway at `url`, such as `http://127.0.0.1:7070`. Connects when it is first used.
    ///
    /// # Errors
    /// [`Error::Request`] where `url` or `token` cannot be used.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, Error> {
        Self::with_retries(url, token, RetryPolicy::default())
    }

    /// The same with another retry policy.
    ///
    /// # Errors
    /// As for [`Client::new`].
    pub fn with_retries(url: &str, token: Option<&str>, policy: RetryPolicy) -> Result<Self, Error> {
        let base = parse_base(url)?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("fanfold-client/", env!("CARGO_PKG_VERSION")))
            .default_headers(default_headers(token)?)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            // A long call is silent for minutes: let the kernel find out that the other end is gone.
            .tcp_keepalive(Duration::from_secs(15))
            .build()
            .map_err(|e| Error::Request(format!("cannot set up connections: {e}")))?;
        Ok(Self { shared: Arc::new(Shared { http, base, retries: Retries::new(policy) }) })
    }

    /// A client of the gateway that `FANFOLD_URL` names (default `http://127.0.0.1:7070`), as `FANFOLD_TOKEN`.
    ///
    /// # Errors
    /// As for [`Client::new`].
    pub fn from_env() -> Result<Self, Error> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = set("FANFOLD_URL");
        Self::new(url.as_deref().unwrap_or(DEFAULT_URL), set("FANFOLD_TOKEN").as_deref())
    }

    /// The gateway's address.
    pub fn url(&self) -> &str {
        self.shared.base.as_str().trim_end_matches('/')
    }

    /// Asks whether the gateway is ready to serve.
    ///
    /// # Errors
    /// [`Error::Connect`] where nobody listens, [`Error::Refused`] where it is starting or draining.
    pub async fn health(&self) -> Result<(), Error> {
        self.bytes(&Request::get(self.at(["readyz"]))).await.map(drop)
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.shared.http
    }

    pub(crate) fn retries(&self) -> &Retries {
        &self.shared.retries
    }

    /// The address of a resource; segments are encoded.
    pub(crate) fn at<'a>(&self, segments: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.shared.base.clone();
        // `parse_base` admits only addresses that have a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }
}

fn parse_base(url: &str) -> Result<Url, Error> {
    let refuse = |why: &str| Error::Request(format!("`{url}` is not the address of a gateway: {why}"));
    let parsed = Url::parse(url).map_err(|e| refuse(&format!("{e}; write it like {DEFAULT_URL}")))?;
    match parsed.scheme() {
        "http" if parsed.has_host() => Ok(parsed),
        "https" => Err(refuse("this client speaks plain http; put a proxy that ends TLS before it")),
        _ => Err(refuse(&format!("write it like {DEFAULT_URL}"))),
    }
}

fn default_headers(token: Option<&str>) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Error::Request("the token has characters that no token has".into()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}
