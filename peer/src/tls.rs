//! TLS between the processes of a cluster: one's own certificate, and the authority that must have signed the other's.
//!
//! Promises: both sides show a certificate, and each takes the other's only if the cluster's authority signed it, it is
//! valid now, and it is one for [`NAME`]: addresses come and go, so certificates are for the cluster and not for a host.
//! What cannot work is refused when it is loaded, and every refusal says which file to look at.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use fanfold_protocol::{Code, Error, Kind};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _, verify_server_name},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The name (`subjectAltName`) in the certificates of a cluster's processes.
pub const NAME: &str = "fanfold";
/// What to do about a process without TLS among others that have it.
const START_WITH: &str = "start it with --tls-cert, --tls-key and --tls-ca";

/// Where a process finds what it needs, as PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its certificate, and those between it and the authority's.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The certificate of the authority, or of several.
    pub ca: PathBuf,
}

/// See the module.
pub struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    files: Files,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

/// A certificate with those between it and the authority, and both ways to check one.
struct Own {
    chain: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// `invalid` where a file cannot be read or used, or this process's certificate would be refused by others.
    pub fn load(files: Files) -> Result<Self, Error> {
        let own = Own::load(&files)?;
        own.check(&files)?;
        let key =
            PrivateKeyDer::from_pem_file(&files.key).map_err(|e| unread(&files.key, "a private key", &e))?;
        let fits = |e: rustls::Error| {
            let (key, cert) = (files.key.display(), files.cert.display());
            refused(format!(
                "the key in `{key}` and the certificate in `{cert}` cannot be used together: {e}"
            ))
        };
        let server = ServerConfig::builder_with_provider(own.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(fits)?
            .with_client_cert_verifier(own.clients)
            .with_single_cert(own.chain.clone(), key.clone_key())
            .map_err(fits)?;
        let client = ClientConfig::builder_with_provider(own.provider)
            .with_safe_default_protocol_versions()
            .map_err(fits)?
            .with_root_certificates(own.roots)
            .with_client_auth_cert(own.chain, key)
            .map_err(fits)?;
        let (acceptor, connector) =
            (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)));
        Ok(Self { acceptor, connector, files })
    }

    /// The dialling side of a connection.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let stream = self.connector.connect(name(), stream).await.map_err(|e| self.explain(&e))?;
        Ok(stream.into())
    }

    /// The dialled side.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let stream = self.acceptor.accept(stream).await.map_err(|e| self.explain(&e))?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let named = shown.ok_or(rustls::Error::NoCertificatesPresented).and_then(is_named);
        named.map_err(|e| self.why(&e))?;
        Ok(stream.into())
    }

    /// Why TLS failed, and what to do.
    pub(crate) fn explain(&self, error: &io::Error) -> String {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => self.why(error),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                format!("it closed the connection before TLS had begun; if it has no TLS, {START_WITH}")
            }
            None => error.to_string(),
        }
    }

    fn why(&self, error: &rustls::Error) -> String {
        let cert = self.files.cert.display();
        match error {
            rustls::Error::InvalidCertificate(what) => trouble("its certificate", what, &self.files.ca),
            rustls::Error::NoCertificatesPresented => format!("it has no certificate: {START_WITH}"),
            rustls::Error::InvalidMessage(_) => format!("it does not speak TLS: {START_WITH}"),
            rustls::Error::AlertReceived(AlertDescription::UnknownCA) => format!(
                "it does not trust the authority that signed the certificate in `{cert}`: give every process of the \
                 cluster a certificate of one authority"
            ),
            rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
                format!("it says that the certificate in `{cert}` has expired: make a new one")
            }
            rustls::Error::AlertReceived(alert) => {
                format!("it refuses the certificate in `{cert}` ({alert:?}); its log says more")
            }
            other => other.to_string(),
        }
    }
}

impl Own {
    fn load(files: &Files) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for root in certificates(&files.ca)? {
            roots.add(root).map_err(|e| refused(format!("`{}` is no authority: {e}", files.ca.display())))?;
        }
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let clients = clients.map_err(|e| refused(format!("`{}`: {e}", files.ca.display())))?;
        Ok(Self { chain: certificates(&files.cert)?, roots, provider, clients })
    }

    /// Refuses what others would refuse.
    fn check(&self, files: &Files) -> Result<(), Error> {
        let Some((first, between)) = self.chain.split_first() else { return Ok(()) };
        let servers = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), self.provider.clone());
        let servers = servers.build().map_err(|e| refused(format!("`{}`: {e}", files.ca.display())))?;
        let now = UnixTime::now();
        let checked = servers
            .verify_server_cert(first, between, &name(), &[], now)
            .map(drop)
            .and_then(|()| self.clients.verify_client_cert(first, between, now).map(drop));
        let what = format!("the certificate in `{}`", files.cert.display());
        checked.map_err(|error| match error {
            rustls::Error::InvalidCertificate(why) => refused(trouble(&what, &why, &files.ca)),
            other => refused(format!("{what} cannot be used: {other}")),
        })
    }
}

fn is_named(certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, &name())
}

fn name() -> ServerName<'static> {
    // A DNS name, as a test says.
    ServerName::try_from(NAME).unwrap_or_else(|_| ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()))
}

/// What is wrong with a certificate, and what to do.
fn trouble(what: &str, error: &CertificateError, ca: &Path) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{what} has expired: make a new one")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{what} is not valid yet: compare the clocks of the machines")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "{what} is not signed by an authority in `{}`: give every process of the cluster a certificate of one \
             authority",
            ca.display()
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{what} is not for this purpose: it needs subjectAltName = DNS:{NAME}")
        }
        other => format!("{what} cannot be used: {other}"),
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|e| unread(file, "a certificate", &e))?;
    if found.is_empty() {
        return Err(refused(format!(
            "there is no certificate in `{}`: it must be a PEM file",
            file.display()
        )));
    }
    Ok(found)
}

fn unread(file: &Path, what: &str, error: &impl fmt::Display) -> Error {
    refused(format!("cannot read {what} from `{}`: {error}; it must be a PEM file", file.display()))
}

fn refused(message: String) -> Error {
    Error::new(Kind::Invalid, Code::Certificate, message)
}

#[cfg(test)]
mod tests;
