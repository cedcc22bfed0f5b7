//! Certificates for the connections between the processes of a cluster.

use std::{net::SocketAddr, path::PathBuf};

use fanfold_peer::{
    Security,
    tls::{Files, Tls},
};

use crate::failure::Failure;

/// All three, or none: then the members of a cluster do not know each other and nothing is encrypted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// PEM file with this process's certificate, for links, data and calls between members; needs the other two
    #[arg(long, value_name = "FILE", env = "FANFOLD_TLS_CERT", hide_env_values = true)]
    tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", env = "FANFOLD_TLS_KEY", hide_env_values = true)]
    tls_key: Option<PathBuf>,
    /// PEM file with the authority that signed the certificates of all members
    #[arg(long, value_name = "FILE", env = "FANFOLD_TLS_CA", hide_env_values = true)]
    tls_ca: Option<PathBuf>,
}

impl Args {
    /// How a process that listens on `peer` talks to others.
    pub fn security(&self, peer: SocketAddr) -> Result<Security, Failure> {
        match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
            (Some(cert), Some(key), Some(ca)) => {
                let files = Files { cert: cert.clone(), key: key.clone(), ca: ca.clone() };
                let tls =
                    Tls::load(files).map_err(|error| Failure::platform(&error).during("cannot use TLS"))?;
                Ok(tls.into())
            }
            (None, None, None) => {
                if !peer.ip().is_loopback() {
                    tracing::warn!(
                        "anybody who reaches {peer} can run functions and read data, and nothing is encrypted: use \
                         --tls-cert, --tls-key and --tls-ca (docs/tls.md), or a network that only members reach"
                    );
                }
                Ok(Security::default())
            }
            _ => Err(Failure::usage(
                "TLS between members needs a certificate, its key and the authority's certificate",
                "give all of --tls-cert, --tls-key and --tls-ca, or none of them",
            )),
        }
    }
}
