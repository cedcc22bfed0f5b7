//! Between the WIT's types and the platform's. Checks what can be checked without knowing the task: lengths and ranges.

use bytes::Bytes;
use fanfold_protocol::{
    Code, Error, ExecutorId, Kind, PartitionId, TaskId,
    call::{Durability, Options, Placement},
    limit,
    value::{ObjectRange, Payload, Value},
};

use super::bindings::fanfold::function::{tasks, types};

/// The task id that the two halves stand for.
fn task((high, low): types::TaskId) -> TaskId {
    TaskId::from_halves(high, low)
}

impl From<types::PartitionId> for PartitionId {
    fn from(id: types::PartitionId) -> Self {
        Self { task: task(id.task), output: id.output }
    }
}

impl From<PartitionId> for types::PartitionId {
    fn from(id: PartitionId) -> Self {
        Self { task: id.task.halves(), output: id.output }
    }
}

impl From<Error> for types::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::Invalid => types::ErrorKind::Invalid,
            Kind::Unauthorized => types::ErrorKind::Unauthorized,
            Kind::NotFound => types::ErrorKind::NotFound,
            Kind::Conflict => types::ErrorKind::Conflict,
            Kind::Overloaded => types::ErrorKind::Overloaded,
            Kind::Guest => types::ErrorKind::Guest,
            Kind::Limit => types::ErrorKind::Limit,
            Kind::Lost => types::ErrorKind::Lost,
            Kind::Platform => types::ErrorKind::Platform,
        };
        Self { kind, message: error.message.into_owned(), retryable: error.retryable }
    }
}

/// The error of a handler that returned one. It may say that its caller is wrong: `invalid`, `not-found` and `conflict`
/// stay. Whatever other kind it names, to its caller it is the function that failed: only the platform itself may say
/// that the platform failed.
pub fn returned(error: types::Error) -> Error {
    let mut message = error.message;
    if message.len() > limit::ERROR_MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(limit::ERROR_MESSAGE_BYTES_MAX - 3));
        message.push('…');
    }
    let kind = match error.kind {
        types::ErrorKind::Invalid => Kind::Invalid,
        types::ErrorKind::NotFound => Kind::NotFound,
        types::ErrorKind::Conflict => Kind::Conflict,
        types::ErrorKind::Unauthorized
        | types::ErrorKind::Overloaded
        | types::ErrorKind::Guest
        | types::ErrorKind::Limit
        | types::ErrorKind::Lost
        | types::ErrorKind::Platform => Kind::Guest,
    };
    Error::new(kind, Code::ErrorReturned, message).retryable(error.retryable)
}

/// A payload of any length.
///
/// # Errors
/// [`Kind::Invalid`] for more than [`limit::PAYLOAD_REFS_MAX`] references.
pub fn payload(payload: types::Payload) -> Result<Payload, Error> {
    if payload.refs.len() > limit::PAYLOAD_REFS_MAX {
        return Err(Error::invalid(format!(
            "the payload names {} partitions: name at most {}",
            payload.refs.len(),
            limit::PAYLOAD_REFS_MAX
        )));
    }
    let refs = payload.refs.into_iter().map(Into::into).collect();
    Ok(Payload { bytes: Bytes::from(payload.bytes), refs })
}

/// A value.
///
/// # Errors
/// [`Kind::Invalid`] for an empty block range, one that passes the largest block number, an object key that is too
/// long, or too many references.
pub fn value(value: types::Value) -> Result<Value, Error> {
    Ok(match value {
        types::Value::Inline(inline) => Value::Inline(payload(inline)?),
        types::Value::Partition(id) => Value::Partition(id.into()),
        types::Value::Blocks(range) => {
            if range.count == 0 || range.first.checked_add(range.count).is_none() {
                return Err(Error::invalid(format!(
                    "blocks {}..+{} are no range: give a count of at least 1 that ends below 2^32",
                    range.first, range.count
                )));
            }
            Value::Blocks { partition: range.partition.into(), first: range.first, count: range.count }
        }
        types::Value::Object(range) => {
            key(&range.key)?;
            let types::ObjectRange { key, etag, offset, length } = range;
            Value::Object(ObjectRange { key, etag, offset, length })
        }
    })
}

/// Checks the length of an object's key; the store checks the rest.
///
/// # Errors
/// [`Kind::Invalid`].
pub fn key(key: &str) -> Result<(), Error> {
    if (1..=limit::OBJECT_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "an object key has {} bytes: give 1 to {}",
        key.len(),
        limit::OBJECT_KEY_BYTES_MAX
    )))
}

impl From<Value> for types::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Inline(inline) => Self::Inline(inline.into()),
            Value::Partition(id) => Self::Partition(id.into()),
            Value::Blocks { partition, first, count } => {
                Self::Blocks(types::BlockRange { partition: partition.into(), first, count })
            }
            Value::Object(ObjectRange { key, etag, offset, length }) => {
                Self::Object(types::ObjectRange { key, etag, offset, length })
            }
        }
    }
}

/// Copies the bytes unless this payload is their only owner.
impl From<Payload> for types::Payload {
    fn from(payload: Payload) -> Self {
        let refs = payload.refs.into_iter().map(Into::into).collect();
        Self { bytes: payload.bytes.into(), refs }
    }
}

impl From<tasks::Options> for Options {
    fn from(options: tasks::Options) -> Self {
        Self {
            cpu_millis: options.cpu_millis,
            memory: options.memory,
            gpu: options.gpu,
            custom: options.custom.into_iter().map(|tasks::Amount { name, count }| (name, count)).collect(),
            placement: placement(options.placement),
            attempts: options.attempts,
            deadline_ms: options.deadline_ms,
            durability: match options.durability {
                tasks::Durability::Lazy => Durability::Lazy,
                tasks::Durability::Eager => Durability::Eager,
                tasks::Durability::None => Durability::None,
            },
            memo: false,
        }
    }
}

fn placement(wish: tasks::Placement) -> Placement {
    match wish {
        tasks::Placement::Local => Placement::Local,
        tasks::Placement::Spread => Placement::Spread,
        tasks::Placement::Near(id) => Placement::Near(id.into()),
        tasks::Placement::OnExecutor(id) => Placement::On { executor: ExecutorId(id), strict: false },
        tasks::Placement::OnExecutorStrict(id) => Placement::On { executor: ExecutorId(id), strict: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let partition = types::PartitionId { task: (1, 2), output: 3 };
        let blocks = |first, count| types::Value::Blocks(types::BlockRange { partition, first, count });
        assert!(value(blocks(0, 0)).is_err());
        assert!(value(blocks(u32::MAX, 1)).is_err());
        assert_eq!(value(blocks(7, 1)).unwrap().needs(), Some(partition.into()));
        let object = |key: String| {
            types::Value::Object(types::ObjectRange { key, etag: None, offset: 0, length: None })
        };
        assert!(value(object(String::new())).is_err());
        assert!(value(object("k".repeat(limit::OBJECT_KEY_BYTES_MAX + 1))).is_err());
    }

    #[test]
    fn a_returned_error_blames_the_caller_or_the_function_and_is_bounded() {
        let message = "ä".repeat(limit::ERROR_MESSAGE_BYTES_MAX);
        let returned = |kind| returned(types::Error { kind, message: message.clone(), retryable: true });
        let error = returned(types::ErrorKind::Platform);
        assert_eq!((error.kind, error.retryable), (Kind::Guest, true));
        assert!(error.message.len() <= limit::ERROR_MESSAGE_BYTES_MAX);
        assert_eq!(returned(types::ErrorKind::Unauthorized).kind, Kind::Guest);
        for (said, kind) in [
            (types::ErrorKind::Invalid, Kind::Invalid),
            (types::ErrorKind::NotFound, Kind::NotFound),
            (types::ErrorKind::Conflict, Kind::Conflict),
        ] {
            let error = returned(said);
            assert_eq!((error.kind, error.code), (kind, Code::ErrorReturned));
        }
    }
}
