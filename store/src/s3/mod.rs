//! S3 and servers that speak its protocol: how one is reached, and what its failures mean.
//!
//! Requests that fail with 5xx, 408 or 429, or whose connection could not be made, are repeated inside `object_store`
//! with growing pauses for [`S3Options::retry_for`]. A request that timed out is repeated where that is harmless: gets,
//! lists, deletes, whole replacements and parts, never creations. So a creation can find its own object: whoever creates
//! reads back (see [`crate::backend::Backend::create`]). Repetitions are not in [`crate::requests`], which counts what
//! this process asked for.
//!
//! - `answer`: what a server said, for people and for decisions.
//! - `bootstrap`: making a bucket ready.

pub(crate) mod answer;
pub(crate) mod bootstrap;

use std::{fmt, sync::Arc, time::Duration};

use fanfold_protocol::{Code, Error, Kind};
use futures::StreamExt as _;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore as _, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
    prefix::PrefixStore,
};

use crate::{backend::Backend, paths, url::Bucket};

/// How long a connection may take to be made: to a server that is there it takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server may be silent within a request, the upload of one part included.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between repetitions grow from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Repetitions end by time, not by number.
const RETRIES_MAX: usize = 1000;

/// How a bucket is reached. What is `None` comes from the environment, as for other tools: `AWS_ENDPOINT_URL`,
/// `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and so on; credentials at last from the container or
/// machine this runs on.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// URL of the server, where it is not AWS: `http://127.0.0.1:9000`. Without TLS where it says `http`.
    pub endpoint: Option<String>,
    /// Default `us-east-1`.
    pub region: Option<String>,
    /// Access key.
    pub credentials: Option<Credentials>,
    /// Name the bucket in the host name instead of the path.
    pub virtual_hosted: bool,
    /// How long a failing request is repeated before the failure is told.
    pub retry_for: Duration,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            credentials: None,
            virtual_hosted: false,
            retry_for: Duration::from_secs(20),
        }
    }
}

/// An access key. Its secret is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Its id.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// A bucket as `object_store` reaches it.
pub(crate) struct Remote {
    pub(crate) client: AmazonS3,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
}

/// Whether it has a scheme and a host; the client panics where it has not.
fn is_url(endpoint: &str) -> bool {
    let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

impl Remote {
    /// Decides how to reach a bucket. Asks nobody.
    pub(crate) fn new(bucket: &Bucket, options: &S3Options) -> Result<Self, Error> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&bucket.name);
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        if let Some(region) = &options.region {
            builder = builder.with_region(region);
        }
        if let Some(credentials) = &options.credentials {
            builder = builder
                .with_access_key_id(&credentials.access_key_id)
                .with_secret_access_key(&credentials.secret_access_key);
        }
        if options.virtual_hosted {
            builder = builder.with_virtual_hosted_style_request(true);
        }
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
        if let Some(endpoint) = endpoint.as_deref().filter(|endpoint| !is_url(endpoint)) {
            let shown = endpoint.escape_debug();
            return Err(Error::invalid(format!(
                "the endpoint `{shown}` is no URL: give AWS_ENDPOINT_URL or --endpoint as http://HOST:PORT, or unset it for AWS"
            )));
        }
        let plain = endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        if !plain {
            // TLS sees to it that what arrives is what was sent; a SHA-256 of it would cost half a second per GB, twice.
            builder = builder.with_unsigned_payload(true);
        }
        let http = ClientOptions::new()
            .with_allow_http(plain)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT)
            // A reader may be slow, and objects are large: only silence is a failure.
            .with_timeout_disabled();
        let backoff = BackoffConfig { init_backoff: PAUSE_MIN, max_backoff: PAUSE_MAX, base: 2.0 };
        let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: options.retry_for };
        let client =
            builder.with_client_options(http).with_retry(retry).build().map_err(|e| {
                Error::invalid(format!("`{bucket}` cannot be reached with these settings: {e}"))
            })?;
        Ok(Self { client, endpoint, region: region.unwrap_or_else(|| "us-east-1".to_owned()) })
    }

    /// Where it is, for people.
    pub(crate) fn place(&self, bucket: &Bucket) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("`{bucket}` at {endpoint}"),
            None => format!("`{bucket}` in {}", self.region),
        }
    }
}

/// Opens the part of a bucket that is a store, and finds out at once whether it can be listed and written, and whether
/// the server keeps the promise that everything rests on.
///
/// # Errors
/// `platform` / `storage`, naming the bucket and what to do; retryable where the server may come back.
pub(crate) async fn open(bucket: &Bucket, options: &S3Options) -> Result<Backend, Error> {
    let remote = Remote::new(bucket, options)?;
    let place = remote.place(bucket);
    let failed = |doing: &str, source: &object_store::Error| {
        answer::explain(format!("cannot {doing} {place}"), source)
    };
    let backend = if bucket.prefix.is_empty() {
        Backend::remote(Arc::new(remote.client.clone()))
    } else {
        Backend::remote(Arc::new(PrefixStore::new(remote.client.clone(), bucket.prefix.as_str())))
    };
    let prefix = (!bucket.prefix.is_empty()).then(|| Path::from(bucket.prefix.as_str()));
    if let Some(Err(e)) = remote.client.list(prefix.as_ref()).next().await {
        return Err(failed("list", &e));
    }
    let format = Path::from(paths::FORMAT_FILE);
    let content = bytes::Bytes::from_static(paths::FORMAT.as_bytes());
    let create = || backend.try_create(&format, content.clone().into());
    if create().await.map_err(|e| failed("write to", &e))?
        && create().await.map_err(|e| failed("write to", &e))?
    {
        let what = format!(
            "{place} overwrites what must only be created (it ignores `If-None-Match: *`): acknowledged work would be \
             lost there; use a server that supports conditional writes"
        );
        return Err(Error::new(Kind::Platform, Code::Storage, what).retryable(false));
    }
    match backend.get(&format).await? {
        Some(found) if found == content => Ok(backend),
        found => {
            let found =
                String::from_utf8_lossy(&found.unwrap_or_default()).chars().take(40).collect::<String>();
            let what = format!(
                "{place} holds a store of another version: `{}` says `{}`, and this version reads only `{}`",
                paths::FORMAT_FILE,
                found.trim().escape_debug(),
                paths::FORMAT.trim()
            );
            Err(Error::new(Kind::Platform, Code::Storage, what).retryable(false))
        }
    }
}
