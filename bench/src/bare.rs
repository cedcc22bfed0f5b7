//! The machine's limit: a hyper server that answers `hello` and does nothing else, as a process of its own.

use std::convert::Infallible;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

/// The hidden first argument that turns the benchmark binary into this server.
pub const SUBCOMMAND: &str = "bare-hyper";

/// Serves until killed; prints its address first.
pub fn serve() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}/", listener.local_addr()?);
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            connections
                .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(hello)));
            while connections.try_join_next().is_some() {}
        }
    })
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}
