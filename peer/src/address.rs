//! Connecting to `host:port`.

use std::time::Duration;

use fanfold_protocol::{Code, Error, Kind};
use tokio::{net::TcpStream, time::timeout};

/// Connects, without Nagle's delay.
///
/// # Errors
/// `platform` / `unreachable`, retryable, which names the address.
pub(crate) async fn connect(address: &str, patience: Duration) -> Result<TcpStream, Error> {
    let failed = |why: String| {
        let message = format!("{address} cannot be reached: {why}");
        Error::new(Kind::Platform, Code::Unreachable, message).retryable(true)
    };
    let stream = timeout(patience, TcpStream::connect(address))
        .await
        .map_err(|_| failed(format!("no answer within {} ms", patience.as_millis())))?
        .map_err(|e| failed(e.to_string()))?;
    stream.set_nodelay(true).map_err(|e| failed(e.to_string()))?;
    Ok(stream)
}
