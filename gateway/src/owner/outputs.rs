//! Reading outputs: inline ones from memory, stored ones as a stream from the store.
//!
//! Only the store is read. An output that exists on its executor alone (lazy durability, not uploaded yet) is reported
//! as `lost` / `partition-lost` and retryable: it is there a moment later, or is made again when a task needs it.

use std::sync::Arc;

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, Kind,
    direct::Body,
    value::{ObjectRange, Output, Stored, Value},
};
use fanfold_store::{Index, Store};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};

use super::dropped::Leftover;

/// Bytes read from the store at a time: what a connection can send while the next are read.
const READ_BYTES: u64 = 1 << 20;

/// An output's length and bytes; none for a job without outputs.
pub(super) async fn open(store: &Store, output: Option<&Output>) -> Result<(u64, Body), Error> {
    match output {
        None => Ok((0, Empty::new().map_err(|never| match never {}).boxed_unsync())),
        Some(Output::Inline(payload)) => Ok(inline(payload.bytes.clone())),
        Some(Output::Stored(stored)) => open_stored(store, stored).await,
        Some(Output::Alias(value)) => match value.as_ref() {
            Value::Inline(payload) => Ok(inline(payload.bytes.clone())),
            Value::Object(range) => open_object(store, range).await,
            Value::Partition(id) | Value::Blocks { partition: id, .. } => {
                let why = format!("the output is that of partition {id}, which is gone");
                Err(Error::new(Kind::Lost, Code::PartitionLost, why).retryable(false))
            }
        },
    }
}

/// An output's media type as far as it can be told, length and bytes.
///
/// # Errors
/// `lost` / `partition-lost` or `corrupt` where the store does not have it.
pub(crate) async fn open_output(store: &Store, output: &Output) -> Result<(&'static str, u64, Body), Error> {
    let (bytes, body) = open(store, Some(output)).await?;
    Ok((content_type(Some(output)), bytes, body))
}

/// The same body, which keeps `leftover` from happening as long as it is there.
pub(super) fn hold(body: Body, leftover: Option<Arc<Leftover>>) -> Body {
    match leftover {
        None => body,
        Some(leftover) => body
            .map_frame(move |frame| {
                let _held = &leftover;
                frame
            })
            .boxed_unsync(),
    }
}

/// The media type of an output, as far as it can be told: a task function says nothing about it.
pub(super) fn content_type(output: Option<&Output>) -> &'static str {
    let bytes = match output {
        Some(Output::Inline(payload)) => payload.bytes.as_ref(),
        _ => return "application/octet-stream",
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => "application/json",
        Ok(_) => "text/plain; charset=utf-8",
        Err(_) => "application/octet-stream",
    }
}

fn inline(bytes: Bytes) -> (u64, Body) {
    let length = bytes.len() as u64;
    (length, Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

async fn open_stored(store: &Store, stored: &Stored) -> Result<(u64, Body), Error> {
    let key = stored.key;
    let index = store.partitions().index(key).await.map_err(|error| {
        if error.kind != Kind::NotFound {
            return error;
        }
        let why = format!("partition {} is not in the object store, or not yet", key.partition);
        Error::new(Kind::Lost, Code::PartitionLost, why)
    })?;
    let length = index.bytes();
    let pieces =
        stream::try_unfold(Reading { store: store.clone(), stored: stored.clone(), index, at: 0 }, read);
    Ok((length, streamed(pieces)))
}

struct Reading {
    store: Store,
    stored: Stored,
    index: Index,
    at: u64,
}

async fn read(mut reading: Reading) -> Result<Option<(Bytes, Reading)>, Error> {
    let Reading { store, stored, index, at } = &reading;
    if *at >= index.bytes() {
        return Ok(None);
    }
    let piece = store.partitions().read(stored.key, index, *at..*at + READ_BYTES).await?;
    reading.at += piece.len() as u64;
    Ok(Some((piece, reading)))
}

async fn open_object(store: &Store, range: &ObjectRange) -> Result<(u64, Body), Error> {
    let (object, pieces) = store.objects().get(range).await?;
    let rest = object.bytes.saturating_sub(range.offset);
    Ok((range.length.map_or(rest, |length| length.min(rest)), streamed(pieces)))
}

fn streamed(pieces: impl stream::Stream<Item = Result<Bytes, Error>> + Send + 'static) -> Body {
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data)).into_stream()).boxed_unsync()
}
