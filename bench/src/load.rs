//! A closed-loop HTTP/1.1 load generator: each connection sends the same prepared request again when its answer is complete.
//!
//! It parses no more of an answer than its length, so that two cores are left to the server as far as possible.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

/// What a load run saw.
pub struct Seen {
    /// Answers per second.
    pub per_second: f64,
    /// Latency of each answer, microseconds.
    pub latencies_us: Vec<u64>,
}

/// Loads `server` with `connections` connections for `duration`, after a tenth of it as warm-up.
///
/// # Errors
/// A connection that breaks or an answer other than `200` ends the run.
pub async fn run(server: SocketAddr, request: &[u8], connections: usize, duration: Duration) -> Result<Seen> {
    let begin = Instant::now() + duration / 10;
    let end = begin + duration;
    let mut running = JoinSet::new();
    for _ in 0..connections {
        let request = request.to_vec();
        running.spawn(connection(server, request, begin, end));
    }
    let mut latencies_us = Vec::new();
    while let Some(joined) = running.join_next().await {
        latencies_us.extend(joined??);
    }
    Ok(Seen { per_second: latencies_us.len() as f64 / duration.as_secs_f64(), latencies_us })
}

async fn connection(server: SocketAddr, request: Vec<u8>, begin: Instant, end: Instant) -> Result<Vec<u64>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut buffer = Vec::with_capacity(1 << 16);
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(latencies);
        }
        stream.write_all(&request).await?;
        answer(&mut stream, &mut buffer).await?;
        if sent >= begin {
            latencies.push(sent.elapsed().as_micros() as u64);
        }
    }
}

/// Reads one whole answer.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    loop {
        ensure!(stream.read_buf(buffer).await? > 0, "the server closed the connection");
        if let Some(head) = find(buffer, b"\r\n\r\n")
            && complete(&buffer[..head], &buffer[head + 4..])?
        {
            return Ok(());
        }
    }
}

fn complete(head: &[u8], body: &[u8]) -> Result<bool> {
    if !head.starts_with(b"HTTP/1.1 200") {
        bail!("the server answered {}", String::from_utf8_lossy(&head[..head.len().min(200)]));
    }
    let lower = head.to_ascii_lowercase();
    if let Some(at) = find(&lower, b"content-length:") {
        let digits = lower[at + 15..].split(|b| *b == b'\r').next().unwrap_or_default();
        let length: usize = std::str::from_utf8(digits)?.trim().parse().context("content-length")?;
        return Ok(body.len() >= length);
    }
    Ok(body.ends_with(b"0\r\n\r\n"))
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The bytes of a request that can be sent again and again.
pub fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: bench\r\n").into_bytes();
    if method != "GET" {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}
