//! Streams of a Redis, read by a consumer group: entries are delivered, and acknowledged once what they led to is durable.
//!
//! Redis remembers what was delivered and not acknowledged. A group has one reader at a time, which begins by claiming all of that;
//! later it claims what has been stuck for long.

use fanfold_protocol::Error;
use redis::{Cmd, RedisError, Value};

use crate::redis_client::RedisClient;

/// The one consumer of a group: who reads is decided elsewhere, and what it left behind is the next reader's.
const CONSUMER: &str = "gateway";

/// A stream and a group of its.
#[derive(Debug)]
pub struct Stream {
    redis: RedisClient,
    key: String,
    group: String,
}

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its fields and values, in their order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Stream {
    /// A stream of the Redis at a URL. Asks nobody.
    ///
    /// # Errors
    /// `invalid` for a URL that is none.
    pub fn open(url: &str, key: &str, group: &str) -> Result<Self, Error> {
        Ok(Self { redis: RedisClient::new(url)?, key: key.to_owned(), group: group.to_owned() })
    }

    /// Makes the group unless it is there, and the stream with it. A new group is given the entries after the id `from`.
    ///
    /// # Errors
    /// `platform` / `storage`, naming the Redis.
    pub async fn begin(&mut self, from: &str) -> Result<(), Error> {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.key).arg(&self.group).arg(from).arg("MKSTREAM");
        match self.query(&command).await {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(self.redis.failed(&error)),
            _ => Ok(()),
        }
    }

    /// Entries that were delivered at least `idle_ms` milliseconds ago and not acknowledged, from the id `after` on; and from where
    /// to go on, unless these are the last.
    ///
    /// # Errors
    /// As [`Stream::begin`].
    pub async fn claim(
        &mut self,
        idle_ms: u64,
        after: &str,
        max: usize,
    ) -> Result<(Vec<Entry>, Option<String>), Error> {
        let mut command = redis::cmd("XAUTOCLAIM");
        command.arg(&self.key).arg(&self.group).arg(CONSUMER).arg(idle_ms).arg(after).arg("COUNT").arg(max);
        let answer = self.query(&command).await.map_err(|e| self.redis.failed(&e))?;
        let mut parts = list(answer).into_iter();
        let next = parts.next().and_then(text).filter(|next| next != "0-0");
        Ok((parts.next().map(entries).unwrap_or_default(), next))
    }

    /// Entries that nobody was given before; where there are none, it waits up to `wait_ms` milliseconds for the first.
    ///
    /// # Errors
    /// As [`Stream::begin`].
    pub async fn read(&mut self, wait_ms: u64, max: usize) -> Result<Vec<Entry>, Error> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(CONSUMER).arg("COUNT").arg(max).arg("BLOCK").arg(wait_ms);
        command.arg("STREAMS").arg(&self.key).arg(">");
        let answer = self.query(&command).await.map_err(|e| self.redis.failed(&e))?;
        let streams = match answer {
            Value::Map(streams) => streams.into_iter().map(|(_, found)| found).collect(),
            streams => list(streams)
                .into_iter()
                .filter_map(|stream| list(stream).into_iter().nth(1))
                .collect::<Vec<_>>(),
        };
        Ok(streams.into_iter().flat_map(entries).collect())
    }

    /// Acknowledges entries: they are not delivered again.
    ///
    /// # Errors
    /// As [`Stream::begin`].
    pub async fn acknowledge(&mut self, ids: &[String]) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("XACK");
        command.arg(&self.key).arg(&self.group).arg(ids);
        self.query(&command).await.map(drop).map_err(|e| self.redis.failed(&e))
    }

    async fn query(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        command.query_async(self.redis.connection().await?).await
    }
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}

/// Entries as Redis lists them: each an id and its fields. One that was deleted meanwhile has none and is passed over.
fn entries(value: Value) -> Vec<Entry> {
    let entry = |value: Value| {
        let mut parts = list(value).into_iter();
        let id = text(parts.next()?)?;
        let mut values = list(parts.next()?).into_iter().filter_map(bytes);
        let mut fields = Vec::new();
        while let (Some(name), Some(value)) = (values.next(), values.next()) {
            fields.push((name, value));
        }
        (!fields.is_empty()).then_some(Entry { id, fields })
    };
    list(value).into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_redis_lists_them() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry = |id: &str, fields: &[&str]| {
            Value::Array(vec![text(id), Value::Array(fields.iter().map(|field| text(field)).collect())])
        };
        let deleted = Value::Array(vec![text("2-0"), Value::Nil]);
        let read = entries(Value::Array(vec![
            entry("1-0", &["a", "b", "c", "d"]),
            deleted,
            entry("3-0", &["e", "f"]),
        ]));
        let pair = |a: &str, b: &str| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
        assert_eq!(read[0], Entry { id: "1-0".into(), fields: vec![pair("a", "b"), pair("c", "d")] });
        assert_eq!((read.len(), read[1].id.as_str()), (2, "3-0"));
        assert_eq!(entries(Value::Nil), []);
    }
}
