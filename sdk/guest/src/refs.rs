//! References inside serialised values: how a [`crate::Future`] or [`crate::Partition`] in the middle of a JSON
//! document gets into the payload's `refs`, and what keeps it alive on both sides.
//!
//! serde offers no place for such side data, so it travels in thread-locals that live for one encoding or decoding.

use std::{any::Any, cell::RefCell, fmt, rc::Rc};

use serde::{Deserialize, Serialize, de, ser};

use crate::raw::{PartitionId, TaskId};

/// Something whose drop would let a partition be freed. Type-erased on purpose: a component that holds none of these
/// must not import `fanfold:function/tasks`, which the drop of a future would otherwise pull in.
pub(crate) type Keep = Rc<dyn Any>;

/// References met while encoding.
#[derive(Default)]
pub(crate) struct Found {
    pub ids: Vec<PartitionId>,
    pub keep: Vec<Keep>,
}

thread_local! {
    static ENCODING: RefCell<Option<Found>> = const { RefCell::new(None) };
    static DECODING: RefCell<Option<Keep>> = const { RefCell::new(None) };
}

/// Runs `encode` and returns what it referred to.
pub(crate) fn collecting<T>(encode: impl FnOnce() -> T) -> (T, Found) {
    let outer = ENCODING.replace(Some(Found::default()));
    let encoded = encode();
    (encoded, ENCODING.replace(outer).unwrap_or_default())
}

/// Writes a reference. It works inside an encoding of this crate only: elsewhere nothing would keep it alive.
pub(crate) fn serialize<S: ser::Serializer>(
    id: PartitionId,
    keep: Option<Keep>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    note(id, keep)?;
    Text(id).serialize(serializer)
}

/// Notes that the value being encoded refers to `id`.
pub(crate) fn note<E: ser::Error>(id: PartitionId, keep: Option<Keep>) -> Result<(), E> {
    ENCODING.with_borrow_mut(|found| {
        let found = found.as_mut().ok_or_else(|| {
            E::custom("a reference can be serialised only in an argument or a result of a task")
        })?;
        found.ids.push(id);
        found.keep.extend(keep);
        Ok(())
    })
}

/// Runs `decode`; every reference it makes holds on to `keep`.
pub(crate) fn holding<T>(keep: Option<Keep>, decode: impl FnOnce() -> T) -> T {
    let outer = DECODING.replace(keep);
    let decoded = decode();
    DECODING.set(outer);
    decoded
}

/// What the value being decoded holds on to.
pub(crate) fn held() -> Option<Keep> {
    DECODING.with_borrow(Clone::clone)
}

/// A partition id as text, as the REST interface prints it: `<task as 32 hexadecimal digits>.<output>`.
#[derive(Clone, Copy)]
pub(crate) struct Text(pub PartitionId);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionId { task: (high, low), output } = self.0;
        write!(f, "{high:016x}{low:016x}.{output}")
    }
}

impl Text {
    fn parse(text: &str) -> Option<Self> {
        let (task, output) = text.split_once('.')?;
        if task.len() != 32 || !task.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let half = |digits| u64::from_str_radix(digits, 16).ok();
        let task: TaskId = (half(&task[..16])?, half(&task[16..])?);
        Some(Self(PartitionId { task, output: output.parse().ok()? }))
    }
}

impl Serialize for Text {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format_args!("`{text}` is not a partition id")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_they_print_and_nonsense_is_refused() {
        let id = PartitionId { task: (1, u64::MAX), output: 7 };
        let text = Text(id).to_string();
        assert_eq!(text, "0000000000000001ffffffffffffffff.7");
        assert_eq!(Text::parse(&text).map(|t| t.0), Some(id));
        for wrong in ["", ".", "1.2", "+00000000000000010000000000000000.1", "é".repeat(16).as_str()] {
            assert!(Text::parse(wrong).is_none(), "{wrong}");
        }
    }
}
