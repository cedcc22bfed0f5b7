//! The HTTP client that processes of a cluster use for each other: pooled connections, with TLS where it is configured.

use std::{
    error::Error as _,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use fanfold_protocol::Error;
use http::Uri;
use http_body::Body;
use hyper_util::{
    client::legacy::{
        Client as Pool,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tower_service::Service;

use crate::{Security, Stream};

/// A client for requests with bodies of type `B`.
pub type Client<B> = Pool<Connector, B>;

/// How a client connects and what it keeps.
#[derive(Clone, Debug)]
pub struct Pooling {
    /// Time for a connection to be made.
    pub connect: Duration,
    /// Idle connections kept per address.
    pub idle_max: usize,
    /// How long.
    pub idle: Duration,
}

/// A client without connections. Requests are for `http://HOST:PORT/…`, also where there is TLS.
pub fn client<B>(security: Security, pooling: &Pooling) -> Client<B>
where
    B: Body<Data: Send> + Send,
{
    Pool::builder(TokioExecutor::new())
        .pool_max_idle_per_host(pooling.idle_max)
        .pool_idle_timeout(pooling.idle)
        .pool_timer(TokioTimer::new())
        .build(Connector { security, patience: pooling.connect })
}

/// Why a request failed: what its innermost cause says.
pub fn reason(error: &hyper_util::client::legacy::Error) -> String {
    let (mut reason, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        (reason, next) = (cause.to_string(), cause.source());
    }
    reason
}

/// Makes the client's connections.
#[derive(Clone, Debug)]
pub struct Connector {
    security: Security,
    patience: Duration,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { security, patience } = self.clone();
        Box::pin(async move {
            let address = uri.authority().map_or("", |authority| authority.as_str());
            let stream = security.connect(address, patience).await;
            Ok(TokioIo::new(stream.map_err(|error: Error| io::Error::other(error))?))
        })
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
