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
    Link, connect,
    frame::{self, Next},
};

/// First bytes of every link, so that whoever dials the wrong port learns it.
const MAGIC: &[u8; 8] = b"fanfold\n";
/// Time for the other side's first words.
const PATIENCE: Duration = Duration::from_secs(5);

/// Dials `address` and introduces itself; the link, and what the other side answered.
///
/// # Errors
/// `platform` / `unreachable`; what the other side refused it with; `conflict` / `protocol`.
pub async fn dial(address: &str, hello: &Hello) -> Result<(Link<TcpStream>, Welcome), Error> {
    let stream = connect(address, PATIENCE).await?;
    let begun = async {
        let mut link = Link::new(stream);
        let mut first = BytesMut::from(&MAGIC[..]);
        frame::encode(&mut first, hello, true)?;
        link.stream.write_all(&first).await.map_err(|e| silent(address, &e.to_string()))?;
        let answer: Result<Welcome, Error> =
            read_one(&mut link).await.map_err(|e| silent(address, &e.message))?;
        let welcome = answer?;
        check_protocol(address, welcome.protocol)?;
        Ok((link, welcome))
    };
    timeout(PATIENCE, begun).await.map_err(|_| silent(address, "it did not answer within 5 s"))?
}

/// The other side of [`dial`]: who it is. Answer with [`Answered::welcome`] or [`Answered::refuse`].
///
/// # Errors
/// `invalid` / `protocol` where somebody else dialled.
pub async fn answer(stream: TcpStream) -> Result<Answered, Error> {
    let heard = async {
        stream.set_nodelay(true).map_err(|e| silent("the other side", &e.to_string()))?;
        let mut link = Link::new(stream);
        let mut magic = [0; MAGIC.len()];
        link.stream.read_exact(&mut magic).await.map_err(|e| silent("the other side", &e.to_string()))?;
        if &magic != MAGIC {
            let message = "somebody who is no executor dialled the address for executors";
            return Err(Error::new(Kind::Invalid, Code::Protocol, message));
        }
        let hello: Hello = read_one(&mut link).await?;
        Ok(Answered { hello, link })
    };
    timeout(PATIENCE, heard).await.map_err(|_| silent("the other side", "it did not introduce itself"))?
}

/// A dialled link whose dialler waits to be taken.
#[derive(Debug)]
pub struct Answered {
    /// Who dialled.
    pub hello: Hello,
    link: Link<TcpStream>,
}

impl Answered {
    /// Takes it.
    ///
    /// # Errors
    /// `platform` / `unreachable` where it has gone already.
    pub async fn welcome(mut self, welcome: &Welcome) -> Result<(Hello, Link<TcpStream>), Error> {
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

async fn read_one<S: AsyncRead + Unpin, T: DeserializeOwned>(link: &mut Link<S>) -> Result<T, Error> {
    loop {
        match frame::next(&mut link.unread)? {
            Next::Message(message) => return Ok(message),
            Next::Heartbeat => {}
            Next::Partial(_) => {
                let read = link.stream.read_buf(&mut link.unread).await;
                match read {
                    Ok(0) => return Err(silent("the other side", "it closed the connection")),
                    Ok(_) => {}
                    Err(e) => return Err(silent("the other side", &e.to_string())),
                }
            }
        }
    }
}

fn silent(who: &str, why: &str) -> Error {
    Error::new(Kind::Platform, Code::Unreachable, format!("{who} did not take the link: {why}"))
        .retryable(true)
}
