//! Client of Fanfold's REST interface: deploy functions, call them, run jobs, move data.
//!
//! A [`Client`] is a cheap handle on one connection pool and one retry budget; clone it freely. Requests that may be
//! repeated without doing anything twice are repeated for you, with growing pauses and within the budget; every
//! error says whether trying again may help ([`Error::is_retryable`]) and whether the request can already have
//! taken effect ([`Error::has_no_side_effects`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), fanfold_client::Error> {
//! use fanfold_client::Client;
//!
//! let client = Client::from_env()?;
//! let reply = client.invoke("echo", "hello").await?;
//! assert_eq!(&reply.body[..], b"hello");
//!
//! let invocation = client.invoke_async("wordcount", r#"{"prefix":"books/"}"#).await?;
//! let output = invocation.result().await?;
//! # drop(output);
//! # Ok(())
//! # }
//! ```
//!
//! What it does not do: TLS (put the gateway behind a proxy, or use a private network), following redirects, and
//! keeping state between processes.

mod call;
mod client;
mod dead_letters;
mod error;
mod executors;
mod functions;
mod invocation;
mod jobs;
mod lines;
mod objects;
mod partitions;
mod request;
mod retry;
mod triggers;
mod upload;

pub use call::{Call, Head, Reply, Streamed, Timing};
pub use client::Client;
pub use error::Error;
pub use fanfold_protocol::{self as protocol, rest};
pub use invocation::{Invocation, LogLine};
pub use request::ByteStream;
pub use retry::RetryPolicy;
pub use upload::Upload;
