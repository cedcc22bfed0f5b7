//! An authority for a test, and certificates that it signs.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// Files of a cluster's processes: all use the same certificate.
pub struct Certificates(TempDir);

impl Certificates {
    /// Of an authority of their own.
    pub fn of(authority_name: &str) -> Self {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, authority_name);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, key()).expect("an authority");
        let key = key();
        let params = CertificateParams::new(["fanfold".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let this = Self(tempfile::tempdir().expect("a directory"));
        this.write("ca.pem", &authority.pem());
        this.write("cert.pem", &certificate.pem());
        this.write("key.pem", &key.serialize_pem());
        this
    }

    /// The authority's own.
    pub fn ca(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    /// What a process must have in its environment.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        let file = |name: &str| Path::join(self.0.path(), name);
        [
            ("FANFOLD_TLS_CERT", file("cert.pem")),
            ("FANFOLD_TLS_KEY", file("key.pem")),
            ("FANFOLD_TLS_CA", self.ca()),
        ]
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("a file");
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}
