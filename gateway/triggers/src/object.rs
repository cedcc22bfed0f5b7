//! Events of objects: what is known of a change, what makes two tellings of it one, and the CloudEvent it becomes.

use std::collections::BTreeMap;

use fanfold_protocol::{Digest, Error, trigger::Change};
use serde::{Deserialize, Serialize};

use crate::{
    CloudEvent, Data,
    event::{SPECVERSION, refuse, timestamp},
};

const CREATED: &str = "dev.fanfold.object.created";
const REMOVED: &str = "dev.fanfold.object.removed";

/// A change of one object; the data of its event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectChange {
    /// Its bucket; `None`: one of the platform's own objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// Its key.
    pub key: String,
    /// What happened.
    pub change: Change,
    /// Its size, as far as it is known. A removal does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Changes with its content; of a removal, what was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Its version, in a bucket that keeps them; of a removal, its delete marker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where the change stands among those of the same key, as its store counts: of two, the longer or later text is the later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequencer: Option<String>,
    /// When it was seen: Unix milliseconds.
    pub at_ms: u64,
}

impl ObjectChange {
    /// What makes two tellings of a change one: bucket, key, kind of change, and its version, else its etag. A removal has its
    /// sequencer before the etag, because the same content may be removed twice.
    pub fn identity(&self) -> Digest {
        let (kind, marks) = match self.change {
            Change::Created => ("created", [&self.version, &self.etag, &self.sequencer]),
            Change::Removed => ("removed", [&self.version, &self.sequencer, &self.etag]),
        };
        let mark = marks.into_iter().flatten().find(|mark| !mark.is_empty());
        let part = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
        let mark = mark.map(String::as_bytes).unwrap_or_default();
        Digest::of_parts(&[&part(&self.bucket), self.key.as_bytes(), kind.as_bytes(), mark])
    }

    /// Its CloudEvent, which is the same for all tellings of one change but for what they know beside its identity.
    ///
    /// # Errors
    /// `invalid` / `event` for a key or bucket that cannot be an attribute, such as one with control characters.
    pub fn event(&self) -> Result<CloudEvent, Error> {
        let kind = match self.change {
            Change::Created => CREATED,
            Change::Removed => REMOVED,
        };
        let source =
            self.bucket.as_ref().map_or_else(|| "/v1/objects".to_owned(), |bucket| format!("s3://{bucket}"));
        let attributes = [
            ("specversion", SPECVERSION.to_owned()),
            ("id", self.identity().to_string()),
            ("source", source),
            ("type", kind.to_owned()),
            ("subject", self.key.clone()),
            ("time", timestamp(self.at_ms)),
            ("datacontenttype", "application/json".to_owned()),
        ];
        let attributes: BTreeMap<_, _> =
            attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let data =
            serde_json::to_value(self).map_err(|e| refuse(format!("an object's event is no JSON: {e}")))?;
        CloudEvent::new(attributes, Data::Json(data))
    }

    /// The change that an event tells of; `None`: it is none of an object.
    ///
    /// # Errors
    /// `invalid` / `event` for one whose type says so and whose data does not.
    pub fn of(event: &CloudEvent) -> Result<Option<Self>, Error> {
        if ![CREATED, REMOVED].contains(&event.kind()) {
            return Ok(None);
        }
        let Data::Json(data) = &event.data else {
            return Err(refuse(format!("an event of type {} has the object as its JSON data", event.kind())));
        };
        let change: Self = serde::Deserialize::deserialize(data).map_err(|e| {
            refuse(format!("the data of an event of type {} is no object's: {e}", event.kind()))
        })?;
        Ok(Some(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> ObjectChange {
        ObjectChange {
            bucket: None,
            key: "in/a b.jpg".into(),
            change: Change::Created,
            bytes: Some(5),
            etag: Some("e".into()),
            version: None,
            sequencer: None,
            at_ms: 1_000,
        }
    }

    #[test]
    fn tellings_of_one_change_are_one_event() {
        let put = change();
        let listed = ObjectChange { at_ms: 9_000, ..change() };
        assert_eq!(put.identity(), listed.identity());
        let told = ObjectChange { sequencer: Some("0055".into()), ..change() };
        assert_eq!(put.identity(), told.identity(), "a listing knows no sequencer");
        let others = [
            ObjectChange { etag: Some("f".into()), ..change() },
            ObjectChange { bucket: Some("b".into()), ..change() },
            ObjectChange { version: Some("v".into()), ..change() },
            ObjectChange { change: Change::Removed, ..change() },
            ObjectChange { change: Change::Removed, sequencer: Some("1".into()), ..change() },
        ];
        for other in &others {
            assert_ne!(put.identity(), other.identity(), "{other:?}");
        }
        let event = put.event().unwrap();
        assert_eq!(event.identity(), listed.event().unwrap().identity());
        assert_eq!(ObjectChange::of(&event).unwrap(), Some(put));
        let bad = ObjectChange { key: "a\nb".into(), ..change() };
        assert!(bad.event().unwrap_err().message.contains("`subject` has control characters"));
    }
}
