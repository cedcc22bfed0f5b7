//! The roles of a cluster as processes: `fanfold gateway` and `fanfold executor`.
//!
//! They are what `fanfold up` starts in one process, joined by links instead of channels. Both use one store, which several
//! processes can share; who is there they learn from Redis or, with one gateway, from its address.

mod executor;
mod gateway;
mod tls;

use std::net::SocketAddr;

use fanfold_protocol::Error;
use fanfold_store::{Members, Mirror, S3Options, Store, StoreUrl};

use crate::failure::Failure;

pub use executor::{Args as ExecutorArgs, run as executor};
pub use gateway::{Args as GatewayArgs, run as gateway};

/// Namespace of the members in a Redis that others use, too.
const NAMESPACE: &str = "fanfold";

/// What every process of a cluster is told.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// The record of the cluster, the same for all: s3://BUCKET[/PREFIX]
    ///
    /// The server, the region and the access key come from AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY, or from the machine it runs on.
    #[arg(long, env = "FANFOLD_STORE")]
    store: StoreUrl,
    /// URL of an S3 server that is not AWS, such as http://127.0.0.1:9000
    #[arg(long)]
    endpoint: Option<String>,
    /// Where members of the cluster find each other: redis://[[USER]:PASSWORD@]HOST:PORT[/DB]
    #[arg(long, env = "FANFOLD_REDIS", hide_env_values = true)]
    redis: Option<String>,
    /// Name of the cluster, where several use one Redis
    #[arg(long, default_value = NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    tls: tls::Args,
    /// What to log on stderr: error, warn, info, debug, or directives like `fanfold_gateway=debug`
    #[arg(long, env = "FANFOLD_LOG", hide_env_values = true, default_value = "info")]
    log: String,
}

impl Common {
    /// Refuses a store that only one process can have.
    fn check(&self) -> Result<(), Failure> {
        if self.store.is_shared() {
            return Ok(());
        }
        let what = format!("{} cannot be shared by processes", self.store);
        Err(Failure::usage(what, "give a bucket, as s3://BUCKET/PREFIX; `fanfold up --dir` needs none"))
    }

    async fn open_store(&self) -> Result<Store, Error> {
        let options = S3Options { endpoint: self.endpoint.clone(), ..S3Options::default() };
        Store::open(&self.store, &options).await
    }

    async fn members(&self) -> Result<Option<Members>, Error> {
        match &self.redis {
            Some(url) => Members::redis(url, &self.namespace).await.map(Some),
            None => Ok(None),
        }
    }

    /// Where gateways tell each other of their jobs.
    fn mirror(&self) -> Result<Option<Mirror>, Error> {
        self.redis.as_ref().map(|url| Mirror::redis(url, &self.namespace)).transpose()
    }
}

/// Why a process did not start. The error says what is wrong with the store, the Redis or the address.
fn not_started(error: Error) -> Failure {
    Failure::platform(&error).during("cannot start").fix("mend that and start it again")
}

/// The address that others are told for one that is listened on; `flag` gives another one.
fn advertised(given: Option<&String>, listening: SocketAddr, flag: &str) -> Result<String, Failure> {
    match given {
        Some(address) => Ok(address.clone()),
        None if listening.ip().is_unspecified() => Err(Failure::usage(
            format!("others cannot reach {listening}: it stands for every address of this machine"),
            format!("say with {flag} where they reach it"),
        )),
        None => Ok(listening.to_string()),
    }
}
