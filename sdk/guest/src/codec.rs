//! Values to bytes and back.
//!
//! Any serde type is JSON, with four exceptions that are found by their type and cost nothing at run time (each
//! comparison below is between constants): `Vec<u8>` is its bytes, `()` is no bytes, [`Partition`] is a reference, and
//! [`ObjectRange`] names its object. What is too large to travel inline becomes a partition.

use std::any::Any;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Error, ObjectRange, Partition, Reader, Result, Writer, host,
    raw::{Payload, Value},
    refs::{self, Found, Keep},
};

/// Bytes of the largest payload that travels inside a message.
pub(crate) const INLINE_BYTES_MAX: usize = 64 << 10;

/// `value` as a `U`, if that is what it is.
pub(crate) fn cast<T: 'static, U: 'static>(value: T) -> Result<U, T> {
    let mut slot = Some(value);
    let found = (&mut slot as &mut dyn Any).downcast_mut::<Option<U>>().and_then(Option::take);
    match (found, slot) {
        (Some(found), _) => Ok(found),
        (None, Some(value)) => Err(value),
        (None, None) => unreachable!("the slot is emptied into `found` only"),
    }
}

/// A value on its way out, and the handles that must live until it has arrived.
pub(crate) struct Encoded {
    pub value: Value,
    pub keep: Vec<Keep>,
}

impl Encoded {
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self::payload(bytes, Found::default())
    }

    fn payload(bytes: Vec<u8>, found: Found) -> Self {
        let payload = Payload { bytes, refs: found.ids };
        Self { value: Value::Inline(payload), keep: found.keep }
    }

    /// As an argument: what is too large is put into a partition.
    pub fn for_call(self) -> Result<Self> {
        match self.value {
            Value::Inline(payload) if payload.bytes.len() > INLINE_BYTES_MAX => {
                Ok(Self { value: Value::Partition(host::put(&payload)?), keep: self.keep })
            }
            _ => Ok(self),
        }
    }

    /// As output number `output`: what is too large is written as that partition.
    pub fn for_output(self, output: u32) -> Result<Value> {
        // The task is about to return: its handles must outlive the moment when the platform takes the result, and
        // the instance, with all it holds, ends right after.
        std::mem::forget(self.keep);
        match self.value {
            Value::Inline(payload) if payload.bytes.len() > INLINE_BYTES_MAX => {
                Writer::of(output, payload).map(Partition::into_value)
            }
            value => Ok(value),
        }
    }
}

/// Encodes a value that is given away; `Vec<u8>` is not copied.
pub(crate) fn encode<T: Serialize + 'static>(value: T) -> Result<Encoded> {
    match cast::<T, Vec<u8>>(value) {
        Ok(bytes) => Ok(Encoded::bytes(bytes)),
        Err(value) => encode_ref(&value),
    }
}

/// Encodes a value that stays.
pub(crate) fn encode_ref<T: Serialize + 'static>(value: &T) -> Result<Encoded> {
    let any = value as &dyn Any;
    if any.is::<()>() {
        return Ok(Encoded::bytes(Vec::new()));
    }
    if let Some(bytes) = any.downcast_ref::<Vec<u8>>() {
        return Ok(Encoded::bytes(bytes.clone()));
    }
    if let Some(partition) = any.downcast_ref::<Partition>() {
        return Ok(partition.encoded());
    }
    if let Some(range) = any.downcast_ref::<ObjectRange>() {
        return Ok(Encoded { value: Value::Object(range.clone()), keep: Vec::new() });
    }
    let (json, found) = refs::collecting(|| serde_json::to_vec(value));
    Ok(Encoded::payload(json?, found))
}

/// Decodes an argument. References in it live as long as the task that was given it.
pub(crate) fn decode<T: DeserializeOwned + 'static>(value: Value) -> Result<T> {
    let value = match cast::<Partition, T>(Partition::new(value, None)) {
        Ok(partition) => return Ok(partition),
        Err(other) => other.into_value(),
    };
    let value = match value {
        Value::Object(range) => match cast::<ObjectRange, T>(range) {
            Ok(range) => return Ok(range),
            Err(range) => Value::Object(range),
        },
        value => value,
    };
    decode_payload(load(value)?, None)
}

/// Decodes bytes; references in them hold on to `keep`.
pub(crate) fn decode_payload<T: DeserializeOwned + 'static>(
    payload: Payload,
    keep: Option<Keep>,
) -> Result<T> {
    let bytes = match cast::<Vec<u8>, T>(payload.bytes) {
        Ok(raw) => return Ok(raw),
        Err(bytes) => bytes,
    };
    // Nothing at all is what `()` is written as; it also serves `Option`s, and makes a clear error for the rest.
    let json = if bytes.is_empty() { b"null" } else { bytes.as_slice() };
    refs::holding(keep, || serde_json::from_slice(json)).map_err(|e| {
        let empty = if bytes.is_empty() { "no bytes were given: " } else { "" };
        Error::invalid(format!("{empty}{e}"))
    })
}

fn load(value: Value) -> Result<Payload> {
    match value {
        Value::Inline(payload) => Ok(payload),
        reference => Reader::open(reference)?.into_payload(),
    }
}
