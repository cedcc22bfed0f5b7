//! Notifications of S3 stores, as AWS, MinIO and others post them. Source: "Event message structure" of the Amazon S3 user guide.
//!
//! Entries of other kinds than created and removed (tagging, restore, lifecycle …) and the test event are passed over.

use chrono::{DateTime, NaiveDateTime};
use fanfold_protocol::{Error, trigger::Change};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;

use crate::{CloudEvent, ObjectChange, event::refuse};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    event_name: String,
    event_time: Option<String>,
    s3: Option<Where>,
}

#[derive(Deserialize)]
struct Where {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    key: String,
    size: Option<u64>,
    e_tag: Option<String>,
    version_id: Option<String>,
    sequencer: Option<String>,
}

/// The events of a notification.
///
/// # Errors
/// `invalid` / `event`, naming the entry.
pub fn read(notification: &Value) -> Result<Vec<CloudEvent>, Error> {
    if notification.get("Event").and_then(Value::as_str) == Some("s3:TestEvent") {
        return Ok(Vec::new());
    }
    let Some(Value::Array(records)) = notification.get("Records") else {
        let why = "the JSON is neither a CloudEvent (those come as application/cloudevents+json) nor a notification of an S3 \
                   store, which has a list `Records`";
        return Err(refuse(why));
    };
    let mut events = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let within = |error: Error| error.context(format_args!("Records[{index}]"));
        if let Some(change) = change(record).map_err(within)? {
            events.push(change.event().map_err(within)?);
        }
    }
    Ok(events)
}

fn change(record: &Value) -> Result<Option<ObjectChange>, Error> {
    let entry =
        Entry::deserialize(record).map_err(|e| refuse(format!("no entry of an S3 notification: {e}")))?;
    let name = entry.event_name.strip_prefix("s3:").unwrap_or(&entry.event_name);
    let change = match name.split(':').next() {
        Some("ObjectCreated") => Change::Created,
        Some("ObjectRemoved") => Change::Removed,
        _ => return Ok(None),
    };
    let Some(Where { bucket, object }) = entry.s3 else {
        return Err(refuse("member `s3` with bucket and object is missing"));
    };
    let at_ms = match &entry.event_time {
        None => 0,
        Some(time) => {
            // Some servers leave the zone out and mean UTC.
            let parsed = DateTime::parse_from_rfc3339(time).map(|time| time.to_utc());
            let parsed =
                parsed.or_else(|e| time.parse::<NaiveDateTime>().map(|time| time.and_utc()).map_err(|_| e));
            let parsed = parsed.map_err(|e| refuse(format!("eventTime `{}`: {e}", time.escape_debug())))?;
            u64::try_from(parsed.timestamp_millis()).unwrap_or(0)
        }
    };
    // What is not there may be missing, empty or the word null.
    let given = |text: Option<String>| text.filter(|text| !text.is_empty() && text != "null");
    Ok(Some(ObjectChange {
        bucket: Some(bucket.name),
        key: decoded(&object.key)?,
        change,
        bytes: object.size.filter(|_| change == Change::Created),
        etag: given(object.e_tag).map(|etag| etag.trim_matches('"').to_owned()),
        version: given(object.version_id),
        sequencer: given(object.sequencer),
        at_ms,
    }))
}

/// A key as it is: notifications encode it as forms do, with `+` for a space.
fn decoded(key: &str) -> Result<String, Error> {
    let spaced = key.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded = decoded.map_err(|_| refuse(format!("key `{}` is not UTF-8", key.escape_debug())))?;
    if decoded.is_empty() {
        return Err(refuse("the object's key is empty"));
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(name: &str, object: Value) -> Value {
        json!({
            "eventVersion": "2.1", "eventSource": "aws:s3", "eventTime": "1970-01-01T00:00:01.5Z", "eventName": name,
            "s3": { "bucket": { "name": "b" }, "object": object },
        })
    }

    #[test]
    fn notifications_are_read() {
        let created = json!({ "key": "in/a+b%2Bc%C3%BC.jpg", "size": 7, "eTag": "\"e\"", "versionId": "null", "sequencer": "0A" });
        let marker = json!({ "key": "gone", "versionId": "v2", "sequencer": "0B" });
        let notification = json!({ "Records": [
            record("ObjectCreated:CompleteMultipartUpload", created),
            record("s3:ObjectRemoved:DeleteMarkerCreated", marker),
            record("ObjectTagging:Put", json!({ "key": "x" })),
        ]});
        let events = read(&notification).unwrap();
        let changes: Vec<_> = events.iter().map(|event| ObjectChange::of(event).unwrap().unwrap()).collect();
        let wanted = ObjectChange {
            bucket: Some("b".into()),
            key: "in/a b+cü.jpg".into(),
            change: Change::Created,
            bytes: Some(7),
            etag: Some("e".into()),
            version: None,
            sequencer: Some("0A".into()),
            at_ms: 1500,
        };
        assert_eq!(changes[0], wanted);
        assert_eq!((changes.len(), changes[1].change), (2, Change::Removed));
        assert_eq!(changes[1].version.as_deref(), Some("v2"));
        let test = json!({ "Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b" });
        assert!(read(&test).unwrap().is_empty());
    }

    #[test]
    fn malformed_ones_say_what_is_wrong() {
        let created = |object: Value| json!({ "Records": [record("ObjectCreated:Put", object)] });
        for (notification, part) in [
            (json!({}), "a list `Records`"),
            (json!({ "Records": {} }), "a list `Records`"),
            (json!({ "Records": [1] }), "Records[0]"),
            (json!({ "Records": [{ "eventName": "ObjectCreated:Put" }] }), "`s3`"),
            (created(json!({})), "missing field `key`"),
            (created(json!({ "key": "" })), "key is empty"),
            (created(json!({ "key": "%FF" })), "not UTF-8"),
            (created(json!({ "key": "a", "size": -1 })), "Records[0]"),
            (created(json!({ "key": "a%0Ab" })), "control characters"),
        ] {
            let error = read(&notification).unwrap_err();
            assert!(error.message.contains(part), "{notification}: {error}");
        }
    }
}
