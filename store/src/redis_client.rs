//! One connection to a Redis, made when it is needed, and what its failures mean to people.

use std::time::Duration;

use fanfold_protocol::{Code, Error, Kind};
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, aio::MultiplexedConnection};

/// How long a Redis may take to connect or to answer; it takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// A Redis, connected when it is needed.
#[derive(Debug)]
pub(crate) struct RedisClient {
    client: Client,
    /// `host:port`, for people; the URL may hold a password.
    address: String,
    connection: Option<MultiplexedConnection>,
}

impl RedisClient {
    /// Asks nobody.
    ///
    /// # Errors
    /// `invalid` for a URL that is none.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let client = Client::open(url).map_err(|e| {
            let why = e.detail().map_or_else(|| e.to_string(), str::to_owned);
            let what = format!("the URL of the Redis cannot be understood ({why})");
            Error::invalid(format!("{what}; write `redis://[[user]:password@]host:port[/db]`"))
        })?;
        let address = client.get_connection_info().addr().to_string();
        Ok(Self { client, address, connection: None })
    }

    /// The connection; requests over clones of it share it.
    pub(crate) async fn connection(&mut self) -> Result<&mut MultiplexedConnection, RedisError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => {
                let patience = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(PATIENCE))
                    .set_response_timeout(Some(PATIENCE));
                let made = self.client.get_multiplexed_async_connection_with_config(&patience).await?;
                Ok(none.insert(made))
            }
        }
    }

    /// What a failed request means. The next one gets another connection: a broken one stays broken, and a new one is a
    /// matter of a round trip.
    pub(crate) fn failed(&mut self, error: &RedisError) -> Error {
        self.connection = None;
        self.explain(error)
    }

    /// A failure as one of ours: what, why, and what to do.
    fn explain(&self, error: &RedisError) -> Error {
        let failed = |why: String, retryable| {
            let what = format!("the Redis at {} {why}", self.address);
            Error::new(Kind::Platform, Code::Storage, what).retryable(retryable)
        };
        let refused = matches!(error.code(), Some("WRONGPASS" | "NOAUTH" | "NOPERM"));
        if refused || error.kind() == ErrorKind::AuthenticationFailed {
            let why =
                "refuses the user or the password, or the user may not run scripts; check them in its URL";
            return failed(why.to_owned(), false);
        }
        if error.kind() == ErrorKind::Io || error.is_timeout() {
            let why = error.to_string();
            let why = why.split(" (os error").next().unwrap_or_default();
            return failed(format!("cannot be reached ({why}); check its URL and that it runs"), true);
        }
        failed(format!("failed: {error}"), true)
    }
}

/// Whether this may be a namespace: it becomes part of keys.
///
/// # Errors
/// `invalid`.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !namespace.is_empty() && namespace.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is not a namespace", namespace.escape_debug())))
}
