//! Certificates that work and that do not, and what each side says.

use std::{fs, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::Security;

/// An authority and what it signed, in files.
struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    /// A certificate for `name`, changed by `change`.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Files {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let path = |name: &str| self.dir.path().join(name);
        fs::write(path("cert.pem"), signed.pem()).unwrap();
        fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        Files { cert: path("cert.pem"), key: path("key.pem"), ca: path("ca.pem") }
    }

    fn security(&self) -> Security {
        Tls::load(self.sign(NAME, |_| {})).unwrap().into()
    }
}

/// What is wrong with these files.
#[track_caller]
fn refusal(files: Files) -> String {
    let error = Tls::load(files).unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Invalid, Code::Certificate));
    error.message.into_owned()
}

#[test]
fn files_that_cannot_work_are_refused_and_named() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let good = ours.sign(NAME, |_| {});
    Tls::load(good.clone()).unwrap();

    let expired = refusal(ours.sign(NAME, |params| params.not_after = date_time_ymd(2020, 1, 1)));
    assert!(expired.contains("cert.pem` has expired"), "{expired}");
    let early = refusal(ours.sign(NAME, |params| params.not_before = date_time_ymd(3000, 1, 1)));
    assert!(early.contains("not valid yet"), "{early}");
    let unnamed = refusal(ours.sign("localhost", |_| {}));
    assert!(unnamed.contains("subjectAltName = DNS:fanfold"), "{unnamed}");

    let foreign = other.sign(NAME, |_| {});
    let untrusted = refusal(Files { ca: good.ca, ..foreign.clone() });
    assert!(
        untrusted.contains("not signed by an authority in") && untrusted.contains("ca.pem"),
        "{untrusted}"
    );
    let good = ours.sign(NAME, |_| {});
    let mixed = refusal(Files { key: foreign.key, ..good.clone() });
    assert!(mixed.contains("cannot be used together"), "{mixed}");
    let missing = refusal(Files { key: "/nowhere/key.pem".into(), ..good.clone() });
    assert!(missing.contains("/nowhere/key.pem"), "{missing}");
    let text = ours.dir.path().join("text");
    fs::write(&text, "no certificate").unwrap();
    let empty = refusal(Files { cert: text, ..good });
    assert!(empty.contains("there is no certificate in"), "{empty}");
}

/// Connects two processes and sends a word each way; what each side says.
async fn meet(dialler: &Security, listener: &Security) -> (Result<(), Error>, Result<(), Error>) {
    let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listening.local_addr().unwrap().to_string();
    let dial = async {
        let mut stream = dialler.connect(&address, Duration::from_secs(5)).await?;
        let said = |e: io::Error| Error::new(Kind::Platform, Code::Unreachable, dialler.explain(&e));
        stream.write_all(b"hello").await.map_err(said)?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await.map_err(said)?;
        // Without TLS, an alert of it are bytes like others.
        if &word == b"there" { Ok(()) } else { Err(Error::internal("these were other words")) }
    };
    let answer = async {
        let (stream, _) = listening.accept().await.unwrap();
        let mut stream = listener.accept(stream).await?;
        let said = |e: io::Error| Error::new(Kind::Platform, Code::Unreachable, listener.explain(&e));
        let mut word = [0; 5];
        stream.read_exact(&mut word).await.map_err(said)?;
        if &word != b"hello" {
            return Err(Error::internal("these were other words"));
        }
        stream.write_all(b"there").await.map_err(said)
    };
    tokio::join!(dial, answer)
}

#[tokio::test]
async fn members_of_one_authority_meet_and_others_are_told_why_not() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (here, there) = (ours.security(), ours.security());
    let (dialled, answered) = meet(&here, &there).await;
    dialled.unwrap();
    answered.unwrap();
    let plain = Security::default();
    let (dialled, answered) = meet(&plain, &plain).await;
    dialled.unwrap();
    answered.unwrap();

    // Neither trusts the other; the dialler finds out first.
    let (dialled, answered) = meet(&other.security(), &here).await;
    let (dialled, answered) = (dialled.unwrap_err().message, answered.unwrap_err().message);
    let other_ca = other.dir.path().join("ca.pem").display().to_string();
    assert!(dialled.contains("not signed by an authority in") && dialled.contains(&other_ca), "{dialled}");
    assert!(answered.contains("does not trust the authority that signed"), "{answered}");

    // The dialler trusts both, and shows a certificate that only it trusts.
    let foreign = other.sign(NAME, |_| {});
    fs::write(&foreign.ca, ours.issuer.pem() + &other.issuer.pem()).unwrap();
    let (dialled, answered) = meet(&Tls::load(foreign).unwrap().into(), &here).await;
    let (dialled, answered) = (dialled.unwrap_err().message, answered.unwrap_err().message);
    assert!(dialled.contains("does not trust the authority that signed"), "{dialled}");
    assert!(answered.contains("its certificate is not signed by an authority in"), "{answered}");

    let (dialled, answered) = meet(&plain, &here).await;
    assert!(dialled.is_err());
    let answered = answered.unwrap_err().message;
    assert!(answered.contains("does not speak TLS: start it with --tls-cert"), "{answered}");
    let (dialled, answered) = meet(&here, &plain).await;
    assert!(dialled.is_err() && answered.is_err());
}
