//! Entries of a Redis stream as events.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fanfold_protocol::Error;
use serde_json::{Map, Value};

use crate::{CloudEvent, Data, event::SPECVERSION};

/// The type of the event of an entry.
pub const ENTRY: &str = "dev.fanfold.stream.entry";

/// The `source` of a stream's events.
pub fn source(stream: &str) -> String {
    format!("redis:{stream}")
}

/// The event of an entry: its data is an object of its fields. A value that is no text is in base64, in a member whose name ends with
/// `_base64`; of a field that is there twice, the last one counts.
///
/// # Errors
/// `invalid` / `event` for a stream whose name cannot be an attribute.
pub fn event(stream: &str, id: &str, fields: &[(Vec<u8>, Vec<u8>)]) -> Result<CloudEvent, Error> {
    let member = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let name = String::from_utf8_lossy(name).into_owned();
        match std::str::from_utf8(value) {
            Ok(text) => (name, Value::from(text)),
            Err(_) => (format!("{name}_base64"), Value::from(STANDARD.encode(value))),
        }
    };
    let data: Map<_, _> = fields.iter().map(member).collect();
    let attributes = [
        ("specversion", SPECVERSION.to_owned()),
        ("id", id.to_owned()),
        ("source", source(stream)),
        ("type", ENTRY.to_owned()),
        ("datacontenttype", "application/json".to_owned()),
    ];
    let attributes: BTreeMap<_, _> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    CloudEvent::new(attributes, Data::Json(Value::Object(data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_data() {
        let fields = [(b"order".to_vec(), b"7".to_vec()), (b"raw".to_vec(), vec![0, 255])];
        let event = event("orders", "1-0", &fields).unwrap();
        assert_eq!(event.to_json()["data"], serde_json::json!({ "order": "7", "raw_base64": "AP8=" }));
        assert_eq!(
            (event.kind(), event.attribute("source"), event.id()),
            (ENTRY, Some("redis:orders"), "1-0")
        );
    }
}
