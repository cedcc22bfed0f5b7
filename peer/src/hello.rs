//! The beginning of a link: one says who it is, the other takes it or says why not.

use std::time::Duration;

use bytes::BytesMut;
use fanfold_protocol::{
    Code, Error, Kind,
    link::{Hello, Welcome, check_protocol},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    Link, Security, Stream,
    frame::{self, Next},
};

/// First bytes of every link, so that whoever dials the wrong port learns it.
const MAGIC: &[u8; 8] = b"fanfold\n";
/// Time for the other side's first words.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to do about TLS on one side only.
const GIVE: &str = "give this process --tls-cert, --tls-key and --tls-ca";
/// First bytes of TLS records: an alert and a beginning.
const TLS_ALERT: [u8; 2] = [0x15, 3];
const TLS_HELLO: [u8; 2] = [0x16, 3];

/// Dials `address` and introduces itself; the link, and what the other side answered.
///
/// # Errors
/// `platform` / `unreachable`; `invalid` / `certificate`; what the other side refused it with; `conflict` / `protocol`.
pub async fn dial(
    security: &Security,
    address: &str,
    hello: &Hello,
) -> Result<(Link<Stream>, Welcome), Error> {
    let stream = security.connect(address, PATIENCE).await?;
    let begun = async {
        let mut link = Link::new(stream);
        let mut first = BytesMut::from(&MAGIC[..]);
        frame::encode(&mut first, hello, true)?;
        let sent = link.stream.write_all(&first).await;
        sent.map_err(|e| silent(address, &security.explain(&e)))?;
        let answer: Result<Welcome, Error> = match read_one(&mut link, security).await {
            Err(_) if security.is_plain() && link.unread.starts_with(&TLS_ALERT) => {
                return Err(silent(address, &format!("it wants TLS: {GIVE}")));
            }
            // Its alert may have been lost with the connection.
            Err(e) if security.is_plain() => {
                return Err(silent(address, &format!("{}; if it wants TLS, {GIVE}", e.message)));
            }
            read => read.map_err(|e| silent(address, &e.message))?,
        };
        let welcome = answer?;
        check_protocol(address, welcome.protocol)?;
        Ok((link, welcome))
    };
    timeout(PATIENCE, begun).await.map_err(|_| silent(address, "it did not answer within 5 s"))?
}

/// The other side of [`dial`]: who it is. Answer with [`Answered::welcome`] or [`Answered::refuse`].
///
/// # Errors
/// `invalid` / `protocol` where somebody else dialled; `invalid` / `certificate`.
pub async fn answer(security: &Security, stream: TcpStream) -> Result<Answered, Error> {
    let heard = async {
        let mut link = Link::new(security.accept(stream).await?);
        let mut magic = [0; MAGIC.len()];
        let read = link.stream.read_exact(&mut magic).await;
        read.map_err(|e| silent("the other side", &security.explain(&e)))?;
        if magic.starts_with(&TLS_HELLO) {
            let message = format!("an executor with TLS dialled, and this process has none: {GIVE}");
            return Err(Error::new(Kind::Invalid, Code::Certificate, message));
        }
        if &magic != MAGIC {
            let message = "somebody who is no executor dialled the address for executors";
            return Err(Error::new(Kind::Invalid, Code::Protocol, message));
        }
        let hello: Hello = read_one(&mut link, security).await?;
        Ok(Answered { hello, link })
    };
    timeout(PATIENCE, heard).await.map_err(|_| silent("the other side", "it did not introduce itself"))?
}

/// A dialled link whose dialler waits to be taken.
#[derive(Debug)]
pub struct Answered {
    /// Who dialled.
    pub hello: Hello,
    link: Link<Stream>,
}

impl Answered {
    /// Takes it.
    ///
    /// # Errors
    /// `platform` / `unreachable` where it has gone already.
    pub async fn welcome(mut self, welcome: &Welcome) -> Result<(Hello, Link<Stream>), Error> {
        send_one(&mut self.link, &Ok::<_, Error>(welcome)).await?;
        Ok((self.hello, self.link))
    }

    /// Refuses it.
    pub async fn refuse(mut self, error: Error) {
        // Whoever has gone already needs no reason.
        let _ = send_one(&mut self.link, &Err::<Welcome, _>(error)).await;
        let _ = self.link.stream.shutdown().await;
    }
}

async fn send_one<S: AsyncWrite + Unpin, T: Serialize>(link: &mut Link<S>, message: &T) -> Result<(), Error> {
    let mut bytes = BytesMut::new();
    frame::encode(&mut bytes, message, true)?;
    link.stream.write_all(&bytes).await.map_err(|e| silent("the other side", &e.to_string()))
}

async fn read_one<S: AsyncRead + Unpin, T: DeserializeOwned>(
    link: &mut Link<S>,
    security: &Security,
) -> Result<T, Error> {
    loop {
        match frame::next(&mut link.unread)? {
            Next::Message(message) => return Ok(message),
            Next::Heartbeat => {}
            Next::Partial(_) => {
                let read = link.stream.read_buf(&mut link.unread).await;
                match read {
                    Ok(0) => return Err(silent("the other side", "it closed the connection")),
                    Ok(_) => {}
                    Err(e) => return Err(silent("the other side", &security.explain(&e))),
                }
            }
        }
    }
}

fn silent(who: &str, why: &str) -> Error {
    Error::new(Kind::Platform, Code::Unreachable, format!("{who} did not take the link: {why}"))
        .retryable(true)
}
