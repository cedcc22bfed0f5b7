//! One link: messages out of a channel onto the wire, and off the wire into a channel.
//!
//! Promises: messages arrive in the order they were sent; everything that is ready leaves in one write; a peer that
//! says nothing for [`SILENCE`] counts as gone, unless it is we who do not listen. Memory is bounded by the channels
//! and one batch each way: who does not read makes the other side wait.

use std::{fmt, time::Duration};

use bytes::BytesMut;
use fanfold_protocol::Error;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use crate::frame::{self, Next};

/// Time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A peer that sent nothing for so long is gone.
pub const SILENCE: Duration = Duration::from_secs(3);
/// Messages that leave in one write, and about how many bytes.
const BATCH_MESSAGES: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// Room for one read.
const READ_BYTES: usize = 64 << 10;

/// A connection to another process, begun.
#[derive(Debug)]
pub struct Link<S> {
    pub(crate) stream: S,
    /// Read and not understood yet.
    pub(crate) unread: BytesMut,
}

/// Takes the messages of a link, one after the other.
pub trait Inbox<In>: Send {
    /// Takes one; `false`: no further ones are wanted. The link reads no more while this waits.
    fn put(&mut self, message: In) -> impl Future<Output = bool> + Send;
}

impl<In: Send> Inbox<In> for mpsc::Sender<In> {
    async fn put(&mut self, message: In) -> bool {
        self.send(message).await.is_ok()
    }
}

/// Why a link ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Our side closed its channel of outgoing messages, or takes no more.
    Here,
    /// The other side closed the connection.
    There,
    /// It broke, or the other side was silent for too long.
    Broken(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("it was ended here"),
            Self::There => f.write_str("the other side closed it"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, unread: BytesMut::with_capacity(READ_BYTES) }
    }

    /// Carries messages until one side goes away. Closing `outgoing` ends the link after what is in it.
    pub async fn run<Out, In>(self, outgoing: mpsc::Receiver<Out>, incoming: impl Inbox<In>) -> Ended
    where
        Out: Serialize,
        In: DeserializeOwned,
    {
        let (reader, writer) = tokio::io::split(self.stream);
        tokio::select! {
            ended = write(writer, outgoing) => ended,
            ended = read(reader, self.unread, incoming) => ended,
        }
    }
}

async fn write<S, Out>(mut stream: WriteHalf<S>, mut outgoing: mpsc::Receiver<Out>) -> Ended
where
    S: AsyncRead + AsyncWrite,
    Out: Serialize,
{
    let mut batch = Vec::with_capacity(BATCH_MESSAGES);
    let mut bytes = BytesMut::with_capacity(READ_BYTES);
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            taken = outgoing.recv_many(&mut batch, BATCH_MESSAGES) => if taken == 0 {
                let _ = stream.shutdown().await;
                return Ended::Here;
            },
            _ = beat.tick() => frame::heartbeat(&mut bytes),
        }
        for message in batch.drain(..) {
            if let Err(error) = frame::encode(&mut bytes, &message, false) {
                return Ended::Broken(error.message.into_owned());
            }
            if bytes.len() >= BATCH_BYTES
                && let Err(error) = flush(&mut stream, &mut bytes).await
            {
                return error;
            }
        }
        if let Err(error) = flush(&mut stream, &mut bytes).await {
            return error;
        }
    }
}

async fn flush<S: AsyncRead + AsyncWrite>(
    stream: &mut WriteHalf<S>,
    bytes: &mut BytesMut,
) -> Result<(), Ended> {
    stream.write_all(bytes).await.map_err(|e| Ended::Broken(e.to_string()))?;
    bytes.clear();
    Ok(())
}

async fn read<S, In>(mut stream: ReadHalf<S>, mut buffer: BytesMut, mut incoming: impl Inbox<In>) -> Ended
where
    S: AsyncRead + AsyncWrite,
    In: DeserializeOwned,
{
    loop {
        let missing = match take(&mut buffer, &mut incoming).await {
            Ok(whole) => whole.saturating_sub(buffer.len()),
            Err(ended) => return ended,
        };
        buffer.reserve(missing.max(READ_BYTES));
        match timeout(SILENCE, stream.read_buf(&mut buffer)).await {
            Ok(Ok(0)) => return Ended::There,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Ended::Broken(error.to_string()),
            Err(_) => return Ended::Broken(format!("it was silent for {} s", SILENCE.as_secs())),
        }
    }
}

/// Hands on every whole message; how many bytes the next one has.
async fn take<In: DeserializeOwned>(
    buffer: &mut BytesMut,
    incoming: &mut impl Inbox<In>,
) -> Result<usize, Ended> {
    loop {
        match frame::next(buffer).map_err(|e: Error| Ended::Broken(e.message.into_owned()))? {
            Next::Message(message) => {
                if !incoming.put(message).await {
                    return Err(Ended::Here);
                }
            }
            Next::Heartbeat => {}
            Next::Partial(bytes) => return Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Link<tokio::io::DuplexStream>, Link<tokio::io::DuplexStream>) {
        let (a, b) = tokio::io::duplex(1 << 10);
        (Link::new(a), Link::new(b))
    }

    #[tokio::test]
    async fn messages_cross_in_order_both_ways_and_the_end_is_seen() {
        let (left, right) = pair();
        let (to_right, from_left) = mpsc::channel(4);
        let (to_left, from_right) = mpsc::channel(4);
        let (left_in, mut at_left) = mpsc::channel::<String>(4);
        let (right_in, mut at_right) = mpsc::channel::<u32>(4);
        let until_all_came = to_right.clone();
        let sending = async {
            for n in 0..1000_u32 {
                to_right.send(n).await.unwrap();
                to_left.send("x".repeat(n as usize)).await.unwrap();
            }
            drop(to_right);
        };
        let receiving = async move {
            let _until = until_all_came;
            for n in 0..1000_u32 {
                assert_eq!(at_right.recv().await, Some(n));
                assert_eq!(at_left.recv().await.map(|s| s.len()), Some(n as usize));
            }
        };
        let (here, there, (), ()) =
            tokio::join!(left.run(from_left, left_in), right.run(from_right, right_in), sending, receiving);
        assert_eq!((here, there), (Ended::Here, Ended::There));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_is_gone_and_who_only_beats_is_not() {
        let (left, right) = pair();
        let (_to_right, from_left) = mpsc::channel::<u32>(1);
        let (_to_left, from_right) = mpsc::channel::<u32>(1);
        let (left_in, _at_left) = mpsc::channel::<u32>(1);
        let (right_in, _at_right) = mpsc::channel::<u32>(1);
        let mut left = Box::pin(left.run(from_left, left_in));
        {
            let right = right.run(from_right, right_in);
            let both = async { tokio::join!(&mut left, right) };
            assert!(timeout(Duration::from_secs(60), both).await.is_err(), "heartbeats keep it");
            // The other side stands still with its connection open: it is not dropped, only not polled.
        }
        assert!(matches!(left.await, Ended::There | Ended::Broken(_)));
    }
}
